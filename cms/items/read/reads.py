"""Reads of items: parse, guard, plan and print once; then one statement a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cms.access.guard import guard, readable_collection, view_of
from cms.errors import STATUS, Problem, Refused, invalid_query, not_found
from cms.items.read.answers import json_body
from cms.items.read.row_limits import (
    ReadRun,
    checked_parameters,
    chunking_for,
    estimator_of,
    may_be_large,
)
from cms.query.language.ast import (
    INTERNAL_VERSION,
    ONE_ROW,
    And,
    AtField,
    FieldName,
    OperatorTest,
    ParsedQuery,
    Pick,
    Query,
    Slot,
)
from cms.query.language.brackets import nested_params
from cms.query.language.parse import PageSizes, UnreadableParameters, parse
from cms.query.language.parts import refusal_of_all
from cms.query.language.shapes import shape_of
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.plan import plan
from cms.query.sql.statement import Statement, finish_statement
from cms.schema.defaults import default_of, is_computed
from cms.schema.model import Collection, Field, Kind
from cms.schema.payload import converter
from cms.schema.types import MASK
from cms.store.context import RequestContext
from cms.store.counters import check_version, current_version
from cms.store.identity import ANONYMOUS, Identity
from cms.store.snapshot import PreparedRead
from cms.store.store import Store

USERS = "system_users"

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadRequest:
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


NO_ROW_VERSION = "no row"
"""The version of a singleton that has no row yet."""


def read_list(store: Store, identity: Identity, request: ReadRequest) -> Answer:
    """Return the answer of a list read, or of a singleton's one object (decisions, sections 1 and 5)."""

    def work(context: RequestContext) -> Answer:
        found, literals = prepare_read(store, context, request, with_version=True)
        rows = _fetch(store, context, found, literals)
        meta = {"meta": found.meta(rows)} if found.counts else {}
        data, version = data_of(context, request.collection, found, rows), None
        if isinstance(data, dict) and INTERNAL_VERSION in data:
            version = data.pop(INTERNAL_VERSION) or NO_ROW_VERSION
        return Answer(json_body({"data": data, **meta}, store.max_answer_size), version)

    return store.run_read(identity, work)


def data_of(context: RequestContext, name: str, found: Statement, rows: list[Any]) -> object:
    """Return what a list read tells of a collection: its items, or the one object of a singleton."""
    items = found.items(rows)
    if _is_singleton(context, name) and not found.is_grouped:
        return items[0] if items else defaults(found)
    return items


def read_one(store: Store, identity: Identity, request: ReadRequest, *, key: str) -> Answer:
    """Return the answer of the read of one item; NOT_FOUND when there is none for this caller."""

    def work(context: RequestContext) -> Answer:
        return _answer(store, _rows(store, context, request, key))

    return store.run_read(identity, work)


def fetch_item(store: Store, context: RequestContext, request: ReadRequest, *, key: str) -> Item:
    """Return one item, for work that is done with it; NOT_FOUND when there is none for this caller."""
    items = _rows(store, context, request, key)
    if not items:
        raise not_found()
    items[0].pop(INTERNAL_VERSION, None)
    return items[0]


def _rows(store: Store, context: RequestContext, request: ReadRequest, key: str) -> list[Item]:
    parsed_key = parse_key(keyed(context, request.collection), key)
    found, literals = prepare_read(store, context, request, keyed=True)
    return found.items(_fetch(store, context, found, (*literals, parsed_key)))


def _answer(store: Store, items: list[Item]) -> Answer:
    if not items:
        raise not_found()
    version = items[0].pop(INTERNAL_VERSION, None)
    return Answer(json_body({"data": items[0]}, store.max_answer_size), version)


def read_me(store: Store, identity: Identity, query_string: str) -> Answer:
    """Return the answer of GET /users/me; INVALID_CREDENTIALS without credentials.

    Also a user may read it who still has to set up a second factor. Who may not read users, or not this one, is told
    the own id, whatever is asked for.
    """
    require_user(identity)
    identity = replace(identity, may_enrol=True)

    def work(context: RequestContext) -> Answer:
        if (
            view_of(USERS, catalogue=context.snapshot.catalogue, policy=context.actor.policy)
            is None
        ):
            check_version(context.snapshot, current_version(context.fetch))
            return _answer(store, [_own_id(context)])
        return _answer(
            store,
            _fetch_own_user(store, context, query_string)
            or _own_id_if_hidden(store, context, query_string),
        )

    return store.run_read(identity, work)


def _fetch_own_user(store: Store, context: RequestContext, query_string: str) -> list[Item]:
    found, literals = prepare_read(store, context, ReadRequest(USERS, query_string), keyed=True)
    return found.items(_fetch(store, context, found, (*literals, context.actor.user)))


def _own_id_if_hidden(store: Store, context: RequestContext, query_string: str) -> list[Item]:
    """Return the own id where a rule hides the user, and nothing where only the filter of the request does."""
    if query_string and _fetch_own_user(store, context, ""):
        return []
    return [_own_id(context)]


def _own_id(context: RequestContext) -> Item:
    return {"id": context.actor.user}


def require_user(identity: Identity) -> None:
    """Raise `Refused` INVALID_CREDENTIALS for a caller without credentials."""
    if identity == ANONYMOUS:
        raise Refused(Problem("INVALID_CREDENTIALS", "Credentials are needed."))


def keyed(context: RequestContext, name: str) -> Collection:
    """Return a readable collection whose items are reached by key; a singleton's are not."""
    collection = readable_collection(
        name, catalogue=context.snapshot.catalogue, policy=context.actor.policy
    )
    if collection.is_singleton or collection.primary_key is None:
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


def statement_for(
    store: Store,
    context: RequestContext,
    collection: str,
    query: Query,
    *,
    below: PageSizes | None = None,
) -> Statement:
    """Return the finished statement of a query's shape, planned at most once for a snapshot and a policy."""
    catalogue, policy = context.snapshot.catalogue, context.actor.policy
    page = (below or store.page).default_window

    def make() -> Statement:
        guarded = guard(
            query, collection, catalogue=catalogue, policy=policy, depth=store.depth, page=page
        )
        single = query.key_test is not None and query.key_test.operator == "_eq"
        return finish_statement(
            plan(guarded, catalogue),
            guarded.touched_collections,
            is_search=query.search is not None,
            single=single,
        )

    return context.snapshot.statements.setdefault_with((collection, query, policy, page), make)


def defaults(asked: Statement) -> Item:
    """Return a singleton that has no row yet: of what was asked for, the columns' defaults, else null."""
    return {path[0]: _default(field) for path, field in zip(asked.paths, asked.fields, strict=True)}


def _default(field: Field | None) -> object:
    """A default that only the database can compute is not there before the row is."""
    if field is None or field.column is None:
        return None
    found = None if is_computed(field.column) else default_of(field, field.column)
    return MASK if field.is_secret and found is not None else found


def narrow_to_key(query: Query, slot: Slot) -> Query:
    """Return the query narrowed to the item whose key stands in the slot."""
    if query.aggregates or query.groups:
        raise invalid_query("Aggregates are of lists, not of one item", parameter="aggregate")
    return replace(query, key_test=OperatorTest("_eq", (slot,)), window=None, sort=())


def _with_version(query: Query, context: RequestContext, name: str) -> Query:
    collection = context.snapshot.catalogue.collections[name]
    if collection.kind is not Kind.TABLE or collection.primary_key is None:
        return query
    return replace(
        query, picks=(*query.picks, Pick(INTERNAL_VERSION, FieldName(str(collection.primary_key))))
    )


def prepare_read(
    store: Store,
    context: RequestContext,
    request: ReadRequest,
    *,
    keyed: bool = False,
    with_version: bool = False,
    below: PageSizes | None = None,
) -> PreparedRead:
    """Return the statement and literals of an ask; a query string that differs in operands only is not even parsed.

    One item by its key comes with its version, and so does a singleton's where it is asked for. `below` is the page of
    the lists in the items, when it is not the store's.
    """

    def asked(params: Mapping[str, object]) -> ParsedQuery:
        said = _narrowed(parse(params, store.page, nested_page=below), request.only)
        query = said.query
        if keyed:
            query = _with_version(
                narrow_to_key(query, Slot(len(said.literals))), context, request.collection
            )
        elif _is_singleton(context, request.collection):
            query = replace(query, window=ONE_ROW)  # it is one item, whatever page was asked for
            if with_version and not (query.aggregates or query.groups):
                query = _with_version(query, context, request.collection)
        return ParsedQuery(query, said.literals)

    def make(params: Mapping[str, object]) -> PreparedRead:
        said = asked(params)
        return statement_for(
            store, context, request.collection, said.query, below=below
        ), said.literals

    def made(params: Mapping[str, object]) -> PreparedRead:
        try:
            said = asked(params)
        except UnreadableParameters as unread:
            if unread.rest is None:
                raise
            raise _refusal_with_all_faults(
                store, context, request.collection, unread.rest, first=unread
            ) from None
        try:
            return statement_for(
                store, context, request.collection, said.query, below=below
            ), said.literals
        except Refused as refused:
            raise _refusal_with_all_faults(
                store, context, request.collection, said, first=refused
            ) from None

    if request.params is not None:
        return made(request.params)
    if request.only:
        return made(nested_params(request.query_string))
    shape = shape_of(request.query_string)
    key = (request.collection, shape.text, keyed, with_version, below, context.actor.policy)
    try:
        found, literals = context.snapshot.said.setdefault_with(key, lambda: make(shape.params()))
    except Refused:
        return made(
            nested_params(request.query_string)
        )  # to refuse what was said, not what is left of it
    return found, shape.fill_gaps(literals)


def _refusal_with_all_faults(
    store: Store, context: RequestContext, collection: str, said: ParsedQuery, *, first: Refused
) -> Refused:
    """Return the refusal with what else is wrong with the query and its literals."""
    catalogue, policy = context.snapshot.catalogue, context.actor.policy
    bindings = Bindings((*said.literals, None), context.actor.user, context.actor.role)

    def attempt(part: Query) -> None:
        guarded = guard(
            part,
            collection,
            catalogue=catalogue,
            policy=policy,
            depth=store.depth,
            page=store.page.default_window,
        )
        bind_values(
            finish_statement(plan(guarded, catalogue), guarded.touched_collections).values, bindings
        )

    return (
        first
        if first.status != STATUS["INVALID_QUERY"]
        else refusal_of_all(said.query, attempt, first=first)
    )


def _narrowed(said: ParsedQuery, only: Sequence[tuple[str, str, str]]) -> ParsedQuery:
    """Let a query speak only of rows that pass these tests."""
    if not only:
        return said
    tests = tuple(
        AtField(FieldName(name), OperatorTest(operator, (Slot(len(said.literals) + n),)))
        for n, (name, operator, _) in enumerate(only)
    )
    query = replace(said.query, base_filter=And(tests))
    return ParsedQuery(query, (*said.literals, *(value for _, _, value in only)))


def _fetch(
    store: Store, context: RequestContext, found: Statement, literals: tuple[object, ...]
) -> list[Any]:
    fetch = store.database.fetch_unprepared if found.is_search else store.database.fetch
    if may_be_large(store, found):
        asked = ReadRun(found, literals)
        values = checked_parameters(store, context, asked, estimator_of(store))
        rows = fetch(found.text, values, chunking=chunking_for(store, asked, store.max_answer_size))
    else:
        rows = fetch(
            found.text,
            bind_values(found.values, Bindings(literals, context.actor.user, context.actor.role)),
        )
    check_version(context.snapshot, found.version(rows))
    return rows


def _is_singleton(context: RequestContext, name: str) -> bool:
    found = context.snapshot.catalogue.collections.get(name)
    return found is not None and found.is_singleton
