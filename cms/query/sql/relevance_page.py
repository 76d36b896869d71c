"""What the rows of a page by relevance have in common, whichever way they are read."""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, fill, name, param, text
from cms.query.plan.read_plan import Order, ReadPlan
from cms.query.sql.clauses import conditions, order_by, row_limit
from cms.query.sql.keyset import behind

MAX_ROWS_IN_ORDER = 30_000
"""How many rows are read in order: where the best come late, this is what was in vain."""

# The inner LIMIT keeps PostgreSQL from choosing another way to these rows.
_IN_ORDER = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2} LIMIT {3}) AS t0{4}) "
    "AS t0{5}"
)
_IS_PAGE = "(SELECT count(*) FROM {0}) >= {1}"


def in_order(plan: ReadPlan, beginning: Fragment, *, page: Fragment, when: Fragment) -> Fragment:
    """Print rows that are read in the order behind the relevance, until a page of them is full.

    `beginning` says behind what, `page` which of them are on the page, `when` whether any is read.
    """
    return fill(
        _IN_ORDER,
        name(plan.collection.name),
        conditions(beginning),
        order_by(plan.order[1:], 0),
        text(str(MAX_ROWS_IN_ORDER)),
        page,
        when,
    )


def start_relevance(plan: ReadPlan) -> Fragment | None:
    """Print the relevance of the row that the page begins behind; None on the first page."""
    if not plan.cursor or not plan.cursor.starts:
        return None
    start = plan.cursor.starts[0]
    assert start is not None
    return param(start, plan.order[0].value.cast)


def behind_equals(plan: ReadPlan) -> Fragment:
    """Print that a row comes behind the page before: those equal in relevance, by later terms."""
    if not plan.cursor or not plan.cursor.starts:
        return EMPTY
    return behind(plan.cursor.terms[1:], plan.cursor.starts[1:])


def is_page(part: str, plan: ReadPlan) -> Fragment:
    """Print that a part of the statement has the rows of a whole page."""
    return fill(_IS_PAGE, text(part), text(str(row_limit(plan.page))))


def has_order_index(term: Order) -> bool:
    """Tell whether an index has the rows in the order of a term."""
    value = term.value
    column = value.field.column
    if term.path or value.is_computed or value.when is not None or column is None:
        return False
    return column.is_primary_key or column.is_indexed or column.is_unique
