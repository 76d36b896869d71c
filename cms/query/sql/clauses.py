"""The printer of clauses of a read: which rows, in which order, how many at most."""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, clause, fill, optional, text
from cms.query.plan.read_plan import AggregateValue, Order, Page, ReadPlan
from cms.query.sql.expressions import TRUE, predicate
from cms.query.sql.sorted_values import sorted_value


def where(plan: ReadPlan, level: int, linked: Fragment = EMPTY) -> Fragment:
    return conditions(linked, predicate(plan.allowed, level), predicate(plan.where, level))


def conditions(*fragments: Fragment) -> Fragment:
    parts = [part for part in fragments if part not in (EMPTY, TRUE)]
    return clause(" WHERE ", parts, separator=" AND ")


def order_by(order: tuple[Order, ...], level: int) -> Fragment:
    terms = []
    for term in order:
        terms.append(fill("{0}{1}", sorted_value(term, level), direction(term)))
    return clause(" ORDER BY ", terms)


def direction(term: Order | AggregateValue) -> Fragment:
    return optional(" DESC", when=term.descending)


def rows_up_to_limit(page: Page | None) -> Fragment:
    """Print the limit that the page lies within, one of the parser's round numbers."""
    limit = row_limit(page)
    if limit is None:
        return EMPTY
    return text(f" LIMIT {limit}")


def row_limit(page: Page | None) -> int | None:
    """Return how many rows the page and the row behind it lie within; None is all of them."""
    if page is None or not page.row_limit:
        return None
    return page.row_limit + page.has_next_row
