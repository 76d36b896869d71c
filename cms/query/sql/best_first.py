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

# No collection has this name. UNION ALL may give rows in any order: they are sorted outside.
_BEST_OR_ALL = (
    "(WITH system_best AS MATERIALIZED (SELECT t0.* FROM {0} AS t0{1}) SELECT * FROM system_best "
    "WHERE {3} UNION ALL (SELECT t0.* FROM {0} AS t0{2})) AS t0"
)
# A word that few rows hold is not looked for twice. A sample of 0 percent has no rows.
_IS_FREQUENT = (
    "EXISTS (SELECT FROM {0} AS t0 TABLESAMPLE SYSTEM ((SELECT CASE WHEN bytes > {3} "
    "THEN {4}.0 / bytes ELSE 0 END FROM pg_relation_size(quote_ident({2})::regclass) AS bytes)){1})"
)


def best_first(plan: ReadPlan) -> Fragment:
    """Print rows among which are the first ones of an order by relevance, up to the page's end."""
    first, *later = plan.order
    starts = plan.cursor.starts if plan.cursor else ()
    tail = rows_up_to_limit(plan.page)
    begins_behind = behind(plan.order, starts) if starts else EMPTY
    found = predicate(plan.allowed, 0), predicate(plan.where, 0)
    limit = row_limit(plan.page)
    is_filled = fill("(SELECT count(*) FROM system_best) = {0}", text(str(limit)))
    return fill(
        _BEST_OR_ALL,
        name(plan.collection.name),
        concat(_best(plan, first, tuple(later), starts), order_by(tuple(later), 0), tail),
        concat(
            conditions(concat("NOT ", is_filled), begins_behind, *found),
            order_by(plan.order, 0),
            tail,
        ),
        is_filled,
    )


def _best(
    plan: ReadPlan, first: Order, later: tuple[Order, ...], starts: tuple[Start, ...]
) -> Fragment:
    """Print the conditions of the rows that fit best, behind the start of the page."""
    assert plan.best is not None
    rows = (predicate(plan.allowed, 0), predicate(plan.best, 0))
    is_frequent = fill(
        _IS_FREQUENT,
        name(plan.collection.name),
        conditions(*rows),
        param(plan.collection.name, "text"),
        text(str(LARGE_BYTES)),
        text(str(100 * SAMPLE_BYTES)),
    )
    begin: list[Fragment] = []
    if starts:
        relevance = first.value.relevance
        start = starts[0]
        assert relevance is not None and start is not None
        # Equal in relevance, they are told apart by the other terms. Behind a row that fits less
        # there is none of them.
        fits_best = fill(
            "{0} = {1}", param(start, first.value.cast), text(str(best_relevance(relevance)))
        )
        begin = [fits_best, behind(later, starts[1:])]
    return conditions(*begin, is_frequent, *rows)
