"""The printer of clauses of a read: which rows, in which order, how many at most."""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, clause, concat, fill, optional, text
from cms.query.plan.read_plan import AggregateValue, Order, Page, ReadPlan
from cms.query.sql.columns import alias, rows_of
from cms.query.sql.expressions import TRUE, compared, link_condition, predicate
from cms.schema.types.field_type import Trait


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


def sorted_value(term: Order, level: int) -> Fragment:
    """Print the value of a term; at the end of a path it is a scalar sub-select.

    A join could drop or multiply rows.
    """
    # Nulls last in both directions: a list has a value as long as one of its items has one. Types
    # without min() have an order as well.
    first_value = concat(" ORDER BY 1", optional(" DESC NULLS LAST", when=term.descending))
    value = compared(term.value, level + len(term.path), Trait.SORTING)
    # From the end of the path inwards: each sub-select stands inside that of the step before it.
    for index, step in reversed(list(enumerate(term.path))):
        table = concat(rows_of(step.link.target), f" AS {alias(level + index + 1)}")
        condition = link_condition(step, level + index)
        if step.link.to_many:
            condition += first_value
        # Not always: PostgreSQL takes longer with it.
        one = optional(" LIMIT 1", when=step.link.to_many or step.link.may_repeat)
        value = fill("(SELECT {0} FROM {1} WHERE {2}{3})", value, table, condition, one)
    return value
