"""Exports: lists as files, streamed from a cursor, so that a million rows need little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from cms.database.connections import Row
from cms.database.error_mapping import Conflict
from cms.errors import Refused, combined, invalid_query
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import Item, with_summed_fields
from cms.items.transfer.formats import FORMATS, Format
from cms.processes.memory import LARGE, note_memory_use
from cms.query.language.paging import PageSizes
from cms.query.language.query_strings import nested_params
from cms.query.plan.bindings import bind_values
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.identity import Identity
from cms.store.store import Store

BATCH_ROWS = 1_000
"""Rows that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Export:
    """A file that is being written: its media type, its name, its bytes."""

    media_type: str
    filename: str
    chunks: Iterator[bytes]


def export(store: Store, identity: Identity, request: ReadRequest, *, file_format: str) -> Export:
    """Start an export.

    All refusals come before the first byte: `Refused` INVALID_QUERY where `file_format` is none of
    `FORMATS`, and those of any read.
    """
    if file_format not in FORMATS:
        for attempt in store.reads(identity):
            with attempt as context:
                _refuse_format(store, request, context)
    writer = FORMATS[file_format]
    for attempt in store.reads(identity):
        with attempt as context:
            chunks = _chunks(store, request, context, writer)
    return Export(writer.media_type, f"{request.collection}.{file_format}", chunks)


def _chunks(
    store: Store, request: ReadRequest, context: RequestContext, writer: Format
) -> Iterator[bytes]:
    """Open a cursor for the items of a read, and return the file; the first batch is read."""
    page = _nested_page(store.page, request)
    statement, literals = prepare_read(store, context, request, nested_page=page)
    values = bind_values(statement.values, context.bindings(literals))
    batches = context.reads.stream(statement.text, values, rows=BATCH_ROWS)
    if statement.indexable_json_paths:
        store.json_path_record.add(statement.indexable_json_paths)
    # An item has one key for all paths into the same nested object.
    keys = list(dict.fromkeys(path[0] for path in statement.paths))
    try:
        items = _items(batches, statement, context)
        # The first batch now, while a read with a stale plan can still be repeated.
        return writer.write(_resumed(next(items, []), items), keys)
    except Conflict as conflict:
        raise with_summed_fields(conflict, statement) from conflict


def _refuse_format(store: Store, request: ReadRequest, context: RequestContext) -> NoReturn:
    """Refuse an unknown format, together with all other problems of the query."""
    wrong_format = invalid_query(f"export is one of {', '.join(FORMATS)}", parameter="export")
    try:
        prepare_read(store, context, request)
    except Refused as refused:
        # A collection that the caller may not read is refused alone, as by any other read.
        if refused.status != wrong_format.status:
            raise
        raise combined([*wrong_format.problems, *refused.problems]) from None
    raise wrong_format


def _nested_page(page: PageSizes, request: ReadRequest) -> PageSizes:
    """Return the page of the lists in the items: without a limit where all items are exported.

    Nobody could tell from the file that a list in it is cut off.
    """
    params = request.params
    if params is None:
        params = nested_params(request.query_string)
    # A query string holds texts, the body of a SEARCH numbers.
    exports_all = str(params.get("limit")) == "-1"
    if exports_all:
        return replace(page, default=None)
    return page


def _items(
    batches: Iterator[list[Row]], statement: Statement, context: RequestContext
) -> Iterator[list[Item]]:
    for number, rows in enumerate(batches):
        if number == 0:
            # All batches come from one statement, and so have the counters of the first.
            check_version(context.snapshot, statement.version(rows))
        elif number == 1:  # more than one batch: an export of this size leaves memory to return
            note_memory_use(LARGE)
        yield statement.items(rows)


def _resumed(first: list[Item], rest: Iterator[list[Item]]) -> Iterator[list[Item]]:
    yield first
    # Unlike itertools.chain, this closes the cursor with the generator when a client goes away.
    yield from rest
