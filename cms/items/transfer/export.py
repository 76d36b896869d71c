"""Lists as files: streamed from a cursor, so that a million rows fit where one does (decisions, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cms.database.connections import Row
from cms.errors import invalid_query
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
    """A file on its way: its media type, its name, its bytes."""

    media_type: str
    filename: str
    chunks: Iterator[bytes]


def export(store: Store, identity: Identity, request: ReadRequest, *, file_format: str) -> Export:
    """Start an export; what can be refused is refused before the first byte.

    `file_format` is one of `FORMATS`, else `Refused` INVALID_QUERY.
    """
    if file_format not in FORMATS:
        raise invalid_query(f"export is one of {', '.join(FORMATS)}", parameter="export")
    found = FORMATS[file_format]

    def work(context: RequestContext) -> tuple[Iterator[list[Item]], list[str]]:
        statement, literals = prepare_read(
            store, context, request, nested_page=_nested_page(store.page, request)
        )
        values = checked_parameters(
            store, context, ReadRun(statement, literals, batch=BATCH_ROWS), estimator_of(store)
        )
        batches = store.database.stream(statement.text, values, rows=BATCH_ROWS)
        keys = list(dict.fromkeys(path[0] for path in statement.paths))
        return _with_first_batch(_items(batches, statement, context)), keys

    batches, keys = store.run_read(identity, work)
    return Export(
        found.media_type, f"{request.collection}.{file_format}", found.write(batches, keys)
    )


def _nested_page(page: PageSizes, request: ReadRequest) -> PageSizes:
    """All rows are all of what belongs to them as well: a list that ended early would be taken for the whole one."""
    params = request.params if request.params is not None else nested_params(request.query_string)
    return replace(page, default=None) if str(params.get("limit")) == "-1" else page


def _items(
    batches: Iterator[list[Row]], statement: Statement, context: RequestContext
) -> Iterator[list[Item]]:
    for number, rows in enumerate(batches):
        if number == 0:
            check_version(context.snapshot, statement.version(rows))
        elif number == 1:
            note_memory_use(LARGE)
        yield statement.items(rows)


def _with_first_batch(batches: Iterator[list[Item]]) -> Iterator[list[Item]]:
    """Read the first batch now: a stale plan must be noticed while there is still a way back."""
    first = next(batches, [])

    def whole() -> Iterator[list[Item]]:
        yield first
        yield from batches

    return whole()
