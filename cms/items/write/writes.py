"""Writes of items: everything in one call is one transaction, and rows travel in sets (decisions, section 5).

A call is planned before its transaction opens (cms/items/write/calls.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from cms.database.connections import Transaction
from cms.errors import invalid_payload
from cms.items.read.answers import body_of_done, json_body
from cms.items.read.reads import USERS, Item, parse_key, require_user
from cms.items.write.calls import (
    CHANGE,
    CREATE,
    DELETE,
    PUT,
    RESTORE,
    WriteCall,
    WriteIntent,
    WrittenItems,
    new_call,
)
from cms.items.write.plans import (
    plan_create,
    plan_delete,
    plan_delete_many,
    plan_singleton,
    plan_update,
    plan_update_each,
    plan_update_many,
)
from cms.items.write.preconditions import check_match, check_singleton
from cms.query.language.ast import ParsedQuery, Query
from cms.query.language.parse import parse_query_string
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store, WritePlan

_EMPTY_QUERY = ParsedQuery(Query())

_RIGHTS_COLLECTIONS = frozenset({"system_roles", "system_permissions", "system_settings"})
"""Collections of which every change moves the counter of rights."""

_RIGHTS_FIELDS = frozenset({"role", "status", "token", "password", "email", "tfa_secret"})
"""Fields of users whose change moves it."""

T = TypeVar("T")


class WriteTarget(NamedTuple):
    """The collection that is written, and the query string, which says how the items are answered."""

    collection: str
    query_string: str = ""


@dataclass(frozen=True, slots=True)
class WriteOperation(Generic[T]):
    """What a call is made for, how it is planned, and the body that tells which fields it writes."""

    intent: WriteIntent
    plan: Callable[[WriteCall], WritePlan[T]]
    payload: object = None


def create(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    payload: object,
    *,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Create one item, or several of an array, and answer them as the query string asks."""
    several = isinstance(payload, list)

    def plan(call: WriteCall) -> WritePlan[bytes | None]:
        return _as_body(
            call,
            plan_create(call, payload if isinstance(payload, list) else [payload]),
            single=not several,
        )

    return _call(store, identity, target, WriteOperation(CREATE, plan), idempotency=idempotency)


def update_one(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    *,
    key: str,
    payload: object,
    if_match: str | None = None,
) -> bytes | None:
    """Change one item; raises `Refused` NOT_FOUND when there is none for this caller."""

    def plan(call: WriteCall) -> WritePlan[bytes | None]:
        found = parse_key(call.collection, key)
        return _as_body(
            call,
            _with_precondition(
                call, plan_update(call, found, payload), key=found, if_match=if_match
            ),
            single=True,
        )

    return _call(store, identity, target, WriteOperation(CHANGE, plan, payload))


def update_me(
    store: Store,
    identity: Identity,
    query_string: str,
    *,
    payload: object,
    if_match: str | None = None,
) -> bytes | None:
    """Change the caller's own user; raises `Refused` INVALID_CREDENTIALS without credentials."""
    require_user(identity)

    def plan(call: WriteCall) -> WritePlan[bytes | None]:
        key = str(call.context.actor.user)
        return _as_body(
            call,
            _with_precondition(call, plan_update(call, key, payload), key=key, if_match=if_match),
            single=True,
        )

    target = WriteTarget(USERS, query_string)
    return _call(store, identity, target, WriteOperation(CHANGE, plan, payload))


def restore(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    *,
    key: str,
    payload: object,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Give an item back what it held before; the history tells it as a revert."""

    def plan(call: WriteCall) -> WritePlan[bytes | None]:
        found = parse_key(call.collection, key)
        job = (
            plan_singleton(call, payload)
            if call.collection.is_singleton
            else plan_update(call, found, payload)
        )
        return _as_body(call, job, single=True)

    return _call(
        store, identity, target, WriteOperation(RESTORE, plan, payload), idempotency=idempotency
    )


def update_many(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    payload: object,
    *,
    if_match: str | None = None,
) -> bytes | None:
    """Change items by an array of objects with their keys, by `keys` and `data`, or by `query` and `data`.

    On a singleton the payload is the object itself, which is made when it is not there; `if_match` is of singletons.
    """

    def plan(call: WriteCall) -> WritePlan[bytes | None]:
        if call.collection.is_singleton:
            return _as_body(
                call, _singleton_with_precondition(call, payload, if_match), single=True
            )
        if isinstance(payload, list):
            return _as_body(call, plan_update_each(call, payload), single=False)
        if not isinstance(payload, Mapping) or "data" not in payload:
            raise invalid_payload(
                "The body must be an array of items with their keys, or hold data with keys or query"
            )
        return _as_body(call, plan_update_many(call, payload), single=False)

    return _call(store, identity, target, WriteOperation(PUT, plan, payload))


def delete_one(
    store: Store, identity: Identity, collection: str, *, key: str, if_match: str | None = None
) -> None:
    """Delete one item."""

    def plan(call: WriteCall) -> WritePlan[object]:
        found = parse_key(call.collection, key)
        return _with_precondition(call, plan_delete(call, found), key=found, if_match=if_match)

    _call(store, identity, WriteTarget(collection), WriteOperation(DELETE, plan))


def delete_many(store: Store, identity: Identity, collection: str, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""
    given = payload if isinstance(payload, Mapping) else {"keys": payload}
    _call(
        store,
        identity,
        WriteTarget(collection),
        WriteOperation(DELETE, lambda call: plan_delete_many(call, given)),
    )


def _call(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    work: WriteOperation[T],
    *,
    idempotency: Idempotency | None = None,
) -> T:
    name = target.collection
    query_string = target.query_string

    def planned(context: RequestContext) -> WritePlan[T]:
        call = new_call(
            store, context, identity.client, name=name, parsed=_EMPTY_QUERY, intent=work.intent
        )
        asked = (
            replace(call, parsed=parse_query_string(query_string, store.page))
            if query_string
            else call
        )
        return work.plan(asked)

    return store.run_write(
        identity, planned, idempotency=idempotency, changes_rights=_changes_rights(name, work)
    )


def _changes_rights(name: str, work: WriteOperation[T]) -> bool:
    """Tell whether a write moves the counter of rights, as far as collection and fields tell before it is planned.

    What moves it unforeseen, a nested write for one, may have to wait for others and be done again.
    """
    if name != USERS or work.intent is CREATE:
        return name in _RIGHTS_COLLECTIONS
    if work.intent is DELETE:
        return True
    given = work.payload
    data = given.get("data", given) if isinstance(given, Mapping) else given
    items = data if isinstance(data, list) else [data]
    return any(isinstance(item, Mapping) and not _RIGHTS_FIELDS.isdisjoint(item) for item in items)


def _as_body(
    call: WriteCall, job: WritePlan[WrittenItems], *, single: bool
) -> WritePlan[bytes | None]:
    """Return the job with its items as the body of an answer; None is no body at all."""

    def answer(found: list[Item]) -> dict[str, object]:
        return {"data": found[0] if single else found}

    def within(transaction: Transaction) -> bytes | None:
        found = job.within(transaction)
        return None if found is None else json_body(answer(found), call.store.max_answer_size)

    def run(in_one_statement: Callable[[], WrittenItems]) -> bytes | None:
        found = (
            in_one_statement()
        )  # it is done by now, and has been planned for answers of a fitting size only
        return None if found is None else body_of_done(answer(found))

    in_one_statement = job.in_one_statement
    return WritePlan(within, in_one_statement and (lambda: run(in_one_statement)))


def _singleton_with_precondition(
    call: WriteCall, payload: object, if_match: str | None
) -> WritePlan[WrittenItems]:
    """Change the one item of a singleton while it is the one that an If-Match header names."""
    job = plan_singleton(call, payload)

    def within(transaction: Transaction) -> WrittenItems:
        check_singleton(call.store, transaction, call.context, call.collection, if_match=if_match)
        return job.within(transaction)

    return WritePlan(within)


def _with_precondition(
    call: WriteCall, job: WritePlan[T], *, key: str, if_match: str | None
) -> WritePlan[T]:
    """Let a job be done only while the item is the one that an If-Match header names."""
    if if_match is None:
        return job

    def within(transaction: Transaction) -> T:
        check_match(
            call.store, transaction, call.context, call.collection, key=key, if_match=if_match
        )
        return job.within(transaction)

    return WritePlan(within)
