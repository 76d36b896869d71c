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
from cms.access.guard import view_of, writable
from cms.errors import Problem, invalid_payload, not_found
from cms.query import write
from cms.query.ast import KEY, Name, Pick, Query, Said, Slot, Test
from cms.query.drafts import Batch, Drafter, Expects, Place
from cms.query.parse import PARAMETERS, Page, parse, parse_query_string
from cms.schema.model import Collection
from cms.schema.payload import invalid
from cms.store import direct
from cms.store.database import Transaction
from cms.store.direct import Short
from cms.store.judging import Judge
from cms.store.matching import check_match
from cms.store.nested import write_tree
from cms.store.once import Once
from cms.store.reads import Item, parse_key
from cms.store.rows import Session, delete_rows
from cms.store.store import Caller, Identity, Job, Scene, Store
from cms.store.within import find

_EVERY_ROW = Page(default=None)
_NOTHING_ASKED = Said(Query())

_ACTIONS = {
    Expects.ABSENT: ("create",),
    Expects.PRESENT: ("update",),
    Expects.EITHER: ("create", "update"),
}

Written = list[Item] | None
"""Items as their caller may read them; None when it may not."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Aim:
    """What a call is out to do, and whether it may do it to a singleton."""

    actions: tuple[str, ...]
    singletons: bool = False


_CREATE, _CHANGE, _DELETE = Aim(("create",)), Aim(("update",)), Aim(("delete",))
_PUT = Aim(("create", "update"), singletons=True)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, under the structure and rights that it was planned under."""

    store: Store
    scene: Scene
    caller: Caller
    collection: Collection
    said: Said
    judge: Judge

    @property
    def short(self) -> Short:
        return Short(self.store, self.scene, self.caller, self.said)

    def session(self, transaction: Transaction) -> Session:
        return Session(self.store, transaction, self.scene, self.caller, self.judge)

    def drafter(self) -> Drafter:
        def names(collection: Collection, expects: Expects) -> frozenset[str] | None:
            return self.judge.licence.names(collection, _ACTIONS[expects])

        return Drafter(self.scene.snapshot.catalogue, depth=self.store.depth, names=names)

    def completed(self, drafter: Drafter, root: Batch) -> None:
        """Complete the rows of a root; refuse at once when nothing else is to be looked at."""
        self.judge.complete(root, drafter.faults)
        if root.flat:
            drafter.faults.refuse()


def create(
    store: Store, identity: Identity, ask: tuple[str, str], payload: object, *, once: Once | None = None
) -> bytes | None:
    """Create one item, or several of an array, and answer them as the query string asks."""
    items = payload if isinstance(payload, list) else [payload]

    def plan(call: Call) -> Job[bytes | None]:
        drafter = call.drafter()
        root = drafter.root(call.collection, items, Expects.ABSENT)
        call.completed(drafter, root)
        free = root.flat and all(draft.rule is None for draft in root.drafts)
        at_once = free and direct.inserted(call.short, call.collection, [draft.values for draft in root.drafts])
        return _shown(Job(_writing(call, drafter, root), at_once or None), single=not isinstance(payload, list))

    return _call(store, identity, ask, plan, aim=_CREATE, once=once)


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
        drafter, keys = call.drafter(), [parse_key(call.collection, key)]
        root = _changed(call, drafter, drafter.root(call.collection, [payload], Expects.PRESENT), keys)
        at_once = _free_change(call, drafter, root) and direct.changed(
            call.short, call.collection, keys[0], root.drafts[0].values
        )
        job: Job[Written] = Job(_writing(call, drafter, root), at_once or None)
        return _shown(_matched(call, job, key=keys[0], if_match=if_match), single=True)

    return _call(store, identity, ask, plan, aim=_CHANGE)


def update_many(store: Store, identity: Identity, ask: tuple[str, str], payload: object) -> bytes | None:
    """Change items by an array of objects with their keys, by `keys` and `data`, or by `query` and `data`.

    On a singleton the payload is the object itself, which is made when it is not there.
    """

    def plan(call: Call) -> Job[bytes | None]:
        if call.collection.singleton:
            return _shown(Job(_put_singleton(call, payload)), single=True)
        if isinstance(payload, list):
            return _shown(Job(_change_each(call, payload)), single=False)
        if not isinstance(payload, Mapping) or "data" not in payload:
            raise invalid_payload("The body must be an array of items with their keys, or hold data with keys or query")
        return _shown(Job(_change_named(call, payload)), single=False)

    return _call(store, identity, ask, plan, aim=_PUT)


def delete_one(store: Store, identity: Identity, collection: str, *, key: str, if_match: str | None = None) -> None:
    """Delete one item."""

    def plan(call: Call) -> Job[object]:
        keys = [parse_key(call.collection, key)]
        job: Job[object] = Job(
            lambda transaction: _delete(call.session(transaction), call.collection, keys),
            (
                call.judge.licence.is_free(call.collection, "delete")
                and direct.deleted(call.short, call.collection, keys[0])
            )
            or None,
        )
        return _matched(call, job, key=keys[0], if_match=if_match)

    _call(store, identity, (collection, ""), plan, aim=_DELETE)


def delete_many(store: Store, identity: Identity, collection: str, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""
    given = payload if isinstance(payload, Mapping) else {"keys": payload}

    def plan(call: Call) -> Job[object]:
        def within(transaction: Transaction) -> object:
            session = call.session(transaction)
            return _delete(session, call.collection, _named(session, call.collection, given))

        return Job(within)

    _call(store, identity, (collection, ""), plan, aim=_DELETE)


def _call(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    plan: Callable[[Call], Job[T]],
    *,
    aim: Aim,
    once: Once | None = None,
) -> T:
    """Plan and do a call; a collection that is a singleton has no items to create or to name by key."""
    name, query_string = ask

    def planned(scene: Scene) -> Job[T]:
        collection = writable(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy, actions=aim.actions)
        if collection.singleton and not aim.singletons:
            raise not_found()
        said = parse_query_string(query_string, store.page) if query_string else _NOTHING_ASKED
        return plan(Call(store, scene, identity.caller, collection, said, Judge(store, scene, store.database.fetch)))

    return store.writing(identity, planned, once=once)


def _shown(job: Job[Written], *, single: bool) -> Job[bytes | None]:
    """Return the job with its items as the body of an answer; None is no body at all."""

    def show(found: Written) -> bytes | None:
        return None if found is None else jsontext.dumps({"data": found[0] if single else found})

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


def _free_change(call: Call, drafter: Drafter, root: Batch) -> bool:
    """Tell whether a change depends on nothing that is there: neither related items nor rules."""
    if not root.flat or not call.judge.licence.is_free(call.collection, "update"):
        return False
    call.judge.permit_unseen(root, drafter.faults)
    drafter.faults.refuse()
    return True


def _at_once_deleted(call: Call, key: str) -> Callable[[], object] | None:
    free = call.judge.licence.is_free(call.collection, "delete")
    return direct.deleted(call.short, call.collection, key) if free else None


def _delete(session: Session, collection: Collection, keys: Sequence[str]) -> object:
    session.judge.permit_removal(collection, keys, session.transaction.execute)
    gone = delete_rows(session, collection, keys)
    session.judge.check_left(collection, session.transaction.execute)
    return gone


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


def _change_each(call: Call, payload: list[object]) -> Callable[[Transaction], Written]:
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


def _change_named(call: Call, payload: Mapping[str, object]) -> Callable[[Transaction], Written]:
    """Change the items that `keys` or `query` name."""
    drafter = call.drafter()
    root = drafter.root(call.collection, [payload["data"]], Expects.PRESENT)

    def within(transaction: Transaction) -> Written:
        session = call.session(transaction)
        keys = _named(session, call.collection, payload)
        return _written(session, call, drafter, _changed(call, drafter, root, keys))

    return within


def _put_singleton(call: Call, payload: object) -> Callable[[Transaction], Written]:
    drafter = call.drafter()
    root = drafter.root(call.collection, [payload], Expects.EITHER)

    def within(transaction: Transaction) -> Written:
        transaction.run(write.lock_of(call.collection))
        present = transaction.run(write.first(call.collection))
        for draft in root.drafts if present else ():
            draft.new, draft.key = False, str(present[0][0])
            if draft.values.pop(root.key_field, None) not in (None, draft.key):
                drafter.faults.add(_unchangeable(call.collection), draft.place)
        call.completed(drafter, root)
        return _written(call.session(transaction), call, drafter, root)

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
    return [str(item[KEY]) for item in _find(session, collection, query, said.literals)]


def _key_pick(collection: Collection) -> Pick:
    return Pick(KEY, Name(str(collection.primary_key)))


# Rows out


def _writing(call: Call, drafter: Drafter, root: Batch) -> Callable[[Transaction], Written]:
    return lambda transaction: _written(call.session(transaction), call, drafter, root)


def _written(session: Session, call: Call, drafter: Drafter, root: Batch) -> Written:
    """Write a tree and return its items, in their order, as this caller may read them; None where it may not."""
    keys, said = write_tree(session, drafter, root), call.said
    if not keys:
        return []
    name, policy = root.collection.name, session.scene.actor.policy
    if view_of(name, catalogue=session.scene.snapshot.catalogue, policy=policy) is None:
        return None
    picks = (*said.query.picks, _key_pick(root.collection))
    query = Query(picks=picks, deep=said.query.deep, only=Test("_in", (Slot(len(said.literals)),)))
    items = _find(session, root.collection, query, (*said.literals, tuple(keys)))
    by_key = {str(item.pop(KEY)): item for item in items}
    if len(by_key) < len(keys) and policy.admin:  # a trigger of the table may have moved or removed them
        raise not_found()
    return [by_key[key] for key in keys if key in by_key] or None


def _find(session: Session, collection: Collection, query: Query, literals: tuple[object, ...]) -> list[Item]:
    return find(session.store, session.transaction, session.scene, collection.name, query, literals=literals)
