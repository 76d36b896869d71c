"""The limit of rows in nested lists, MAX_NESTED_ROWS: PostgreSQL's own estimate decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from cms.access.policy import Policy
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.database.wire import Chunking
from cms.errors import Refused, invalid_query
from cms.fragment import Fragment, commas, concat, fill, name
from cms.items.read.query_plans import plan_of
from cms.query.language.ast import EVERYTHING
from cms.query.plan.bindings import bind_values
from cms.query.plan.estimate import Estimate, estimate_of
from cms.query.plan.nesting import (
    ColumnKey,
    ListLevel,
    columns_of,
    heaviest_rows,
    largest_path,
    nested_rows,
)
from cms.query.plan.sizes import WIDE_ROW
from cms.query.sql.arrays import array
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.store import Store

ESTIMATE_SECONDS = 60
"""How long an estimate is kept."""

LONGEST_LIST_FACTOR = 10
"""How many times MAX_NESTED_ROWS a read may come to if all its lists were as long as the longest.

The estimate knows the mean only: a read may pick the one author who wrote most of the articles.
"""

SMALL_TABLE_BYTES = 1_000_000
"""Bytes up to which a table is small: its rows are counted in no time."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """How PostgreSQL is asked before a statement runs.

    `fetch` asks where the statement is about to run, `analyze` where tables may be analyzed.
    """

    fetch: Fetch
    analyze: Callable[[Fragment], object]


def estimator_of(store: Store, context: RequestContext) -> Estimator:
    """Return the estimator of reads outside of transactions."""
    return Estimator(context.reads.fetch_unprepared, store.database.run_primary)


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A statement with the literals of one request.

    `top` is the number of its items where that is known; `batch` is how many of them are in memory
    at a time where they are streamed.
    """

    statement: Statement
    literals: Sequence[object]
    top: int | None = None
    batch: int | None = None


def checked_parameters(
    store: Store, context: RequestContext, run: ReadRun, estimator: Estimator
) -> list[object]:
    """Return the parameters of a statement; raises `Refused` INVALID_QUERY if it nests too much.

    Most statements cannot, whatever the tables hold. For the others PostgreSQL's estimate is kept
    for `ESTIMATE_SECONDS`. Nothing is refused to a caller from whom a rule hides rows: statistics
    cover these, too, and a refusal would tell what is frequent in them.
    """
    values = bind_values(run.statement.values, context.bindings(run.literals))
    nesting = run.statement.nesting
    if nesting is None or nesting.max_rows <= store.max_nested_rows:
        return values
    # The literals may be smaller limits than those that the statement allows.
    max_rows = nested_rows(nesting, run.literals, top=_items_at_a_time(run, nesting))
    policy = context.actor.policy
    if max_rows > store.max_nested_rows and _sees_every_row(policy, run.statement):
        _refuse_too_many(store, context, run, partial(_estimate, run, values, estimator))
    return values


def may_be_large(store: Store, statement: Statement) -> bool:
    """Tell whether a statement needs a check before it runs; most never do."""
    nesting = statement.nesting
    size = statement.size
    if nesting is not None and nesting.max_rows > store.max_nested_rows:
        return True
    return size.total > store.max_answer_size or size.row > WIDE_ROW


def chunking_for(store: Store, run: ReadRun, max_bytes: int) -> Chunking | None:
    """Return how the rows of a statement are fetched; None where they cannot be too large."""
    size = run.statement.size
    total = size.total if run.top is None else size.row * run.top
    if total <= max_bytes and size.row <= WIDE_ROW:
        return None
    return Chunking(size.rows_at_a_time, max_bytes, store.max_answer_size)


def _items_at_a_time(run: ReadRun, nesting: ListLevel) -> int | None:
    if run.batch is None:
        return run.top
    # An export may have a limit of its own that is smaller than a batch.
    return min(run.batch, nesting.row_limit or run.batch)


def _refuse_too_many(
    store: Store, context: RequestContext, run: ReadRun, estimate: Callable[[], Estimate]
) -> None:
    # Only the literals are in the key: with $NOW or the caller every request had its own estimate.
    digest = sha256(repr(run.literals).encode()).digest()
    # With the number of the period: each period asks anew, and old estimates leave the cache.
    key = run.statement.text, digest, int(time.monotonic() / ESTIMATE_SECONDS)
    expected = context.snapshot.estimates.setdefault_with(key, estimate)
    nesting = run.statement.nesting
    assert nesting
    # The share of the items that is in memory at a time: of an export only one batch is.
    share = 1.0
    if run.batch:
        share = min(1.0, run.batch / max(expected.top, 1.0))
    items: float
    if run.top is None:
        items = max(expected.top * share, 1.0)
    else:
        items = run.top
    # The mean hides a long list behind many short ones: see `LONGEST_LIST_FACTOR`.
    is_uneven = expected.heaviest * items > store.max_nested_rows * LONGEST_LIST_FACTOR
    if is_uneven or expected.nested * share > store.max_nested_rows:
        chain = largest_path(nesting)
        reason = (
            f'"{chain}" may nest more than {store.max_nested_rows} rows: '
            "ask for fewer levels, or for fewer items with limit and deep[…][_limit]"
        )
        raise invalid_query(reason, parameter="fields", chain=chain)


def _sees_every_row(policy: Policy, statement: Statement) -> bool:
    """Tell whether no rule hides from a caller any row that a statement may read."""
    if policy.is_admin:
        return True
    if policy.shared:
        return False
    for collection in statement.touched_collections:
        for grant in policy.granted(collection, "read"):
            if grant.rule != EVERYTHING:
                return False
    return True


def _estimate(run: ReadRun, values: list[object], estimator: Estimator) -> Estimate:
    # First the statistics: on those of an empty table the estimate would be worthless.
    analyze_outdated(run.statement.touched_collections, estimator)
    plan = plan_of(estimator.fetch, run.statement.text, values)
    nesting = run.statement.nesting
    assert nesting
    heaviest = heaviest_rows(nesting, run.literals, _longest_lists(nesting, estimator))
    return replace(estimate_of(plan), heaviest=heaviest)


def _longest_lists(nesting: ListLevel, estimator: Estimator) -> dict[ColumnKey, float]:
    """Return how many rows hold the commonest value of each column that lists are joined by."""
    tables: list[str] = []
    columns: list[str] = []
    for table, column in sorted(columns_of(nesting)):
        tables.append(table)
        columns.append(column)
    rows = estimator.fetch(statement("find_longest_lists"), [array(tables), array(columns)])
    lengths: dict[ColumnKey, float] = {}
    for table, column, length in rows:
        lengths[str(table), str(column)] = float(length)
    return lengths


def analyze_outdated(collections: frozenset[str], estimator: Estimator) -> None:
    """Have PostgreSQL analyze tables whose statistics are missing or old.

    Of those it expects a few rows for each parent, however many there are. It analyzes tables by
    itself, but not before the next minute, and not a table of less than fifty rows.
    """
    rows = estimator.fetch(statement("find_statistics"), [array(sorted(collections))])
    tables = [_EstimatedTable(*row) for row in rows]
    outdated = [table for table in tables if table.is_unanalyzed]
    outdated += _grown_tables(tables, estimator)
    if not outdated:
        return
    names = commas(table.printed for table in outdated)
    try:
        # SKIP_LOCKED: a read must wait for neither a change of structure nor another ANALYZE.
        estimator.analyze(concat("ANALYZE (SKIP_LOCKED) ", names))
    except Refused:
        # The estimate is then as good as it was before.
        return


@dataclass(frozen=True, slots=True)
class _EstimatedTable:
    schema: str
    name: str
    rows: float
    size: int
    is_unanalyzed: bool

    @property
    def printed(self) -> Fragment:
        return concat(name(self.schema), ".", name(self.name))


def _grown_tables(tables: Sequence[_EstimatedTable], estimator: Estimator) -> list[_EstimatedTable]:
    """Return the small tables that hold more rows than PostgreSQL's statistics say.

    PostgreSQL counts changes a second late, so the rows of small tables are counted here.
    """
    small: list[_EstimatedTable] = []
    for table in tables:
        # A table that was never analyzed is outdated in any case.
        if not table.is_unanalyzed and table.size <= SMALL_TABLE_BYTES:
            small.append(table)
    if not small:
        return []
    # One statement for all tables, whose one row has a column for each.
    counts = [fill("(SELECT count(*) FROM {0})", table.printed) for table in small]
    text, values = concat("SELECT ", commas(counts)).numbered()
    (row_counts,) = estimator.fetch(text, values)
    grown = []
    for table, row_count in zip(small, row_counts, strict=True):
        # A few rows more, or a tenth, change no estimate that matters.
        if row_count > 10 + 1.1 * table.rows:
            grown.append(table)
    return grown
