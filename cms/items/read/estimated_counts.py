"""Counts that PostgreSQL estimates: `meta=filter_count_estimate` (docs/query-language.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cms.fragment import NumberedSql
from cms.items.read.query_plans import plan_of
from cms.items.read.row_limits import Estimator, analyze_outdated, estimator_of
from cms.query.language.parameters import COUNT_ESTIMATE
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.estimate import expected_rows
from cms.query.sql.count_estimate import SAMPLE_ROWS
from cms.query.sql.statement import Statement
from cms.store.context import RequestContext
from cms.store.store import Store


def count_estimate(
    store: Store, context: RequestContext, statement: Statement, literals: Sequence[object]
) -> dict[str, int]:
    """Return the estimate that a read asks for, as a part of `meta`; without one it is empty."""
    statements = statement.count_estimate
    if statements is None:
        return {}
    estimator = estimator_of(store, context)
    bindings = context.bindings(literals)
    if statements.sample is None:
        expected = _expected(statement, statements.expected, bindings, estimator)
        return {COUNT_ESTIMATE: round(expected)}
    sample = _sample(statements.sample, bindings, estimator)
    # All rows that the caller sees are in the sample.
    if sample.rows < SAMPLE_ROWS:
        return {COUNT_ESTIMATE: sample.fulfilling}
    visible_rows = _expected(statement, statements.expected, bindings, estimator)
    # At least those of the sample are there, whatever the statistics say.
    visible_rows = max(visible_rows, sample.rows)
    return {COUNT_ESTIMATE: round(visible_rows * sample.fulfilling / sample.rows)}


class _Sample(NamedTuple):
    """How many rows a sample has, and how many of them fulfil the filter."""

    rows: int
    fulfilling: int


def _sample(counting: NumberedSql, bindings: Bindings, estimator: Estimator) -> _Sample:
    (row,) = estimator.fetch(counting.text, bind_values(counting.values, bindings))
    return _Sample(*row)


def _expected(
    statement: Statement, expected: NumberedSql, bindings: Bindings, estimator: Estimator
) -> float:
    """Return how many rows PostgreSQL expects, by statistics that are not outdated."""
    analyze_outdated(statement.touched_collections, estimator)
    values = bind_values(expected.values, bindings)
    return expected_rows(plan_of(estimator.fetch, expected.text, values))
