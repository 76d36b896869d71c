"""Counts that PostgreSQL estimates: `meta=filter_count_estimate` (docs/query-language.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from cms import jsontext
from cms.database.connections import Fetch
from cms.database.statements import statement as fixed_statement
from cms.errors import Refused
from cms.fragment import Fragment, NumberedSql, commas, concat, fill, name
from cms.query.language.parameters import COUNT_ESTIMATE
from cms.query.plan.bindings import bind_values
from cms.query.sql.arrays import array
from cms.query.sql.count_estimate import SAMPLE_ROWS
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.store import Store


def count_estimate(
    store: Store, context: RequestContext, statement: Statement, literals: Sequence[object]
) -> dict[str, int]:
    """Return the estimate that a read asks for, as a part of `meta`."""
    statements = statement.count_estimate
    assert statements, "the read asks for no estimate"
    expected = statements.expected
    values = bind_values(expected.values, context.bindings(literals))
    if statements.sample is None:
        _analyze_outdated(store, context, statement.touched_collections)
        return {COUNT_ESTIMATE: round(_expected_rows(context, expected.text, values))}
    sample = _sample(context, statements.sample, literals)
    # All rows that the caller sees are in the sample.
    if sample.rows < SAMPLE_ROWS:
        return {COUNT_ESTIMATE: sample.fulfilling}
    _analyze_outdated(store, context, statement.touched_collections)
    visible_rows = _expected_rows(context, expected.text, values)
    # At least those of the sample are there, whatever the statistics say.
    visible_rows = max(visible_rows, sample.rows)
    return {COUNT_ESTIMATE: round(visible_rows * sample.fulfilling / sample.rows)}


_SMALL_TABLE_BYTES = 1_000_000
"""Bytes up to which a table is small: its rows are counted in no time."""


class _Sample(NamedTuple):
    """How many rows a sample has, and how many of them fulfil the filter."""

    rows: int
    fulfilling: int


def _sample(context: RequestContext, counting: NumberedSql, literals: Sequence[object]) -> _Sample:
    values = bind_values(counting.values, context.bindings(literals))
    (row,) = context.reads.fetch_unprepared(counting.text, values)
    return _Sample(*row)


def explained(fetch: Fetch, text: str, values: Sequence[object]) -> object:
    """Return PostgreSQL's plan of a statement, as JSON that goes into an answer as it is."""
    return fetch(f"EXPLAIN (FORMAT JSON) {text}", values)[0][0]


def _expected_rows(context: RequestContext, text: str, values: Sequence[object]) -> float:
    """Return how many rows PostgreSQL expects of a statement."""
    # The driver leaves JSON as text, for answers; here its values are needed.
    plan = explained(context.reads.fetch_unprepared, text, values)
    (root,) = cast("list[dict[str, Any]]", jsontext.loads(jsontext.dumps(plan)))
    return float(root["Plan"]["Plan Rows"])


def _analyze_outdated(store: Store, context: RequestContext, collections: frozenset[str]) -> None:
    """Have PostgreSQL analyze tables whose statistics are missing or old.

    Of those it expects a few rows for each parent, however many there are. It analyzes tables by
    itself, but not before the next minute, and not a table of less than fifty rows.
    """
    names_of_tables = array(sorted(collections))
    rows = context.reads.fetch_unprepared(fixed_statement("find_statistics"), [names_of_tables])
    tables = [_EstimatedTable(*row) for row in rows]
    outdated = [table for table in tables if table.is_unanalyzed]
    outdated += _grown_tables(tables, context)
    if not outdated:
        return
    names = commas(table.printed for table in outdated)
    try:
        # SKIP_LOCKED: a read must wait for neither a change of structure nor another ANALYZE.
        store.database.run_primary(concat("ANALYZE (SKIP_LOCKED) ", names))
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


def _grown_tables(
    tables: Sequence[_EstimatedTable], context: RequestContext
) -> list[_EstimatedTable]:
    """Return the small tables that hold more rows than PostgreSQL's statistics say.

    PostgreSQL counts changes a second late, so the rows of small tables are counted here.
    """
    small: list[_EstimatedTable] = []
    for table in tables:
        # A table that was never analyzed is outdated in any case.
        if not table.is_unanalyzed and table.size <= _SMALL_TABLE_BYTES:
            small.append(table)
    if not small:
        return []
    # One statement for all tables, whose one row has a column for each.
    counts = [fill("(SELECT count(*) FROM {0})", table.printed) for table in small]
    text, values = concat("SELECT ", commas(counts)).numbered()
    (row_counts,) = context.reads.fetch_unprepared(text, values)
    grown = []
    for table, row_count in zip(small, row_counts, strict=True):
        # A few rows more, or a tenth, change no estimate that matters.
        if row_count > 10 + 1.1 * table.rows:
            grown.append(table)
    return grown
