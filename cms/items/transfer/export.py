"""Exports: lists as files, streamed from a cursor, so that a million rows take little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from cms.database.connections import Row
from cms.errors import Refused, combined, invalid_query
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.row_limits import ReadRun, checked_parameters, estimator_of
from cms.items.transfer.formats import FORMATS, Item
from cms.memory import LARGE, note_memory_use
from cms.query.language.brackets import nested_params
from cms.query.language.parse import PageSizes
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.identity import Identity
from cms.store.store import Store

BATCH_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Export:
    """A file that is being written: its media type, its name, its bytes."""

    media_type: str
    filename: str
    chunks: Iterator[bytes]


def export(store: Store, identity: Identity, request: ReadRequest, *, file_format: str) -> Export:
    """Start an export; whatever refuses it does so before the first byte.

    `file_format` is one of `FORMATS`, else `Refused` INVALID_QUERY.
    """
    if file_format not in FORMATS:
        store.run_read(identity, lambda context: _refuse_format(store, context, request))
    writer = FORMATS[file_format]

    def work(context: RequestContext) -> tuple[Iterator[list[Item]], list[str]]:
        page = _nested_page(store.page, request)
        statement, literals = prepare_read(store, context, request, nested_page=page)
        run = ReadRun(statement, literals, batch=BATCH_ROWS)
        values = checked_parameters(store, context, run, estimator_of(store))
        batches = store.database.stream(statement.text, values, rows=BATCH_ROWS)
        keys = list(dict.fromkeys(path[0] for path in statement.paths))
        return _with_first_batch(_items(batches, statement, context)), keys

    batches, keys = store.run_read(identity, work)
    filename = f"{request.collection}.{file_format}"
    return Export(writer.media_type, filename, writer.write(batches, keys))


def _refuse_format(store: Store, context: RequestContext, request: ReadRequest) -> NoReturn:
    """Refuse an unknown format, with whatever else is wrong with the query."""
    wrong_format = invalid_query(f"export is one of {', '.join(FORMATS)}", parameter="export")
    try:
        prepare_read(store, context, request)
    except Refused as refused:
        if refused.status != wrong_format.status:
            raise
        raise combined([*wrong_format.problems, *refused.problems]) from None
    raise wrong_format


def _nested_page(page: PageSizes, request: ReadRequest) -> PageSizes:
    """Return the page of the lists in the items: without a limit where all items are exported.

    A reader of the file would take a list that ends early for the whole one.
    """
    params = request.params
    if params is None:
        params = nested_params(request.query_string)
    return replace(page, default=None) if str(params.get("limit")) == "-1" else page


def _items(
    batches: Iterator[list[Row]], statement: Statement, context: RequestContext
) -> Iterator[list[Item]]:
    for number, rows in enumerate(batches):
        if number == 0:
            check_version(context.snapshot, statement.version(rows))
        elif number == 1:  # so there is more than one batch
            note_memory_use(LARGE)
        yield statement.items(rows)


def _with_first_batch(batches: Iterator[list[Item]]) -> Iterator[list[Item]]:
    """Read the first batch now: a stale plan must be noticed while the read can be done again."""
    first = next(batches, [])

    def whole() -> Iterator[list[Item]]:
        yield first
        yield from batches

    return whole()
