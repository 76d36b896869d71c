"""What calls on items come to: each is planned to a `Job`, alone or as one operation of a batch.

The payload becomes a tree of drafts (cms/query/drafts.py), whose passwords are hashed by then. A single statement does
what speaks of no related item (cms/store/direct.py); anything else is settled (cms/store/settling.py) and written batch
by batch (cms/store/nested.py), always through the functions of cms/store/rows.py, and read back as the caller may read
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cms.access.guard import view_of, writable
from cms.access.licence import Terms
from cms.access.structure import speaks_of
from cms.errors import Problem, Refused, invalid_payload, not_found, shown, together
from cms.query import locks
from cms.query.ast import KEY, Name, Pick, Query, Said, Slot, Test
from cms.query.drafts import Batch, Drafter, Expects, Faults, Place
from cms.query.parse import PARAMETERS, Page, parse
from cms.query.readers import reader_of
from cms.schema.model import Collection
from cms.schema.payload import Reader, invalid
from cms.store import direct
from cms.store.border import Clash
from cms.store.clashes import clashes_told
from cms.store.database import Transaction
from cms.store.direct import Short
from cms.store.inquiry import PayloadInquiry
from cms.store.judging import Judge
from cms.store.nested import write_tree
from cms.store.nesting import Asked
from cms.store.reads import Item, parse_key, statement_for
from cms.store.removal import delete_rows
from cms.store.rows import Session, lock_rows
from cms.store.store import Caller, Job, Scene, Store
from cms.store.within import fetch_within, find

_EVERY_ROW = Page(default=None)

_ACTIONS = {
    Expects.ABSENT: ("create",),
    Expects.PRESENT: ("update",),
    Expects.EITHER: ("create", "update"),
}

Written = list[Item] | None
"""Items as their caller may read them; None when it may not."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a call is out to do, whether it may do it to a singleton, and what the history calls it."""

    actions: tuple[str, ...]
    singletons: bool = False
    act: str | None = None


CREATE, CHANGE, DELETE = Aim(("create",)), Aim(("update",)), Aim(("delete",))
PUT = Aim(("create", "update"), singletons=True)
RESTORE = Aim(("update",), singletons=True, act="revert")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, under the structure and rights that it was planned under."""

    store: Store
    scene: Scene
    caller: Caller
    collection: Collection
    said: Said
    judge: Judge
    act: str | None = None

    @property
    def short(self) -> Short:
        return Short(self.store, self.scene, self.caller, self.said)

    def session(self, transaction: Transaction) -> Session:
        self.judge.look_up_within(transaction.execute)
        return Session(self.store, transaction, self.scene, self.caller, self.judge, self.act)

    def drafter(self) -> Drafter:
        snapshot, licence = self.scene.snapshot, self.judge.licence

        def reader(collection: Collection, expects: Expects) -> Reader:
            def make() -> Reader:
                names = licence.names(collection, _ACTIONS[expects])
                return reader_of(snapshot.catalogue, collection, names, knows=partial(speaks_of, licence.policy))

            found: Reader = snapshot.kept.setdefault_with(("reader", collection.name, expects, licence.policy), make)
            return found

        return Drafter(snapshot.catalogue, depth=self.store.depth, readers=reader)

    def completed(self, drafter: Drafter, root: Batch) -> None:
        """Complete the rows of a root; refuse at once when nothing else is to be looked at."""
        self.judge.complete(root, drafter.faults)
        if root.flat:
            scene = self.scene
            drafter.faults.refuse(PayloadInquiry(scene.snapshot.catalogue, root, permitted=scene.actor.policy.admin))


def call_on(store: Store, scene: Scene, caller: Caller, ask: tuple[str, Said], aim: Aim) -> Call:
    """Return a call on a collection.

    Raises `Refused` for what the caller may not even try: a singleton has no items to create or to name by key.
    """
    name, said = ask
    collection = writable(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy, actions=aim.actions)
    if collection.singleton and not aim.singletons:
        raise not_found()
    return Call(store, scene, caller, collection, said, Judge(store, scene, scene.fetch), aim.act)


def plan_new(call: Call, items: Sequence[object]) -> Job[Written]:
    """Create items."""
    drafter = call.drafter()
    root = drafter.root(call.collection, items, Expects.ABSENT)
    call.completed(drafter, root)
    at_once = root.flat and direct.inserted(call.short, root)
    return Job(writing(call, drafter, root), _telling(call, root, at_once or None))


def plan_change(call: Call, key: str, item: object) -> Job[Written]:
    """Change the item of a key."""
    drafter = call.drafter()
    root = changed(call, drafter, drafter.root(call.collection, [item], Expects.PRESENT), [key])
    terms = None if call.act else _terms_of_change(call, root)
    at_once = direct.changed(call.short, root, terms) if terms else None
    return Job(writing(call, drafter, root), _telling(call, root, at_once))


def plan_each(call: Call, items: list[object]) -> Job[Written]:
    """Change the items of an array, which hold their keys."""
    drafter = call.drafter()
    root = drafter.root(call.collection, items, Expects.PRESENT)
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
    return Job(writing(call, drafter, root))


def plan_named(call: Call, payload: Mapping[str, object]) -> Job[Written]:
    """Give the items that `keys` or `query` name what `data` says."""
    drafter = call.drafter()
    root = drafter.root(call.collection, [payload["data"]], Expects.PRESENT)

    def within(transaction: Transaction) -> Written:
        session = call.session(transaction)
        keys = named(session, call.collection, payload)
        return _written(session, call, drafter, changed(call, drafter, root, keys))

    return Job(within)


def plan_singleton(call: Call, item: object) -> Job[Written]:
    """Change the one item of a singleton, or make it."""
    drafter = call.drafter()
    root = drafter.root(call.collection, [item], Expects.EITHER)

    def within(transaction: Transaction) -> Written:
        session = call.session(transaction)
        transaction.run(locks.lock_of(call.collection))
        present = transaction.run(locks.first(call.collection))
        for draft in root.drafts if present else ():
            draft.new, draft.key = False, str(present[0][0])
            if draft.values.pop(root.key_field, None) not in (None, draft.key):
                drafter.faults.add(_unchangeable(call.collection), draft.place)
        call.completed(drafter, root)
        return _written(session, call, drafter, root)

    return Job(within)


def plan_removal(call: Call, key: str) -> Job[object]:
    """Delete the item of a key."""
    terms = call.judge.licence.terms(call.collection, "delete")
    at_once = direct.deleted(call.short, call.collection, key, terms) if terms else None
    return Job(lambda transaction: _delete(call.session(transaction), call.collection, [key]), at_once)


def plan_removals(call: Call, payload: Mapping[str, object]) -> Job[object]:
    """Delete the items that `keys` or `query` name."""

    def within(transaction: Transaction) -> object:
        session = call.session(transaction)
        return _delete(session, call.collection, named(session, call.collection, payload))

    return Job(within)


def _telling(call: Call, root: Batch, at_once: Callable[[], Written] | None) -> Callable[[], Written] | None:
    """Let a statement that is all of a call tell which row the database refuses."""

    def run() -> Written:
        assert at_once
        try:
            with clashes_told(root.collection, root.drafts):
                return at_once()
        except Clash as clash:
            # Values meet their columns only in rows that the caller may write.
            clash.inquiry = PayloadInquiry(call.scene.snapshot.catalogue, root, permitted=True)
            raise

    return at_once and run


# Changes


def _terms_of_change(call: Call, root: Batch) -> Terms | None:
    """Return the rules of a change that one statement can mind; None where it has to look at what is there first.

    So it is where something is wrong with the change: whether its row is there comes before that.
    """
    if not root.flat or call.judge.minds(call.collection):
        return None
    terms, faults = call.judge.licence.terms(call.collection, "update"), Faults()
    try:
        if terms:
            call.judge.permit_unseen(root, faults)
    except Refused:
        return None
    return replace(terms, after=root.drafts[0].rule) if terms and not faults.found else None


def _delete(session: Session, collection: Collection, keys: Sequence[str]) -> object:
    session.judge.permit_removal(collection, keys, session.transaction.execute)
    gone = delete_rows(session, collection, keys)
    session.judge.check_left(collection, session.transaction.execute)
    return gone


def changed(call: Call, drafter: Drafter, root: Batch, keys: Sequence[str]) -> Batch:
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


# Keys


def named(session: Session, collection: Collection, payload: Mapping[str, object]) -> list[str]:
    """Return the keys of the items that a batch names: by `keys` or by `query`, and never by both."""
    if len({"keys", "query"} & payload.keys()) != 1:
        raise invalid_payload("It takes either keys or query", field="keys")
    if "keys" in payload:
        return _keys(collection, payload["keys"])
    return _keys_by_query(session, collection, payload["query"])


def _keys(collection: Collection, given: object) -> list[str]:
    """Return the keys of a batch, each once."""
    if not isinstance(given, list) or any(isinstance(key, dict | list) or key is None for key in given):
        raise invalid_payload("keys must be an array of primary keys", field="keys", value=shown(given))
    return list(dict.fromkeys(parse_key(collection, key) for key in given))


def _keys_by_query(session: Session, collection: Collection, params: object) -> list[str]:
    """Return the keys of the items that a query finds; no default limit applies to it.

    It is asked again once the items are held: of those that somebody else has changed or taken away meanwhile it
    speaks no longer.
    """
    if not isinstance(params, Mapping):
        raise invalid_payload("query must be an object", field="query", value=shown(params))
    unknown = [name for name in params if name not in PARAMETERS]
    if unknown:  # a misspelt filter would otherwise change every row
        known = f"there are {', '.join(sorted(PARAMETERS))}"
        reasons = (f'query does not take "{name}"; {known}' for name in unknown)
        raise together(problem for reason in reasons for problem in invalid_payload(reason, field="query").problems)
    said = parse(params, _EVERY_ROW)
    query = replace(said.query, picks=(_key_pick(collection),), aggregates=(), groups=(), counts=())

    def found() -> list[str]:
        return [str(item[KEY]) for item in _find(session, collection, query, said.literals)]

    keys = found()
    lock_rows(session, collection, keys)
    held = set(found())
    return [key for key in keys if key in held]


def _key_pick(collection: Collection) -> Pick:
    return Pick(KEY, Name(str(collection.primary_key)))


# Rows out


def writing(call: Call, drafter: Drafter, root: Batch) -> Callable[[Transaction], Written]:
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
    only = Test("_in", (Slot(len(said.literals)),))
    query = Query(picks=picks, deep=said.query.deep, unshown=said.query.unshown, only=only)
    found = statement_for(session.store, session.scene, name, query)
    asked = Asked(found, (*said.literals, tuple(keys)), top=len(keys))
    items = found.items(fetch_within(session.store, session.transaction, session.scene, asked))
    by_key = {str(item.pop(KEY)): item for item in items}
    if len(by_key) < len(keys) and policy.admin:  # a trigger of the table may have moved or removed them
        raise not_found()
    return [by_key[key] for key in keys if key in by_key] or None


def _find(session: Session, collection: Collection, query: Query, literals: tuple[object, ...]) -> list[Item]:
    return find(session.store, session.transaction, session.scene, collection.name, query, literals=literals)
