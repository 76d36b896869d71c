"""Reads made ready to run: parse, guard, plan and print, each shape of a query once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast

from cms.access.guard import QueryBounds, guard, readable_collection
from cms.access.recorded_lookups import RecordingCatalogue
from cms.errors import STATUS, Refused, invalid_query
from cms.items.read.cursors import CursorSeal, open_cursor, seal_of
from cms.query.language.ast import (
    ONE_ROW,
    And,
    AtField,
    OperatorTest,
    ParsedQuery,
    Query,
    RowOutput,
    Slot,
    Window,
    has_search,
)
from cms.query.language.limits import LimitExceeded
from cms.query.language.paging import PageSizes, wrong_token
from cms.query.language.parse import UnreadableParameters, parse
from cms.query.language.query_parts import refusal_of_all
from cms.query.language.query_strings import nested_params, shape_of
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.plan import plan
from cms.query.sql.statement import Statement, finish_statement
from cms.schema.names import FieldName
from cms.store.context import RequestContext
from cms.store.snapshot import CachedStatement, PreparedRead
from cms.store.store import Store

MAX_CACHED_SHAPE = 4_000
"""Characters of the longest shape of a query string that is kept: 2,000 of them take 8 MB."""

_CURSOR = re.compile(r"page(?:\[|%5[Bb])after")
"""A page behind another: nearly every one has a token of its own, which makes no shape."""


class RowTest(NamedTuple):
    """A test of the service's own: an operator on a field."""

    field: str
    operator: str
    value: str


class ReadRequest(NamedTuple):
    """A read as it came: the raw query string, or the parameters of a SEARCH body.

    `only` are tests that rows must pass besides those of the query.
    """

    collection: str
    query_string: str = ""
    params: Mapping[str, object] | None = None
    only: tuple[RowTest, ...] = ()


def prepare_read(
    store: Store,
    context: RequestContext,
    request: ReadRequest,
    *,
    keyed: bool = False,
    for_answer: bool = False,
    nested_page: PageSizes | None = None,
) -> PreparedRead:
    """Return the statement and the literals of a read.

    A query string that differs from an earlier one in operands only is not even parsed. A `keyed`
    read, of one item, comes with the item's version. A read `for_answer` is a whole answer: it
    comes with the version of a singleton, and with the cursor of a list.
    `nested_page` is the page of the lists in the items, when it is not the usual one: the lists of
    a single item come whole.
    """
    preparation = _Preparation(store, context, request, keyed, for_answer, nested_page)
    # Bodies of SEARCH and reads with tests of their own are rare: only their statements are cached.
    if request.params is not None or request.only or _CURSOR.search(request.query_string):
        return preparation.run_or_refuse_all()
    shape = shape_of(request.query_string)
    # Everything that the statement depends on, besides the snapshot. Add each new dependency here,
    # or a request would get the statement of another one.
    key = (
        request.collection,
        shape.text,
        keyed,
        for_answer,
        nested_page,
        context.actor.policy.name,
    )
    # The library's types forget that there may be none.
    cached = cast("CachedStatement | None", context.snapshot.prepared_reads.get(key))
    if cached is not None:
        store.database.metrics.count_plan_cache_hit()
        return cached.statement, shape.fill_gaps(cached.literals)
    if len(shape.text) > MAX_CACHED_SHAPE:
        return preparation.run_or_refuse_all()
    preparation.require_readable()
    try:
        cached = preparation.run(shape.params())
    except Refused:
        # The shape lacks the operands: the problems are those of the query string as sent.
        return preparation.run_or_refuse_all()
    context.snapshot.prepared_reads[key] = cached
    return cached.statement, shape.fill_gaps(cached.literals)


class _Preparation(NamedTuple):
    """Makes the statement of one read from its parameters."""

    store: Store
    context: RequestContext
    request: ReadRequest
    keyed: bool
    for_answer: bool
    nested_page: PageSizes | None

    @property
    def page_of_lists(self) -> PageSizes | None:
        """The page of the lists in the items: those of a single item come whole."""
        if self.nested_page is None and (
            self.keyed or is_singleton(self.context, self.request.collection)
        ):
            return self.store.page.of_one_item
        return self.nested_page

    def run(self, params: Mapping[str, object]) -> CachedStatement:
        """Return the statement and literals to keep; raises `Refused` with the first problem."""
        parsed = self._parse(params)
        cursor = parsed.query.cursor
        if cursor is not None and cursor.start is not None:
            # A cached statement is for every caller of the policy; an opened cursor is for one
            # caller only.
            raise wrong_token()
        return self._statement(parsed)._replace(literals=parsed.literals)

    def require_readable(self) -> None:
        """Refuse a collection that the caller may not read, before its query costs any work."""
        readable_collection(
            self.request.collection,
            catalogue=self.context.snapshot.catalogue,
            policy=self.context.actor.policy,
        )

    def run_or_refuse_all(self) -> PreparedRead:
        """Return the statement and literals; raises `Refused` with every problem of the query."""
        self.require_readable()
        try:
            parsed = self._parse(_params_of(self.request))
        except UnreadableParameters as unreadable:
            # The valid parameters mean nothing without the invalid ones, so no more problems can be
            # found.
            if unreadable.rest is None:
                raise
            raise self._refusal_of_all(unreadable.rest, first=unreadable) from None
        try:
            return self._statement(parsed).statement, parsed.literals
        except Refused as refused:
            raise self._refusal_of_all(parsed, first=refused) from None

    def _parse(self, params: Mapping[str, object]) -> ParsedQuery:
        context = self.context
        collection = self.request.collection
        parsed = narrowed(self._parse_list(params), self.request.only)
        query = parsed.query
        # Exports and reads for further work show the items alone.
        if query.highlights and not (self.keyed or self.for_answer):
            query = replace(query, highlights=False)
        if self.keyed:
            # The key is one literal more, after those of the query.
            query = narrow_to_key(query, Slot(len(parsed.literals)))
            query = _for_answer(query, context, collection)
        elif is_singleton(context, collection):
            # A singleton is one item, whatever page the query asks for.
            query = replace(query, window=ONE_ROW)
            # Aggregates and groups are not rows, and so have no version.
            if self.for_answer and not (query.aggregates or query.groups):
                query = _for_answer(query, context, collection)
        return ParsedQuery(query, parsed.literals)

    def _parse_list(self, params: Mapping[str, object]) -> ParsedQuery:
        """Parse the parameters; where a list is the answer, a cursor among them is opened."""
        is_one = self.keyed or is_singleton(self.context, self.request.collection)
        parsed = parse(
            params,
            self.store.page,
            nested_page=self.page_of_lists,
            takes_cursor=self.for_answer and not is_one,
        )
        if parsed.query.cursor is None or parsed.query.cursor.token is None:
            return parsed
        return open_cursor(parsed, cursor_seal(self.store, self.context, self.request, params))

    def _statement(self, parsed: ParsedQuery) -> CachedStatement:
        page = (self.page_of_lists or self.store.page).default_window
        return _cached_statement(
            self.store, self.context, self.request.collection, parsed.query, page
        )

    def _refusal_of_all(self, parsed: ParsedQuery, *, first: Refused) -> Refused:
        """Return a refusal with the other problems of the query and of its literals."""
        # A refusal of rights stays alone: more problems would reveal which names exist.
        if first.status != STATUS["INVALID_QUERY"]:
            return first
        # A query that asks for too much is not looked at any further.
        if isinstance(first, LimitExceeded):
            return first
        # A keyed read has one literal more: its key, which is checked elsewhere.
        bindings = self.context.bindings((*parsed.literals, None))
        bounds = QueryBounds(self.store.depth, self.store.page.default_window)
        attempt = partial(self._attempt, bindings, bounds)
        return refusal_of_all(parsed.query, attempt, first=first)

    def _attempt(self, bindings: Bindings, bounds: QueryBounds, part: Query) -> None:
        """Plan a part of the query; raises `Refused` with the first problem of the part."""
        # `statement_for` would keep the statement, but no other request asks for a part alone.
        planned = _planned(self.context, self.request.collection, part, bounds)
        bind_values(planned.statement.values, bindings)


def _params_of(request: ReadRequest) -> Mapping[str, object]:
    if request.params is not None:
        return request.params
    return nested_params(request.query_string)


def cursor_seal(
    store: Store,
    context: RequestContext,
    request: ReadRequest,
    params: Mapping[str, object] | None = None,
) -> CursorSeal:
    """Return the seal of the cursors of a read; `params` are its parameters, where known."""
    if params is None:
        params = _params_of(request)
    return seal_of(store.cursor_secret, context, request.collection, params, request.only)


def statement_for(
    store: Store,
    context: RequestContext,
    collection: str,
    query: Query,
    *,
    of_one_item: bool = False,
) -> Statement:
    """Return the statement of a query's shape, planned once until its collections change."""
    sizes = store.page.of_one_item if of_one_item else store.page
    page = sizes.default_window
    return _cached_statement(store, context, collection, query, page).statement


def _cached_statement(
    store: Store, context: RequestContext, collection: str, query: Query, page: Window | None
) -> CachedStatement:
    statements = context.snapshot.statements
    policy = context.actor.policy
    # The guard puts the rules of the policy into the statement, so the policy is part of its key.
    cache_key = (collection, query, policy.name, page)
    cached = cast("CachedStatement | None", statements.get(cache_key))
    if cached is not None:
        store.database.metrics.count_plan_cache_hit()
        return cached
    store.database.metrics.count_plan_cache_miss()
    bounds = QueryBounds(store.depth, page)
    cached = statements[cache_key] = _planned(context, collection, query, bounds)
    return cached


def _planned(
    context: RequestContext, collection: str, query: Query, bounds: QueryBounds
) -> CachedStatement:
    """Return the statement of a query, guarded, planned and printed."""
    policy = context.actor.policy
    catalogue = RecordingCatalogue(context.snapshot.catalogue)
    guarded = guard(query, collection, catalogue=catalogue, policy=policy, bounds=bounds)
    statement = finish_statement(
        plan(guarded),
        guarded.touched_collections,
        is_search=has_search(query),
        single=_is_of_one_item(query, context, collection),
        of_singleton=is_singleton(context, collection),
    )
    return CachedStatement(statement, catalogue.names)


def _is_of_one_item(query: Query, context: RequestContext, collection: str) -> bool:
    # Other tests of the key are for several keys (`_in`).
    if query.key_test is not None:
        return query.key_test.operator == "_eq"
    return is_singleton(context, collection)


def narrow_to_key(query: Query, slot: Slot) -> Query:
    """Return the query narrowed to the item whose key stands in the slot."""
    if query.aggregates or query.groups:
        raise invalid_query("Aggregates are of lists, not of one item", parameter="aggregate")
    # A key has one row at most, which needs neither a page nor an order.
    return replace(query, key_test=OperatorTest("_eq", (slot,)), window=None, sort=())


def is_singleton(context: RequestContext, name: str) -> bool:
    """Tell whether a name is that of a singleton; an unknown name is none."""
    collection = context.snapshot.catalogue.collections.get(name)
    return collection is not None and collection.is_singleton


def _for_answer(query: Query, context: RequestContext, name: str) -> Query:
    """Return the query with the version of the row, if rows of the collection have one."""
    if not context.snapshot.catalogue.collections[name].has_versions:
        return query
    return replace(query, row_outputs=(RowOutput.VERSION,))


def narrowed(parsed: ParsedQuery, tests: Sequence[RowTest]) -> ParsedQuery:
    """Return a query of those rows only that pass the tests."""
    if not tests:
        return parsed
    # The slots of the tests come after those of the query, whose numbers stay.
    literals = list(parsed.literals)
    filters = []
    for test in tests:
        operand = Slot(len(literals))
        filters.append(AtField(FieldName(test.field), OperatorTest(test.operator, (operand,))))
        literals.append(test.value)
    # These tests are no part of the query's own filter: `total_count` counts all rows that pass
    # them.
    query = replace(parsed.query, base_filter=And(tuple(filters)))
    return ParsedQuery(query, tuple(literals))
