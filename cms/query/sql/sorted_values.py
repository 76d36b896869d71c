"""The printer of the values that rows are sorted by."""

from __future__ import annotations

from cms.fragment import Fragment, concat, fill, optional
from cms.query.plan.read_plan import Order
from cms.query.sql.columns import alias, rows_of
from cms.query.sql.expressions import compared, link_condition
from cms.schema.types.field_type import Trait


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
