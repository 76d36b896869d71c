"""Writes of items: everything in one call is one transaction, and rows travel in sets (decisions, section 5).

A call is planned before its transaction opens (cms/store/calls.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cms.errors import invalid_payload
from cms.query.ast import Query, Said
from cms.query.parse import parse_query_string
from cms.store.answers import body_of, body_of_done
from cms.store.calls import (
    CHANGE,
    CREATE,
    DELETE,
    PUT,
    RESTORE,
    Aim,
    Call,
    Written,
    call_on,
    plan_change,
    plan_each,
    plan_named,
    plan_new,
    plan_removal,
    plan_removals,
    plan_singleton,
)
from cms.store.database import Transaction
from cms.store.matching import check_match, check_singleton
from cms.store.once import Once
from cms.store.reads import USERS, Item, parse_key, require_user
from cms.store.store import Identity, Job, Scene, Store

_NOTHING_ASKED = Said(Query())

_RIGHTS = frozenset({"system_roles", "system_permissions", "system_settings"})
"""Collections of which every change moves the counter of rights."""

_OF_RIGHTS = frozenset({"role", "status", "token", "password", "email", "tfa_secret"})
"""Fields of users whose change moves it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """What a call is made for, how it is planned, and the body that tells which fields it writes."""

    aim: Aim
    plan: Callable[[Call], Job[T]]
    payload: object = None


def create(
    store: Store, identity: Identity, ask: tuple[str, str], payload: object, *, once: Once | None = None
) -> bytes | None:
    """Create one item, or several of an array, and answer them as the query string asks."""
    several = isinstance(payload, list)

    def plan(call: Call) -> Job[bytes | None]:
        return _shown(call, plan_new(call, payload if isinstance(payload, list) else [payload]), single=not several)

    return _call(store, identity, ask, Work(CREATE, plan), once=once)


def update_one(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    *,
    key: str,
    payload: object,
    if_match: str | None = None,
) -> bytes | None:
    """Change one item; raises `Refused` NOT_FOUND when there is none for this caller."""

    def plan(call: Call) -> Job[bytes | None]:
        found = parse_key(call.collection, key)
        return _shown(
            call, _matched(call, plan_change(call, found, payload), key=found, if_match=if_match), single=True
        )

    return _call(store, identity, ask, Work(CHANGE, plan, payload))


def update_me(
    store: Store, identity: Identity, query_string: str, *, payload: object, if_match: str | None = None
) -> bytes | None:
    """Change the caller's own user; raises `Refused` INVALID_CREDENTIALS without credentials."""
    require_user(identity)

    def plan(call: Call) -> Job[bytes | None]:
        key = str(call.scene.actor.user)
        return _shown(call, _matched(call, plan_change(call, key, payload), key=key, if_match=if_match), single=True)

    return _call(store, identity, (USERS, query_string), Work(CHANGE, plan, payload))


def restore(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    *,
    key: str,
    payload: object,
    once: Once | None = None,
) -> bytes | None:
    """Give an item back what it held before; the history tells it as a revert."""

    def plan(call: Call) -> Job[bytes | None]:
        found = parse_key(call.collection, key)
        job = plan_singleton(call, payload) if call.collection.singleton else plan_change(call, found, payload)
        return _shown(call, job, single=True)

    return _call(store, identity, ask, Work(RESTORE, plan, payload), once=once)


def update_many(
    store: Store, identity: Identity, ask: tuple[str, str], payload: object, *, if_match: str | None = None
) -> bytes | None:
    """Change items by an array of objects with their keys, by `keys` and `data`, or by `query` and `data`.

    On a singleton the payload is the object itself, which is made when it is not there; `if_match` is of singletons.
    """

    def plan(call: Call) -> Job[bytes | None]:
        if call.collection.singleton:
            return _shown(call, _singleton(call, payload, if_match), single=True)
        if isinstance(payload, list):
            return _shown(call, plan_each(call, payload), single=False)
        if not isinstance(payload, Mapping) or "data" not in payload:
            raise invalid_payload("The body must be an array of items with their keys, or hold data with keys or query")
        return _shown(call, plan_named(call, payload), single=False)

    return _call(store, identity, ask, Work(PUT, plan, payload))


def delete_one(store: Store, identity: Identity, collection: str, *, key: str, if_match: str | None = None) -> None:
    """Delete one item."""

    def plan(call: Call) -> Job[object]:
        found = parse_key(call.collection, key)
        return _matched(call, plan_removal(call, found), key=found, if_match=if_match)

    _call(store, identity, (collection, ""), Work(DELETE, plan))


def delete_many(store: Store, identity: Identity, collection: str, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""
    given = payload if isinstance(payload, Mapping) else {"keys": payload}
    _call(store, identity, (collection, ""), Work(DELETE, lambda call: plan_removals(call, given)))


def _call(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    work: Work[T],
    *,
    once: Once | None = None,
) -> T:
    name, query_string = ask

    def planned(scene: Scene) -> Job[T]:
        call = call_on(store, scene, identity.caller, (name, _NOTHING_ASKED), work.aim)
        asked = replace(call, said=parse_query_string(query_string, store.page)) if query_string else call
        return work.plan(asked)

    return store.writing(identity, planned, once=once, moves_rights=_moves_rights(name, work))


def _moves_rights(name: str, work: Work[T]) -> bool:
    """Tell whether a write moves the counter of rights, as far as collection and fields tell before it is planned.

    What moves it unforeseen, a nested write for one, may have to wait for others and be done again.
    """
    if name != USERS or work.aim is CREATE:
        return name in _RIGHTS
    if work.aim is DELETE:
        return True
    given = work.payload
    data = given.get("data", given) if isinstance(given, Mapping) else given
    items = data if isinstance(data, list) else [data]
    return any(isinstance(item, Mapping) and not _OF_RIGHTS.isdisjoint(item) for item in items)


def _shown(call: Call, job: Job[Written], *, single: bool) -> Job[bytes | None]:
    """Return the job with its items as the body of an answer; None is no body at all."""

    def answer(found: list[Item]) -> dict[str, object]:
        return {"data": found[0] if single else found}

    def within(transaction: Transaction) -> bytes | None:
        found = job.within(transaction)
        return None if found is None else body_of(answer(found), call.store.max_answer_size)

    def run(at_once: Callable[[], Written]) -> bytes | None:
        found = at_once()  # it is done by now, and has been planned for answers of a fitting size only
        return None if found is None else body_of_done(answer(found))

    at_once = job.at_once
    return Job(within, at_once and (lambda: run(at_once)))


def _singleton(call: Call, payload: object, if_match: str | None) -> Job[Written]:
    """Change the one item of a singleton while it is the one that an If-Match header names."""
    job = plan_singleton(call, payload)

    def within(transaction: Transaction) -> Written:
        check_singleton(call.store, transaction, call.scene, call.collection, if_match=if_match)
        return job.within(transaction)

    return Job(within)


def _matched(call: Call, job: Job[T], *, key: str, if_match: str | None) -> Job[T]:
    """Let a job be done only while the item is the one that an If-Match header names."""
    if if_match is None:
        return job

    def within(transaction: Transaction) -> T:
        check_match(call.store, transaction, call.scene, call.collection, key=key, if_match=if_match)
        return job.within(transaction)

    return Job(within)
