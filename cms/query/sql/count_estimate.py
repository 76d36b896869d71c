"""The printer of the statements of an estimated count (docs/query-language.md)."""

from __future__ import annotations

from dataclasses import dataclass

from cms.fragment import Fragment, NumberedSql, fill, text
from cms.query.plan.count_sources import CountEstimate
from cms.query.plan.read_plan import ReadPlan
from cms.query.sql.clauses import conditions, where
from cms.query.sql.columns import rows_of
from cms.query.sql.expressions import predicate

SAMPLE_ROWS = 1_000
"""Rows of the sample on which the filter is tried, for a caller who does not see every row."""


@dataclass(frozen=True, slots=True)
class EstimateStatements:
    """The statement whose rows PostgreSQL is to expect, and one that counts in a sample.

    Without a sample, the expected rows fulfil the filter. With one they are those that the caller
    sees; the sample's one row tells how many rows it has, and how many of them fulfil the filter.
    """

    expected: NumberedSql
    sample: NumberedSql | None = None


def estimate_statements(plan: ReadPlan) -> EstimateStatements | None:
    """Return the statements of the estimate that a plan asks for, if any."""
    match plan.count_estimate:
        case None:
            return None
        case CountEstimate.STATISTICS:
            return EstimateStatements(_rows(plan, where(plan, 0)))
        case CountEstimate.SAMPLE:
            seen = conditions(predicate(plan.allowed, 0))
            return EstimateStatements(_rows(plan, seen), _sample(plan, seen))


def _rows(plan: ReadPlan, condition: Fragment) -> NumberedSql:
    shape = "SELECT FROM {0} AS t0{1}"
    return fill(shape, rows_of(plan.collection.name), condition).numbered()


def _sample(plan: ReadPlan, seen: Fragment) -> NumberedSql:
    # The LIMIT keeps the filter out of the inner select: it only ever reads rows of the sample.
    shape = (
        "SELECT count(*), count(*) FILTER (WHERE {0}) "
        "FROM (SELECT t0.* FROM {1} AS t0{2} LIMIT {3}) AS t0"
    )
    table = rows_of(plan.collection.name)
    return fill(shape, predicate(plan.where, 0), table, seen, text(str(SAMPLE_ROWS))).numbered()
