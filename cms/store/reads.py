"""Reads of items: parse, guard, plan and print once; then one statement a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cms.access.guard import guard, readable, view_of
from cms.errors import STATUS, Problem, Refused, invalid_query, not_found
from cms.query.ast import ONE_ROW, VERSION, And, At, Name, Pick, Query, Said, Slot, Test
from cms.query.bind import Context, bound
from cms.query.brackets import nested
from cms.query.parse import Page, Unread, parse
from cms.query.parts import refusal_of_all
from cms.query.plan import plan
from cms.query.shapes import shape_of
from cms.query.statement import Statement, finish
from cms.schema.defaults import default_of, is_computed
from cms.schema.model import Collection, Field, Kind
from cms.schema.payload import converter
from cms.schema.types import MASK
from cms.store.answers import body_of
from cms.store.counters import check_version, version_of
from cms.store.nesting import Asked, may_be_much, parameters, planner_of, portions_of
from cms.store.snapshot import Plan
from cms.store.store import ANONYMOUS, Identity, Scene, Store

USERS = "system_users"

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A read as it came: the raw query string, or the parameters of a SEARCH body.

    `only` are tests of fields that rows must pass, whatever else is asked: a field, an operator and a value.
    """

    collection: str
    query_string: str = ""
    params: Mapping[str, object] | None = None
    only: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer, and the version of the row that it shows: None for lists, and for rows of views."""

    body: bytes
    version: str | None = None


NO_ROW = "no row"
"""The version of a singleton that has no row yet."""


def read_list(store: Store, identity: Identity, ask: Ask) -> Answer:
    """Return the answer of a list read, or of a singleton's one object (decisions, sections 1 and 5)."""

    def work(scene: Scene) -> Answer:
        found, literals = prepared(store, scene, ask, versioned=True)
        rows = _fetch(store, scene, found, literals)
        meta = {"meta": found.meta(rows)} if found.counts else {}
        data, version = shown(scene, ask.collection, found, rows), None
        if isinstance(data, dict) and VERSION in data:
            version = data.pop(VERSION) or NO_ROW
        return Answer(body_of({"data": data, **meta}, store.max_answer_size), version)

    return store.reading(identity, work)


def shown(scene: Scene, name: str, found: Statement, rows: list[Any]) -> object:
    """Return what a list read tells of a collection: its items, or the one object of a singleton."""
    items = found.items(rows)
    if _is_singleton(scene, name) and not found.grouped:
        return items[0] if items else defaults(found)
    return items


def read_one(store: Store, identity: Identity, ask: Ask, *, key: str) -> Answer:
    """Return the answer of the read of one item; NOT_FOUND when there is none for this caller."""

    def work(scene: Scene) -> Answer:
        return _answer(store, _rows(store, scene, ask, key))

    return store.reading(identity, work)


def row_of(store: Store, scene: Scene, ask: Ask, *, key: str) -> Item:
    """Return one item, for work that is done with it; NOT_FOUND when there is none for this caller."""
    items = _rows(store, scene, ask, key)
    if not items:
        raise not_found()
    items[0].pop(VERSION, None)
    return items[0]


def _rows(store: Store, scene: Scene, ask: Ask, key: str) -> list[Item]:
    parsed_key = parse_key(keyed(scene, ask.collection), key)
    found, literals = prepared(store, scene, ask, keyed=True)
    return found.items(_fetch(store, scene, found, (*literals, parsed_key)))


def _answer(store: Store, items: list[Item]) -> Answer:
    if not items:
        raise not_found()
    version = items[0].pop(VERSION, None)
    return Answer(body_of({"data": items[0]}, store.max_answer_size), version)


def read_me(store: Store, identity: Identity, query_string: str) -> Answer:
    """Return the answer of GET /users/me; INVALID_CREDENTIALS without credentials.

    Also a user may read it who still has to set up a second factor. Who may not read users, or not this one, is told
    the own id, whatever is asked for.
    """
    require_user(identity)
    identity = replace(identity, enrolling=True)

    def work(scene: Scene) -> Answer:
        if view_of(USERS, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy) is None:
            check_version(scene.snapshot, version_of(scene.fetch))
            return _answer(store, [_own_id(scene)])
        return _answer(store, _me(store, scene, query_string) or _me_at_all(store, scene, query_string))

    return store.reading(identity, work)


def _me(store: Store, scene: Scene, query_string: str) -> list[Item]:
    found, literals = prepared(store, scene, Ask(USERS, query_string), keyed=True)
    return found.items(_fetch(store, scene, found, (*literals, scene.actor.user)))


def _me_at_all(store: Store, scene: Scene, query_string: str) -> list[Item]:
    """Return the own id where a rule hides the user, and nothing where only the filter of the request does."""
    if query_string and _me(store, scene, ""):
        return []
    return [_own_id(scene)]


def _own_id(scene: Scene) -> Item:
    return {"id": scene.actor.user}


def require_user(identity: Identity) -> None:
    """Raise `Refused` INVALID_CREDENTIALS for a caller without credentials."""
    if identity == ANONYMOUS:
        raise Refused(Problem("INVALID_CREDENTIALS", "Credentials are needed."))


def keyed(scene: Scene, name: str) -> Collection:
    """Return a readable collection whose items are reached by key; a singleton's are not."""
    collection = readable(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
    if collection.singleton or collection.primary_key is None:
        raise not_found()
    return collection


def parse_key(collection: Collection, key: object) -> str:
    """Return a key as its type writes it; one that its type cannot hold belongs to no item."""
    assert collection.primary_key
    try:
        field = collection.key
        return (converter(field) if field.is_text_form else field.type.parse)(key)
    except ValueError:
        raise not_found() from None


def statement_for(store: Store, scene: Scene, collection: str, query: Query, *, below: Page | None = None) -> Statement:
    """Return the finished statement of a query's shape, planned at most once for a snapshot and a policy."""
    catalogue, policy = scene.snapshot.catalogue, scene.actor.policy
    page = (below or store.page).usual

    def make() -> Statement:
        guarded = guard(query, collection, catalogue=catalogue, policy=policy, depth=store.depth, page=page)
        single = query.only is not None and query.only.operator == "_eq"
        return finish(plan(guarded, catalogue), guarded.touched, searches=query.search is not None, single=single)

    return scene.snapshot.plans.setdefault_with((collection, query, policy, page), make)


def defaults(asked: Statement) -> Item:
    """Return a singleton that has no row yet: of what was asked for, the columns' defaults, else null."""
    return {path[0]: _default(field) for path, field in zip(asked.paths, asked.fields, strict=True)}


def _default(field: Field | None) -> object:
    """A default that only the database can compute is not there before the row is."""
    if field is None or field.column is None:
        return None
    found = None if is_computed(field.column) else default_of(field, field.column)
    return MASK if field.secret and found is not None else found


def by_key(query: Query, slot: Slot) -> Query:
    """Return the query narrowed to the item whose key stands in the slot."""
    if query.aggregates or query.groups:
        raise invalid_query("Aggregates are of lists, not of one item", parameter="aggregate")
    return replace(query, only=Test("_eq", (slot,)), window=None, sort=())


def _with_version(query: Query, scene: Scene, name: str) -> Query:
    collection = scene.snapshot.catalogue.collections[name]
    if collection.kind is not Kind.TABLE or collection.primary_key is None:
        return query
    return replace(query, picks=(*query.picks, Pick(VERSION, Name(str(collection.primary_key)))))


def prepared(
    store: Store,
    scene: Scene,
    ask: Ask,
    *,
    keyed: bool = False,
    versioned: bool = False,
    below: Page | None = None,
) -> Plan:
    """Return the statement and literals of an ask; a query string that differs in operands only is not even parsed.

    One item by its key comes with its version, and so does a singleton's where it is asked for. `below` is the page of
    the lists in the items, when it is not the store's.
    """

    def asked(params: Mapping[str, object]) -> Said:
        said = _narrowed(parse(params, store.page, below=below), ask.only)
        query = said.query
        if keyed:
            query = _with_version(by_key(query, Slot(len(said.literals))), scene, ask.collection)
        elif _is_singleton(scene, ask.collection):
            query = replace(query, window=ONE_ROW)  # it is one item, whatever page was asked for
            if versioned and not (query.aggregates or query.groups):
                query = _with_version(query, scene, ask.collection)
        return Said(query, said.literals)

    def make(params: Mapping[str, object]) -> Plan:
        said = asked(params)
        return statement_for(store, scene, ask.collection, said.query, below=below), said.literals

    def made(params: Mapping[str, object]) -> Plan:
        try:
            said = asked(params)
        except Unread as unread:
            if unread.rest is None:
                raise
            raise _refusal_of_all(store, scene, ask.collection, unread.rest, first=unread) from None
        try:
            return statement_for(store, scene, ask.collection, said.query, below=below), said.literals
        except Refused as refused:
            raise _refusal_of_all(store, scene, ask.collection, said, first=refused) from None

    if ask.params is not None:
        return made(ask.params)
    if ask.only:
        return made(nested(ask.query_string))
    shape = shape_of(ask.query_string)
    key = (ask.collection, shape.text, keyed, versioned, below, scene.actor.policy)
    try:
        found, literals = scene.snapshot.said.setdefault_with(key, lambda: make(shape.params()))
    except Refused:
        return made(nested(ask.query_string))  # to refuse what was said, not what is left of it
    return found, shape.filled(literals)


def _refusal_of_all(store: Store, scene: Scene, collection: str, said: Said, *, first: Refused) -> Refused:
    """Return the refusal with what else is wrong with the query and its literals."""
    catalogue, policy = scene.snapshot.catalogue, scene.actor.policy
    context = Context((*said.literals, None), scene.actor.user, scene.actor.role)

    def attempt(part: Query) -> None:
        guarded = guard(part, collection, catalogue=catalogue, policy=policy, depth=store.depth, page=store.page.usual)
        bound(finish(plan(guarded, catalogue), guarded.touched).values, context)

    return first if first.status != STATUS["INVALID_QUERY"] else refusal_of_all(said.query, attempt, first=first)


def _narrowed(said: Said, only: Sequence[tuple[str, str, str]]) -> Said:
    """Let a query speak only of rows that pass these tests."""
    if not only:
        return said
    tests = tuple(
        At(Name(name), Test(operator, (Slot(len(said.literals) + n),))) for n, (name, operator, _) in enumerate(only)
    )
    query = replace(said.query, within=And(tests))
    return Said(query, (*said.literals, *(value for _, _, value in only)))


def _fetch(store: Store, scene: Scene, found: Statement, literals: tuple[object, ...]) -> list[Any]:
    fetch = store.database.fetch_anew if found.searches else store.database.fetch
    if may_be_much(store, found):
        asked = Asked(found, literals)
        values = parameters(store, scene, asked, planner_of(store))
        rows = fetch(found.text, values, portions=portions_of(store, asked, store.max_answer_size))
    else:
        rows = fetch(found.text, bound(found.values, Context(literals, scene.actor.user, scene.actor.role)))
    check_version(scene.snapshot, found.version(rows))
    return rows


def _is_singleton(scene: Scene, name: str) -> bool:
    found = scene.snapshot.catalogue.collections.get(name)
    return found is not None and found.singleton
