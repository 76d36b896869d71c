"""Answers that may be too large: fetched in portions, until they exceed MAX_ANSWER_SIZE."""

from __future__ import annotations

from cms.database.wire import Chunking
from cms.query.plan.sizes import WIDE_ROW
from cms.query.sql.statement import Statement
from cms.store.store import Store


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
