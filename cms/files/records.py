"""Rows of files and folders, written as any other items are: with the caller's rights, and with their history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cms import jsontext
from cms.errors import Refused, forbidden
from cms.files.contents import Json
from cms.query.drafts import Draft, Expects
from cms.query.parse import parse_query_string
from cms.schema.model import Collection
from cms.schema.payload import Values, converter
from cms.store import calls, matching
from cms.store.calls import Call, Written
from cms.store.database import Transaction
from cms.store.judging import Judge
from cms.store.once import Once
from cms.store.reads import parse_key
from cms.store.removal import delete_rows
from cms.store.rows import Session
from cms.store.store import Identity, Job, Scene, Store

FILES = "system_files"
FOLDERS = "system_folders"

T = TypeVar("T")

UPLOADING = "system_files", "create"

Doing = Callable[[Transaction], T]
"""What is done once a transaction is open."""


def require(store: Store, identity: Identity, name: str, action: str) -> None:
    """Refuse who may not do this to any row of a collection, before anything of the request is read."""
    store.checking(identity, lambda scene: _known(scene, name, action))


@dataclass(frozen=True, slots=True)
class Ask:
    """Who calls, how the answer is to look, and under which conditions the call is done."""

    identity: Identity
    query_string: str = ""
    once: Once | None = None
    if_match: str | None = None


def writing(store: Store, ask: Ask, to: tuple[str, str], plan: Callable[[Call], Doing[T]]) -> T:
    """Plan and do a write; `to` is a collection and an action. Raises `Refused` FORBIDDEN for who may not do it."""
    name, action = to

    def planned(scene: Scene) -> Job[T]:
        collection = _known(scene, name, action)
        said, judge = parse_query_string(ask.query_string, store.page), Judge(store, scene, scene.fetch)
        act = "upload" if to == UPLOADING else None
        return Job(plan(Call(store, scene, ask.identity.caller, collection, said, judge, act)))

    return store.writing(ask.identity, planned, once=ask.once)


def check_match(ask: Ask, call: Call, transaction: Transaction, key: str) -> None:
    """Hold a row, and refuse to go on when it is not the one that If-Match names."""
    keys = parse_key(call.collection, key)
    matching.check_match(call.store, transaction, call.scene, call.collection, key=keys, if_match=ask.if_match)


def creating(
    call: Call, items: Sequence[Mapping[str, object]], usual: Sequence[Json], owned: Sequence[Json]
) -> Doing[Written]:
    """Return what creates rows: of what is said, else of what is usual, and always of what the service owns."""
    drafter = call.drafter()
    root = drafter.root(call.collection, items, Expects.ABSENT)
    for draft, common, kept in zip(root.drafts, usual, owned, strict=True):
        draft.values |= {**_values(call.collection, common), **draft.values, **_values(call.collection, kept)}
    call.completed(drafter, root)
    for draft, kept in zip(root.drafts, owned, strict=True):
        draft.values |= _values(call.collection, kept)  # over what permissions preset
    return calls.writing(call, drafter, root)


def changing(ask: Ask, call: Call, key: str, item: object, owned: Json) -> Doing[Written]:
    """Return what changes one row, if it is the one that the caller means."""
    drafter, keys = call.drafter(), [parse_key(call.collection, key)]
    root = drafter.root(call.collection, [item], Expects.PRESENT)
    _own(root.drafts, call.collection, owned)
    write = calls.writing(call, drafter, calls.changed(call, drafter, root, keys))

    def within(transaction: Transaction) -> Written:
        check_match(ask, call, transaction, key)
        return write(transaction)

    return within


def changing_many(call: Call, payload: object) -> Doing[Written]:
    """Return what changes rows of an array with their keys, or those that `keys` or `query` name by `data`."""
    if isinstance(payload, list):
        return calls.plan_each(call, payload).within
    assert isinstance(payload, Mapping)
    return calls.plan_named(call, payload).within


def named(session: Session, collection: Collection, payload: object) -> list[str]:
    """Return the keys that a batch names: an array of them, `keys` or `query`."""
    given = payload if isinstance(payload, Mapping) else {"keys": payload}
    return calls.named(session, collection, given)


def delete(session: Session, collection: Collection, keys: Sequence[str]) -> dict[str, int | None]:
    """Delete rows that the caller names, and return their last revisions by their keys.

    Raises `Refused` NOT_FOUND or FORBIDDEN, and then for all.
    """
    if not keys:
        return {}
    session.judge.permit_removal(collection, keys, session.transaction.execute)
    return dict(delete_rows(session, collection, keys))


def delete_below(session: Session, name: str, keys: Sequence[str]) -> dict[str, int | None]:
    """Delete rows that go with those that the caller names; one that it may not delete, or not see, is FORBIDDEN."""
    try:
        return delete(session, session.scene.snapshot.catalogue.collections[name], keys)
    except Refused as refused:
        raise (forbidden() if refused.problems[0].code == "NOT_FOUND" else refused) from None


def shown(found: Written, *, many: bool) -> bytes | None:
    """Return rows as the body of an answer; None for a caller that may write but not read them."""
    return None if found is None else jsontext.dumps({"data": found if many else found[0]})


def _known(scene: Scene, name: str, action: str) -> Collection:
    if not scene.actor.policy.admin and not scene.actor.policy.granted(name, action):
        raise forbidden()
    return scene.snapshot.catalogue.collections[name]


def _own(drafts: Sequence[Draft], collection: Collection, owned: Json) -> None:
    for draft in drafts:
        draft.values |= _values(collection, owned)


def _values(collection: Collection, said: Json) -> Values:
    """Return values of the service's own as the columns take them."""
    return {name: None if value is None else converter(collection.fields[name])(value) for name, value in said.items()}
