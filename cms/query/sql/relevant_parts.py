"""Rows with a part of one word, which come behind those with the whole word.

Those in the fields that count most are equal in relevance. So they are read in their order, where
the sample promises a page of them soon, or found by an index without ranking.
"""

from __future__ import annotations

from collections.abc import Iterator

from cms.fragment import EMPTY, Fragment, concat, fill, join, name, text
from cms.query.plan.read_plan import PartRows, Predicate, ReadPlan
from cms.query.sql.clauses import conditions, order_by, rows_up_to_limit
from cms.query.sql.expressions import expression, predicate
from cms.query.sql.relevance_page import (
    behind_equals,
    has_order_index,
    in_order,
    is_page,
    start_relevance,
)
from cms.query.sql.relevance_sample import is_quicker_in_order

COST_IN_ORDER = 0.5
"""What a row costs that is read in order, where one that is found by a part of a word costs 1."""

# Only the rows of one page are searched for the whole word, where that is enough.
_PARTS_BY_INDEX = (
    "SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1} OFFSET 0) "
    "AS t0{2}) AS t0{3}) AS t0{4}"
)


def with_parts(plan: ReadPlan, parts: PartRows, whole: str) -> Fragment:
    """Print the rows with a whole word, and where these are no page, one of those with parts."""
    rows = [fill("SELECT * FROM {0}", text(whole))]
    is_needed = fill("NOT {0}", is_page(whole, plan))
    ordered = EMPTY
    if has_order_index(plan.order[1]):
        is_full = is_page("system_ordered", plan)
        in_order_rows = join(" UNION ALL ", _parts_in_order(plan, parts, is_needed))
        ordered = fill("system_ordered AS MATERIALIZED ({0}), ", in_order_rows)
        rows.append(fill("SELECT * FROM system_ordered WHERE {0}", is_full))
        is_needed = fill("{0} AND NOT {1}", is_needed, is_full)
    if parts.by_index is not None:
        rows.extend(_parts_by_index(plan, parts, parts.by_index, is_needed))
    return fill("{0}system_parts AS MATERIALIZED ({1})", ordered, join(" UNION ALL ", rows))


def _parts_in_order(plan: ReadPlan, parts: PartRows, is_needed: Fragment) -> Iterator[Fragment]:
    has_part = predicate(plan.allowed, 0), predicate(parts.where, 0)
    is_quicker = is_quicker_in_order(plan, "parts", COST_IN_ORDER)
    for beginning, is_behind in _beginnings(plan, parts):
        yield in_order(
            plan,
            beginning,
            page=_page_of_parts(plan, parts, *has_part),
            when=conditions(is_behind, is_needed, is_quicker),
        )


def _parts_by_index(
    plan: ReadPlan, parts: PartRows, by_index: Predicate, is_needed: Fragment
) -> Iterator[Fragment]:
    first = EMPTY
    if start_relevance(plan) is None:
        # Those with the whole word are all in the table before, and fill the page with the others.
        first = concat(order_by(plan.order[1:], 0), rows_up_to_limit(plan.page))
    for beginning, is_behind in _beginnings(plan, parts):
        yield fill(
            _PARTS_BY_INDEX,
            name(plan.collection.name),
            conditions(beginning, predicate(plan.allowed, 0), predicate(by_index, 0)),
            first,
            _page_of_parts(plan, parts),
            conditions(is_behind, is_needed),
        )


def _beginnings(plan: ReadPlan, parts: PartRows) -> list[tuple[Fragment, Fragment]]:
    """Return behind what parts are read, and when: behind whole words, the first parts come."""
    start = start_relevance(plan)
    if start is None:
        return [(EMPTY, EMPTY)]
    relevance = text(str(parts.relevance))
    return [
        (behind_equals(plan), fill("{0} = {1}", start, relevance)),
        (EMPTY, fill("{0} > {1}", start, relevance)),
    ]


def _page_of_parts(plan: ReadPlan, parts: PartRows, *has_part: Fragment) -> Fragment:
    """Print a page of the rows that have parts, but not the whole word."""
    relevance = expression(plan.order[0].value, 0)
    counts_as_part = fill("{0} = {1}", relevance, text(str(parts.relevance)))
    later = order_by(plan.order[1:], 0)
    return concat(conditions(*has_part, counts_as_part), later, rows_up_to_limit(plan.page))
