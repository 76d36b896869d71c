"""The printer of a page by relevance: it ranks all rows that are found only where it has to.

Most pages are full of rows that fit best, which are equal in relevance, so that indexes find them
and their order. Where these do not fill the page, all rows that are found are ranked.
"""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, concat, fill, name, param, text
from cms.query.plan.best_matches import best_relevance
from cms.query.plan.resolved import Order, ReadPlan
from cms.query.sql.clauses import conditions, order_by, row_limit, rows_up_to_limit
from cms.query.sql.expressions import predicate
from cms.query.sql.keyset import Start, behind

SAMPLE_BYTES = 40 * 8192
"""How much of a table is looked at for one of the best rows: a thousand short ones."""

LARGE_BYTES = 16 * 2**20
"""Size of a table from which ranking everything may take longer than looking at the sample."""

# No collection has this name. UNION ALL may give rows in any order: they are sorted outside. What
# decides whether a part is read stands outside of it: within, PostgreSQL might start a parallel
# worker first, which takes ten milliseconds.
_BEST_OR_ALL = (
    "(WITH system_best AS MATERIALIZED (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}) AS t0{2}) "
    "SELECT * FROM system_best WHERE {4} "
    "UNION ALL SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{3}) AS t0 WHERE NOT {4}) AS t0"
)
# A word that few rows hold is not looked for twice. A sample of 0 percent has no rows.
_IS_FREQUENT = (
    "EXISTS (SELECT FROM {0} AS t0 TABLESAMPLE SYSTEM ((SELECT CASE WHEN bytes > {3} "
    "THEN {4}.0 / bytes ELSE 0 END FROM pg_relation_size(quote_ident({2})::regclass) AS bytes)){1})"
)


def best_first(plan: ReadPlan) -> Fragment:
    """Print rows among which are the first ones of an order by relevance, up to the page's end."""
    assert plan.best is not None
    starts: tuple[Start, ...] = ()
    behind_best = EMPTY
    behind_any = EMPTY
    tail = rows_up_to_limit(plan.page)
    allowed = predicate(plan.allowed, 0)
    best = predicate(plan.best, 0)
    if plan.cursor and plan.cursor.starts:
        terms = plan.cursor.terms
        starts = plan.cursor.starts
        # Rows that fit best are equal in relevance: the other terms tell them apart.
        behind_best = behind(terms[1:], starts[1:])
        behind_any = behind(terms, starts)
    best_rows = conditions(behind_best, allowed, best)
    all_rows = conditions(behind_any, allowed, predicate(plan.where, 0))
    is_filled = "(SELECT count(*) FROM system_best) = {0}"
    return fill(
        _BEST_OR_ALL,
        name(plan.collection.name),
        concat(best_rows, order_by(plan.order[1:], 0), tail),
        conditions(_fits_best(plan.order[0], starts), _is_frequent(plan, allowed, best)),
        concat(all_rows, order_by(plan.order, 0), tail),
        fill(is_filled, text(str(row_limit(plan.page)))),
    )


def _fits_best(first: Order, starts: tuple[Start, ...]) -> Fragment:
    """Print that the page begins behind a row that fits best: behind others there is none."""
    if not starts:
        return EMPTY
    relevance = first.value.relevance
    start = starts[0]
    assert relevance is not None and start is not None
    best = text(str(best_relevance(relevance)))
    return fill("{0} = {1}", param(start, first.value.cast), best)


def _is_frequent(plan: ReadPlan, allowed: Fragment, best: Fragment) -> Fragment:
    return fill(
        _IS_FREQUENT,
        name(plan.collection.name),
        conditions(allowed, best),
        param(plan.collection.name, "text"),
        text(str(LARGE_BYTES)),
        text(str(100 * SAMPLE_BYTES)),
    )
