"""Reads whose lists might hold too many rows: PostgreSQL's own estimate decides (MAX_NESTED_ROWS)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from cms import jsontext
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.database.wire import Chunking
from cms.errors import Refused, invalid_query
from cms.fragment import Fragment, commas, concat, fill, name
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.estimate import Estimate, estimate_of
from cms.query.plan.nesting import ListLevel, columns_of, heaviest_rows, largest_path, nested_rows
from cms.query.plan.sizes import WIDE_ROW
from cms.query.sql.arrays import array
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.store import Store

SECONDS_KEPT = 60
LONGEST_LIST_FACTOR = 10
"""How many times more than it may nest a read could come to, were all lists as long as the longest.

The estimate knows the mean: it says nothing of the one author who wrote most of the articles, whom a read may pick.
"""

SMALL_TABLE_BYTES = 1_000_000
"""Bytes of a table whose rows are counted in no time."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """Where a statement is about to run: `explain` runs there, `analyze` where tables may be analyzed."""

    explain: Fetch
    analyze: Callable[[Fragment], object]


def estimator_of(store: Store) -> Estimator:
    """Return the planner of reads outside of transactions."""
    return Estimator(store.database.fetch_unprepared, store.database.run_primary)


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A statement with the literals of one request; `top` is the number of its items, where it is known.

    `batch` is how many of them are held at a time, where they are streamed.
    """

    statement: Statement
    literals: Sequence[object]
    top: int | None = None
    batch: int | None = None


def checked_parameters(
    store: Store, context: RequestContext, asked: ReadRun, estimator: Estimator
) -> list[object]:
    """Return the parameters of a statement that may run; raises `Refused` INVALID_QUERY for one that nests too much.

    Most statements cannot, whatever is in the tables. For the others PostgreSQL's estimate is kept for a while.
    """
    bindings = Bindings(asked.literals, context.actor.user, context.actor.role)
    values = bind_values(asked.statement.values, bindings)
    nesting = asked.statement.nesting
    if nesting is None or nesting.max_rows <= store.max_nested_rows:
        return values
    if (
        nested_rows(nesting, asked.literals, top=_items_at_a_time(asked, nesting))
        > store.max_nested_rows
    ):
        _refuse_too_many(store, context, asked, _estimate_of(asked, values, estimator))
    return values


def may_be_large(store: Store, statement: Statement) -> bool:
    """Tell whether a statement is to be looked at before it runs; most need not, whatever is in the tables."""
    nesting = statement.nesting
    size = statement.size
    if nesting is not None and nesting.max_rows > store.max_nested_rows:
        return True
    return size.total > store.max_answer_size or size.row > WIDE_ROW


def chunking_for(store: Store, asked: ReadRun, max_bytes: int) -> Chunking | None:
    """Return how the rows of a statement are to be taken; None where they cannot be too large."""
    size = asked.statement.size
    whole = size.total if asked.top is None else size.row * asked.top
    return (
        None
        if whole <= max_bytes and size.row <= WIDE_ROW
        else Chunking(size.rows_at_a_time, max_bytes, store.max_answer_size)
    )


def _items_at_a_time(asked: ReadRun, nesting: ListLevel) -> int | None:
    if asked.batch is None:
        return asked.top
    return min(asked.batch, nesting.row_limit or asked.batch)


def _refuse_too_many(
    store: Store, context: RequestContext, asked: ReadRun, estimate: Callable[[], Estimate]
) -> None:
    # $NOW and the caller stand beside the literals: they would make another estimate of every request.
    digest = sha256(repr(asked.literals).encode()).digest()
    key = asked.statement.text, digest, int(time.monotonic() / SECONDS_KEPT)
    expected = context.snapshot.estimates.setdefault_with(key, estimate)
    nesting = asked.statement.nesting
    assert nesting
    share = min(1.0, asked.batch / max(expected.top, 1.0)) if asked.batch else 1.0
    top = max(expected.top * share, 1.0) if asked.top is None else asked.top
    uneven = expected.heaviest * top > store.max_nested_rows * LONGEST_LIST_FACTOR
    if uneven or expected.nested * share > store.max_nested_rows:
        chain = largest_path(nesting)
        reason = (
            f'"{chain}" may nest more than {store.max_nested_rows} rows: '
            "ask for fewer levels, or for fewer items with limit and deep[…][_limit]"
        )
        raise invalid_query(reason, parameter="fields", chain=chain)


def _estimate_of(
    asked: ReadRun, values: list[object], estimator: Estimator
) -> Callable[[], Estimate]:
    def estimate() -> Estimate:
        _analyze(asked.statement.touched_collections, estimator)
        rows = estimator.explain(f"EXPLAIN (FORMAT JSON) {asked.statement.text}", values)
        plan: Any = jsontext.loads(jsontext.dumps(rows[0][0]))
        nesting = asked.statement.nesting
        assert nesting
        heaviest = heaviest_rows(nesting, asked.literals, _longest_lists(nesting, estimator))
        return replace(estimate_of(plan), heaviest=heaviest)

    return estimate


def _longest_lists(nesting: ListLevel, estimator: Estimator) -> dict[tuple[str, str], float]:
    """Return how many rows hold the commonest value of each column that lists go by."""
    columns = sorted(columns_of(nesting))
    tables, names = [table for table, _ in columns], [name for _, name in columns]
    rows = estimator.explain(statement("find_longest_lists"), [array(tables), array(names)])
    return {(str(table), str(column)): float(length) for table, column, length in rows}


def _analyze(collections: frozenset[str], estimator: Estimator) -> None:
    """Have PostgreSQL look at tables that it has not seen as they are: of those it expects a few rows for each parent.

    It does so by itself, but not before the next minute, and not for a table of less than fifty rows.
    """
    tables = [
        _Table(*row)
        for row in estimator.explain(statement("find_statistics"), [array(sorted(collections))])
    ]
    is_unanalyzed = [table for table in tables if table.is_unanalyzed] + _grown_tables(
        tables, estimator
    )
    if is_unanalyzed:
        try:
            estimator.analyze(
                concat("ANALYZE (SKIP_LOCKED) ", commas(table.printed for table in is_unanalyzed))
            )
        except Refused:
            return  # the estimate is as good as without it


@dataclass(frozen=True, slots=True)
class _Table:
    schema: str
    name: str
    rows: float
    size: int
    is_unanalyzed: bool

    @property
    def printed(self) -> Fragment:
        return concat(name(self.schema), ".", name(self.name))


def _grown_tables(tables: Sequence[_Table], estimator: Estimator) -> list[_Table]:
    """Return the small tables that hold more rows than PostgreSQL knows of: it counts changes a second later."""
    small = [
        table for table in tables if not table.is_unanalyzed and table.size <= SMALL_TABLE_BYTES
    ]
    if not small:
        return []
    counts = (fill("(SELECT count(*) FROM {0})", table.printed) for table in small)
    text, values = concat("SELECT ", commas(counts)).numbered()
    (numbers,) = estimator.explain(text, values)
    return [
        table
        for table, number in zip(small, numbers, strict=True)
        if number > 10 + 1.1 * table.rows
    ]
