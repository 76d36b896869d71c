"""The printer of clauses of a read: which rows, in which order, behind which row, how many."""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, clause, commas, concat, fill, optional, param, text
from cms.query.plan.bindings import Placeholder
from cms.query.plan.read_plan import AggregateValue, Order, Page, ReadPlan
from cms.query.sql.columns import alias, rows_of
from cms.query.sql.expressions import (
    FALSE,
    TRUE,
    compared,
    join_conditions,
    link_condition,
    predicate,
)
from cms.schema.types.field_type import Trait


def where(plan: ReadPlan, level: int, linked: Fragment = EMPTY) -> Fragment:
    return conditions(linked, predicate(plan.allowed, level), predicate(plan.where, level))


def conditions(*fragments: Fragment) -> Fragment:
    parts = [part for part in fragments if part not in (EMPTY, TRUE)]
    return clause(" WHERE ", parts, separator=" AND ")


def order_by(order: tuple[Order, ...], level: int) -> Fragment:
    terms = [fill("{0}{1}", sorted_value(term, level), direction(term)) for term in order]
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


# The start of a page with a cursor. Nulls sort as the largest values, as PostgreSQL has it.


Start = Placeholder | None
"""The value of the last row in a term of the order; None is null."""


def behind(order: tuple[Order, ...], starts: tuple[Start, ...]) -> Fragment:
    """Print that a row comes behind the one whose terms have the values `starts`."""
    if _is_one_range(order, starts):
        return _row_comparison(order, starts)
    chain = FALSE
    # a > 1 OR (a = 1 AND (b < 2 OR …)), from the last term on: each is printed twice, however many
    # terms stand before it.
    for term, start in reversed(list(zip(order, starts, strict=True))):
        alternatives: list[Fragment] = []
        later = _later(term, start)
        if later is not None:
            alternatives.append(later)
        if chain != FALSE:
            alternatives.append(join_conditions([_equal(term, start), chain], " AND ", TRUE))
        chain = join_conditions(alternatives, " OR ", FALSE)
    # PostgreSQL takes no range of an index from an OR, but from what all its parts imply.
    bound = _bound(order[0], starts[0])
    if bound is None:
        return chain
    return join_conditions([bound, chain], " AND ", TRUE)


def _is_one_range(order: tuple[Order, ...], starts: tuple[Start, ...]) -> bool:
    """Tell whether the rows behind are those with a greater (or a smaller) list of values."""
    if None in starts or any(map(_may_be_null, order)):
        return False
    return all(term.descending == order[0].descending for term in order)


def _row_comparison(order: tuple[Order, ...], starts: tuple[Start, ...]) -> Fragment:
    values = []
    operands = []
    for term, start in zip(order, starts, strict=True):
        values.append(sorted_value(term, 0))
        operands.append(_operand(term, start))
    shape = "({0}) < ({1})" if order[0].descending else "({0}) > ({1})"
    return fill(shape, commas(values), commas(operands))


def _later(term: Order, start: Start) -> Fragment | None:
    """Print that the value of a term comes after the start; None where nothing does."""
    value = sorted_value(term, 0)
    # In descending order nulls come first, as they count as the largest values.
    if term.descending:
        if start is None:
            return fill("{0} IS NOT NULL", value)
        return fill("{0} < {1}", value, _operand(term, start))
    if start is None:
        return None
    later = fill("{0} > {1}", value, _operand(term, start))
    if _may_be_null(term):
        return fill("({0} OR {1} IS NULL)", later, value)
    return later


def _equal(term: Order, start: Start) -> Fragment:
    value = sorted_value(term, 0)
    if start is None:
        return fill("{0} IS NULL", value)
    return fill("{0} = {1}", value, _operand(term, start))


def _bound(term: Order, start: Start) -> Fragment | None:
    """Print a range of the first term that all rows behind are in; None without one."""
    value = sorted_value(term, 0)
    if term.descending:
        # Behind nulls, which come first, are all other rows.
        if start is None:
            return None
        return fill("{0} <= {1}", value, _operand(term, start))
    if start is None:
        return fill("{0} IS NULL", value)
    # Nulls come last, and no range of other values has them.
    if _may_be_null(term):
        return None
    return fill("{0} >= {1}", value, _operand(term, start))


def _operand(term: Order, start: Start) -> Fragment:
    assert start is not None
    column = term.value.field.column
    if not term.value.is_computed and column is not None and column.base_type == "bpchar":
        return param(start, column.cast)
    return param(start, term.value.own_cast(Trait.SORTING) or term.value.cast)


def _may_be_null(term: Order) -> bool:
    if term.path or term.value.is_computed or term.value.when is not None:
        return True
    column = term.value.field.column
    return column is None or column.is_nullable
