"""Reads of items: one statement a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cms.access.guard import readable_collection, view_of
from cms.database.connections import Row
from cms.database.error_mapping import Conflict
from cms.database.wire import Chunking
from cms.errors import Problem, Refused, forbidden, not_found
from cms.items.read.cursors import cut_page
from cms.items.read.estimated_counts import count_estimate
from cms.items.read.prepare import ReadRequest, cursor_seal, prepare_read
from cms.query.language.ast import RowOutput
from cms.query.language.paging import PageSizes
from cms.query.language.parameters import NEXT_CURSOR
from cms.query.plan.bindings import bind_values
from cms.query.plan.sizes import WIDE_ROW
from cms.query.sql.statement import Statement
from cms.schema.defaults import default_of, is_computed
from cms.schema.keys import key_parser
from cms.schema.model import Collection, Field
from cms.schema.system import USERS
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.current_version import current_version
from cms.store.identity import Identity
from cms.store.snapshot import PreparedRead
from cms.store.store import Store
from cms.text_shapes import MASK

Item = dict[str, Any]
"""An item as statements answer it: values by output names, nested items as JSON text."""


class ReadAnswer(NamedTuple):
    """An answer and the version of its row, which is None for lists and for rows of views.

    The answer is an object of JSON in which nested items may be JSON text already.
    """

    content: Mapping[str, object]
    version: str | None = None


_SUMS = frozenset({"sum", "sumDistinct", "avg", "avgDistinct"})

NO_ROW_VERSION = "no row"
"""The version of a singleton that has no row yet."""


def read_list(store: Store, identity: Identity, request: ReadRequest) -> ReadAnswer:
    """Return the answer of a list read, or of a singleton's one object."""
    for attempt in store.reads(identity):
        with attempt as context:
            answer = _answer_list(store, request, context)
    return answer


def _answer_list(store: Store, request: ReadRequest, context: RequestContext) -> ReadAnswer:
    prepared = prepare_read(store, context, request, for_answer=True)
    statement, literals = prepared
    # An estimate comes first: the counters beside the rows then tell that its rules still hold.
    meta: dict[str, int] = {}
    if statement.count_estimate:
        meta = count_estimate(store, context, statement, literals)
    rows = _fetch(store, context, statement, literals)
    if statement.indexable_json_paths:
        store.json_path_record.add(statement.indexable_json_paths)
    if statement.counts:
        meta = {**statement.meta(rows), **meta}
    if statement.cursor:
        return _answer_page(store, context, request, prepared, _CountedRows(rows, meta))
    data = data_of(statement, rows)
    version = None
    # Of all list reads, only that of a singleton has a version, which becomes the ETag.
    if statement.row_outputs:
        # With If-Match a client can then make sure that nobody has created the row meanwhile.
        version = _version(statement, rows) or NO_ROW_VERSION
    answer = {"data": data}
    if meta:
        answer["meta"] = meta
    return ReadAnswer(answer, version)


class _CountedRows(NamedTuple):
    """The rows of a list, and the numbers beside them."""

    rows: list[Row]
    meta: dict[str, int]


def _answer_page(
    store: Store,
    context: RequestContext,
    request: ReadRequest,
    prepared: PreparedRead,
    counted: _CountedRows,
) -> ReadAnswer:
    """Return the answer of a list with a cursor."""
    statement, literals = prepared
    assert statement.cursor is not None
    meta: dict[str, object] = {**counted.meta}
    page = cut_page(statement, literals, counted.rows)
    # Without a primary key the last row cannot be told from others, and there is no cursor.
    if statement.cursor.terms:
        meta[NEXT_CURSOR] = None
        if page.last_values is not None:
            seal = cursor_seal(store, context, request)
            meta[NEXT_CURSOR] = seal.seal(statement.cursor.order, page.last_values)
    answer = {"data": statement.items(page.rows), "meta": meta}
    return ReadAnswer(answer)


def data_of(statement: Statement, rows: list[Any]) -> object:
    """Return the data of a list read: the items, or the one object of a singleton."""
    items = statement.items(rows)
    # Aggregates and groups of a singleton are a list, like those of any other collection.
    if statement.is_of_singleton and not statement.is_grouped:
        return items[0] if items else defaults(statement)
    return items


def read_one(store: Store, identity: Identity, request: ReadRequest, *, key: str) -> ReadAnswer:
    """Return the answer of the read of one item; NOT_FOUND when there is none for this caller."""
    for attempt in store.reads(identity):
        with attempt as context:
            answer = _answer_one(store, request, key, context)
    return answer


def _answer_one(
    store: Store, request: ReadRequest, key: str, context: RequestContext
) -> ReadAnswer:
    versioned = _find_by_key(store, context, request, key)
    if versioned is None:
        raise not_found()
    return _answer(versioned.item, versioned.version)


def fetch_item(
    store: Store,
    context: RequestContext,
    request: ReadRequest,
    *,
    key: str,
    nested_page: PageSizes | None = None,
) -> Item:
    """Return one item for further work; NOT_FOUND when there is none for this caller.

    `nested_page` is the page of the lists in it, when it is not the store's.
    """
    statement, literals = prepare_item_read(
        store, context, request, key=key, nested_page=nested_page
    )
    return _first(statement.items(_fetch(store, context, statement, literals)))


def fetch_prepared_item(
    store: Store, context: RequestContext, prepared: PreparedRead, *, key: str
) -> Item:
    """Return one item by a keyed read; NOT_FOUND when there is none for its callers.

    The key is as `parse_key` returns it.
    """
    statement, literals = prepared
    return _first(statement.items(_fetch(store, context, statement, (*literals, key))))


def _first(items: list[Item]) -> Item:
    if not items:
        raise not_found()
    return items[0]


def fetch_items(store: Store, context: RequestContext, request: ReadRequest) -> list[Item]:
    """Return the items of a list for further work."""
    statement, literals = prepare_read(store, context, request)
    return statement.items(_fetch(store, context, statement, literals))


class _VersionedItem(NamedTuple):
    """An item of a keyed read; rows of views have no version."""

    item: Item
    version: str | None


def prepare_item_read(
    store: Store,
    context: RequestContext,
    request: ReadRequest,
    *,
    key: object,
    nested_page: PageSizes | None = None,
) -> PreparedRead:
    """Return the statement of the read of one item, and its literals, of which the key is the last.

    Raises `Refused` NOT_FOUND for a key that the collection cannot have.
    """
    parsed_key = parse_key(keyed(context, request.collection), key)
    statement, literals = prepare_read(store, context, request, keyed=True, nested_page=nested_page)
    return statement, (*literals, parsed_key)


def _find_by_key(
    store: Store, context: RequestContext, request: ReadRequest, key: str
) -> _VersionedItem | None:
    statement, literals = prepare_item_read(store, context, request, key=key)
    rows = _fetch(store, context, statement, literals)
    items = statement.items(rows)
    return _VersionedItem(items[0], _version(statement, rows)) if items else None


def _version(statement: Statement, rows: list[Row]) -> str | None:
    """Return the version of the first row; None without a row, and for rows of views."""
    if not statement.row_outputs:
        return None
    versions = statement.row_texts(RowOutput.VERSION, rows)
    return versions[0] if versions else None


def _answer(item: Item, version: str | None = None) -> ReadAnswer:
    return ReadAnswer({"data": item}, version)


_OWN_USER = ReadRequest(USERS)


def read_me(store: Store, identity: Identity, request: ReadRequest) -> ReadAnswer:
    """Return the answer of a read of /users/me; INVALID_CREDENTIALS without credentials.

    A user who still has to set up a second factor may read it as well. A caller who may not read
    users, or not this one, gets the own id only, whatever fields the query asks for.
    """
    require_user(identity)
    identity = identity._replace(may_enrol=True)
    for attempt in store.reads(identity):
        with attempt as context:
            answer = _answer_me(store, request, context)
    return answer


def _answer_me(store: Store, request: ReadRequest, context: RequestContext) -> ReadAnswer:
    require_own_user(context)
    catalogue = context.snapshot.catalogue
    if view_of(USERS, catalogue=catalogue, policy=context.actor.policy) is None:
        # No statement of this answer has compared the counters.
        check_version(context.snapshot, current_version(context.fetch))
        return _answer(_own_id(context))
    own_user = _find_own_user(store, context, request)
    if own_user:
        return _answer(own_user.item, own_user.version)
    # Read without the filter of the query. If the user is found now, only that filter had hidden
    # it; otherwise a rule hides it.
    if request != _OWN_USER and _find_own_user(store, context, _OWN_USER):
        raise not_found()
    return _answer(_own_id(context))


def _find_own_user(
    store: Store, context: RequestContext, request: ReadRequest
) -> _VersionedItem | None:
    return _find_by_key(store, context, request, str(context.actor.user))


def _own_id(context: RequestContext) -> Item:
    return {"id": context.actor.user}


def require_user(identity: Identity) -> None:
    """Raise `Refused` INVALID_CREDENTIALS for a caller without credentials."""
    if identity.is_anonymous:
        raise Refused(Problem("INVALID_CREDENTIALS", "Credentials are needed."))


def require_own_user(context: RequestContext) -> None:
    """Raise `Refused` FORBIDDEN for a caller who is no user, as with the token of a share."""
    if context.actor.user is None:
        raise forbidden()


def keyed(context: RequestContext, name: str) -> Collection:
    """Return a readable collection whose items are reached by key; NOT_FOUND for a singleton."""
    collection = readable_collection(
        name, catalogue=context.snapshot.catalogue, policy=context.actor.policy
    )
    if collection.is_singleton or collection.primary_key is None:
        raise not_found()
    return collection


def parse_key(collection: Collection, key: object) -> str:
    """Return a key as its type writes it; raises `Refused` NOT_FOUND for a value that is none."""
    try:
        return key_parser(collection.key)(key)
    except ValueError:
        raise not_found() from None


def defaults(statement: Statement) -> Item:
    """Return the item of a singleton without a row: defaults of columns, or null for those without.

    It shows what a row would hold if one were created now.
    """
    paths_and_fields = zip(statement.paths, statement.fields, strict=True)
    return {path[0]: _default(field) for path, field in paths_and_fields}


def _default(field: Field | None) -> object:
    """Return a field's default; None for a default that only a row has, such as a new id."""
    if field is None or field.column is None or is_computed(field.column):
        return None
    value = default_of(field, field.column)
    # A secret's default is one as well.
    return MASK if field.is_secret and value is not None else value


def _fetch(
    store: Store, context: RequestContext, statement: Statement, literals: Sequence[object]
) -> list[Row]:
    """Run a read, within the limit of bytes.

    Raises `Stale` if it has met other counters than those of the snapshot.
    """
    # PostgreSQL plans each search anew: the best plan depends on how rare its words are.
    reader = context.reader
    assert reader, "this is a write"
    fetch = reader.fetch_unprepared if statement.is_search else reader.fetch
    chunking = portions_of(store, statement, max_bytes=store.max_answer_size)
    values = bind_values(statement.values, context.bindings(literals))
    try:
        rows = fetch(statement.text, values, chunking=chunking)
    except Conflict as conflict:
        raise with_summed_fields(conflict, statement) from conflict
    check_version(context.snapshot, statement.version(rows))
    return rows


def with_summed_fields(refused: Refused, statement: Statement) -> Refused:
    """Name the fields of sums and averages in a refusal of a value that is out of range."""
    # Reads compute no other values that could be.
    fields = list(dict.fromkeys(path[1] for path in statement.paths if path[0] in _SUMS))
    if refused.problems[0].code != "VALUE_OUT_OF_RANGE" or not fields:
        return refused
    names = ", ".join(f'"{name}"' for name in fields)
    message = f"The sum of the values of {names} is out of range."
    named = {"field": fields[0]} if len(fields) == 1 else {"fields": fields}
    return Refused(Problem("VALUE_OUT_OF_RANGE", message, named))


def portions_of(
    store: Store, statement: Statement, *, max_bytes: int, row_count: int | None = None
) -> Chunking | None:
    """Return how the rows of a statement are fetched; None where they cannot be too large.

    `row_count` is their number where that is known.
    """
    size = statement.size
    total = size.total if row_count is None else size.row * row_count
    if total <= max_bytes and size.row <= WIDE_ROW:
        return None
    return Chunking(size.rows_at_a_time, max_bytes, store.max_answer_size)
