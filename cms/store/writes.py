"""Writes of items: everything in one call is one transaction, and rows travel in sets (decisions, section 5).

A call is planned before its transaction opens: the payload becomes a tree of drafts (cms/query/drafts.py), whose
passwords are hashed by then. A single statement does what speaks of no related item (cms/store/direct.py); anything
else is settled (cms/store/settling.py) and written batch by batch (cms/store/nested.py), always through the three
functions of cms/store/rows.py, and read back as the caller may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from cms import jsontext
from cms.access.guard import writable
from cms.errors import Problem, invalid_payload, not_found
from cms.query import write
from cms.query.ast import KEY, At, Name, Pick, Query, Said, Slot, Test
from cms.query.bind import Context, bound
from cms.query.drafts import Batch, Drafter, Expects, Place
from cms.query.parse import PARAMETERS, Page, parse, parse_query_string
from cms.schema.model import Collection
from cms.schema.payload import invalid
from cms.store import direct
from cms.store.database import Transaction
from cms.store.direct import Short
from cms.store.matching import check_match
from cms.store.nested import write_tree
from cms.store.once import Once
from cms.store.reads import Item, parse_key, statement_for
from cms.store.rows import Session, delete_rows, writer
from cms.store.settling import complete
from cms.store.store import Caller, Identity, Job, Scene, Store

_EVERY_ROW = Page(default=None)
_NOTHING_ASKED = Said(Query())

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, under the structure and rights that it was planned under."""

    store: Store
    scene: Scene
    caller: Caller
    collection: Collection
    said: Said = _NOTHING_ASKED

    @property
    def short(self) -> Short:
        return Short(self.store, self.scene, self.caller, self.said)

    def session(self, transaction: Transaction) -> Session:
        return Session(self.store, transaction, self.scene, self.caller)

    def drafter(self) -> Drafter:
        return Drafter(self.scene.snapshot.catalogue, depth=self.store.depth, admin=self.scene.actor.policy.admin)

    def completed(self, drafter: Drafter, root: Batch) -> None:
        """Complete the rows of a root; refuse at once when nothing else is to be looked at."""
        complete(root, writer(self.scene), drafter.faults)
        if root.flat:
            drafter.faults.refuse()


def create(
    store: Store, identity: Identity, ask: tuple[str, str], payload: object, *, once: Once | None = None
) -> bytes:
    """Create one item, or several of an array, and answer them as the query string asks."""
    items = payload if isinstance(payload, list) else [payload]

    def plan(call: Call) -> Job[bytes]:
        drafter = call.drafter()
        root = drafter.root(call.collection, items, Expects.ABSENT)
        call.completed(drafter, root)
        at_once = root.flat and direct.inserted(call.short, call.collection, [draft.values for draft in root.drafts])
        return _shown(Job(_writing(call, drafter, root), at_once or None), single=not isinstance(payload, list))

    return _call(store, identity, ask, plan, singleton=False, once=once)


def update_one(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    *,
    key: str,
    payload: object,
    if_match: str | None = None,
) -> bytes:
    """Change one item; raises `Refused` NOT_FOUND when there is none for this caller."""

    def plan(call: Call) -> Job[bytes]:
        drafter, keys = call.drafter(), [parse_key(call.collection, key)]
        root = _changed(call, drafter, drafter.root(call.collection, [payload], Expects.PRESENT), keys)
        at_once = root.flat and direct.changed(call.short, call.collection, keys[0], root.drafts[0].values)
        job = Job(_writing(call, drafter, root), at_once or None)
        return _shown(_matched(call, job, key=keys[0], if_match=if_match), single=True)

    return _call(store, identity, ask, plan, singleton=False)


def update_many(store: Store, identity: Identity, ask: tuple[str, str], payload: object) -> bytes:
    """Change items by an array of objects with their keys, by `keys` and `data`, or by `query` and `data`.

    On a singleton the payload is the object itself, which is made when it is not there.
    """

    def plan(call: Call) -> Job[object]:
        if call.collection.singleton:
            return Job(_put_singleton(call, payload))
        if isinstance(payload, list):
            return Job(_change_each(call, payload))
        if not isinstance(payload, Mapping) or "data" not in payload:
            raise invalid_payload("The body must be an array of items with their keys, or hold data with keys or query")
        return Job(_change_named(call, payload))

    return jsontext.dumps({"data": _call(store, identity, ask, plan)})


def delete_one(store: Store, identity: Identity, collection: str, *, key: str, if_match: str | None = None) -> None:
    """Delete one item."""

    def plan(call: Call) -> Job[object]:
        keys = [parse_key(call.collection, key)]
        job: Job[object] = Job(
            lambda transaction: delete_rows(call.session(transaction), call.collection, keys),
            direct.deleted(call.short, call.collection, keys[0]),
        )
        return _matched(call, job, key=keys[0], if_match=if_match)

    _call(store, identity, (collection, ""), plan, singleton=False)


def delete_many(store: Store, identity: Identity, collection: str, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""
    given = payload if isinstance(payload, Mapping) else {"keys": payload}

    def plan(call: Call) -> Job[object]:
        def within(transaction: Transaction) -> object:
            session = call.session(transaction)
            return delete_rows(session, call.collection, _named(session, call.collection, given))

        return Job(within)

    _call(store, identity, (collection, ""), plan, singleton=False)


def _call(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    plan: Callable[[Call], Job[T]],
    *,
    singleton: bool | None = None,
    once: Once | None = None,
) -> T:
    """Plan and do a call; a collection that is a singleton has no items to create or to name by key."""
    name, query_string = ask

    def planned(scene: Scene) -> Job[T]:
        collection = writable(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
        if collection.singleton and singleton is False:
            raise not_found()
        said = parse_query_string(query_string, store.page) if query_string else _NOTHING_ASKED
        return plan(Call(store, scene, identity.caller, collection, said))

    return store.writing(identity, planned, once=once)


def _shown(job: Job[list[Item]], *, single: bool) -> Job[bytes]:
    """Return the job with its items as the body of an answer."""

    def show(found: list[Item]) -> bytes:
        return jsontext.dumps({"data": found[0] if single else found})

    at_once = job.at_once
    return Job(lambda transaction: show(job.within(transaction)), at_once and (lambda: show(at_once())))


def _matched(call: Call, job: Job[T], *, key: str, if_match: str | None) -> Job[T]:
    """Let a job be done only while the item is the one that an If-Match header names."""
    if if_match is None:
        return job

    def within(transaction: Transaction) -> T:
        check_match(call.store, transaction, call.scene, call.collection, key=key, if_match=if_match)
        return job.within(transaction)

    return Job(within)


# Changes


def _changed(call: Call, drafter: Drafter, root: Batch, keys: Sequence[str]) -> Batch:
    """Return the complete tree of a change that gives all items of the keys the values of the one in the root."""
    if len(keys) != len(root.drafts):  # an item of the wrong shape has made no draft
        root = _spread(call, drafter, root, len(keys))
    named = [draft.values.pop(root.key_field, None) for draft in root.drafts]
    if any(found not in (None, key) for found, key in zip(named, keys, strict=True)) or (len(keys) > 1 and any(named)):
        drafter.faults.add(_unchangeable(call.collection), Place())
    for draft, key in zip(root.drafts, keys, strict=True):
        draft.key = key
    call.completed(drafter, root)
    return root


def _spread(call: Call, drafter: Drafter, root: Batch, number: int) -> Batch:
    """Return the tree with one item for each key; what is nested is written for each of them."""
    drafter.faults.refuse()
    if not root.flat:
        return drafter.root(call.collection, [root.drafts[0].sent] * number, Expects.PRESENT)
    root.drafts = [replace(draft, values=draft.values.copy()) for draft in root.drafts for _ in range(number)]
    return root


def _unchangeable(collection: Collection) -> Problem:
    return invalid("the primary key of an item cannot be changed", collection.name, collection.primary_key)


def _change_each(call: Call, payload: list[object]) -> Callable[[Transaction], list[Item]]:
    drafter = call.drafter()
    root = drafter.root(call.collection, payload, Expects.PRESENT)
    seen: set[str] = set()
    for draft in root.drafts:
        draft.key = draft.values.pop(root.key_field, None)
        if draft.key is None and root.key_field not in draft.refused:
            drafter.faults.add(
                invalid("it must hold its primary key", call.collection.name, root.key_field), draft.place
            )
        elif draft.key in seen:
            drafter.faults.add(invalid("it is there twice", call.collection.name, root.key_field), draft.place)
        seen.add(str(draft.key))
    call.completed(drafter, root)
    return _writing(call, drafter, root)


def _change_named(call: Call, payload: Mapping[str, object]) -> Callable[[Transaction], list[Item]]:
    """Change the items that `keys` or `query` name."""
    drafter = call.drafter()
    root = drafter.root(call.collection, [payload["data"]], Expects.PRESENT)

    def within(transaction: Transaction) -> list[Item]:
        session = call.session(transaction)
        keys = _named(session, call.collection, payload)
        return _written(session, call, drafter, _changed(call, drafter, root, keys))

    return within


def _put_singleton(call: Call, payload: object) -> Callable[[Transaction], Item]:
    drafter = call.drafter()
    root = drafter.root(call.collection, [payload], Expects.EITHER)

    def within(transaction: Transaction) -> Item:
        transaction.run(write.lock_of(call.collection))
        present = transaction.run(write.first(call.collection))
        for draft in root.drafts if present else ():
            draft.new, draft.key = False, str(present[0][0])
            if draft.values.pop(root.key_field, None) not in (None, draft.key):
                drafter.faults.add(_unchangeable(call.collection), draft.place)
        call.completed(drafter, root)
        return _written(call.session(transaction), call, drafter, root)[0]

    return within


# Keys


def _named(session: Session, collection: Collection, payload: Mapping[str, object]) -> list[str]:
    """Return the keys of the items that a batch names: by `keys` or by `query`, and never by both."""
    if len({"keys", "query"} & payload.keys()) != 1:
        raise invalid_payload("It takes either keys or query", field="keys")
    if "keys" in payload:
        return _keys(collection, payload["keys"])
    return _keys_by_query(session, collection, payload["query"])


def _keys(collection: Collection, given: object) -> list[str]:
    """Return the keys of a batch, each once."""
    if not isinstance(given, list) or any(isinstance(key, dict | list) or key is None for key in given):
        raise invalid_payload("keys must be an array of primary keys", field="keys")
    return list(dict.fromkeys(parse_key(collection, key) for key in given))


def _keys_by_query(session: Session, collection: Collection, params: object) -> list[str]:
    """Return the keys of the items that a query finds; no default limit applies to it."""
    if not isinstance(params, Mapping):
        raise invalid_payload("query must be an object", field="query")
    for name in params.keys() - PARAMETERS:  # a misspelt filter would otherwise change every row
        raise invalid_payload(f'query does not take "{name}"; there are {", ".join(sorted(PARAMETERS))}', field="query")
    said = parse(params, _EVERY_ROW)
    query = replace(said.query, picks=(_key_pick(collection),), aggregates=(), groups=(), counts=())
    return [str(item[KEY]) for item in _select(session, collection, query, said.literals)]


def _key_pick(collection: Collection) -> Pick:
    return Pick(KEY, Name(str(collection.primary_key)))


# Rows out


def _writing(call: Call, drafter: Drafter, root: Batch) -> Callable[[Transaction], list[Item]]:
    return lambda transaction: _written(call.session(transaction), call, drafter, root)


def _written(session: Session, call: Call, drafter: Drafter, root: Batch) -> list[Item]:
    """Write a tree and return its items, in their order, as this caller may read them."""
    keys, said = write_tree(session, drafter, root), call.said
    if not keys:
        return []
    narrowed = At(Name(root.key_field), Test("_in", (Slot(len(said.literals)),)))
    picks = (*said.query.picks, _key_pick(root.collection))
    query = Query(picks=picks, deep=said.query.deep, filter=narrowed)
    items = _select(session, root.collection, query, (*said.literals, tuple(keys)))
    by_key = {str(item.pop(KEY)): item for item in items}
    if len(by_key) < len(keys):  # a trigger of the table may have moved or removed them
        raise not_found()
    return [by_key[key] for key in keys]


def _select(session: Session, collection: Collection, query: Query, literals: tuple[object, ...]) -> list[Item]:
    found = statement_for(session.store, session.scene, collection.name, query)
    context = Context(literals, session.scene.actor.user, session.scene.actor.role)
    return found.items(session.transaction.execute(found.text, bound(found.values, context)))
