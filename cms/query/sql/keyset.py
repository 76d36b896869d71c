"""The printer of the start of a page with a cursor: behind the values of the last row before it.

Nulls sort as the largest values, as PostgreSQL has it.
"""

from __future__ import annotations

from cms.fragment import Fragment, commas, fill, param
from cms.query.plan.bindings import Placeholder
from cms.query.plan.read_plan import Order
from cms.query.sql.clauses import sorted_value
from cms.query.sql.expressions import FALSE, TRUE, join_conditions
from cms.schema.types.field_type import Trait

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
