"""The printer of reads: a plan in, one statement out. A function for each syntactic idea."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from cms.fragment import EMPTY, Fragment, commas, concat, fill, join, name, param, text
from cms.query.plan.resolved import (
    AggregateValue,
    Embed,
    EmbedChoice,
    Grouping,
    Order,
    Output,
    Page,
    ReadPlan,
    Value,
    ValueOutput,
    group_paths,
)
from cms.query.sql.expressions import TRUE, alias, expression, link_condition, predicate

_FRESH = "SELECT {0}, v.structure, v.access, r.found{1} FROM system_version AS v LEFT JOIN LATERAL ({2}) AS r ON TRUE"
_ROWS = "SELECT {0} FROM {1}{2}"


def select(plan: ReadPlan) -> Fragment:
    """Print a read with the counters of freshness beside it.

    The columns are the outputs in order (`c0 …`), the two counters, TRUE (NULL for the one row that stands for
    no rows at all) and the counts that were asked for. The join to one row keeps the order of the rows: nothing
    but a nested loop can carry out ON TRUE.
    """
    shown = group_outputs(plan, plan.grouping, 0) if plan.grouping else top_outputs(plan)
    columns = commas(text(f"r.c{n}") for n in range(len(shown))) if shown else text("NULL")
    outputs = (concat(value, f" AS c{n}") for n, value in enumerate(shown))
    inner = rows(plan, commas([text("TRUE AS found"), *outputs]), 0)
    return fill(_FRESH, columns, counts(plan), inner)


def top_outputs(plan: ReadPlan) -> list[Fragment]:
    return [output(item, 0) for item in plan.outputs]


def rows(plan: ReadPlan, shown: Fragment, level: int, *, linked: Fragment = EMPTY) -> Fragment:
    """Print the rows of one level; `linked` is the condition that ties them to the row above."""
    source = fill(
        "{0} AS {1}{2}", name(plan.collection.name), text(alias(level)), where(plan, level, linked)
    )
    rest = window(plan.page)
    if plan.grouping:
        return fill(
            _ROWS,
            shown,
            source,
            grouping_tail(plan.grouping, level) + (rest or rows_up_to_limit(plan.page)),
        )
    ordered = concat(source, order_by(plan.order, level), rows_up_to_limit(plan.page))
    return fill(_ROWS, shown, cut_page(ordered, rest, level) if rest else ordered, EMPTY)


def cut_page(ordered: Fragment, rest: Fragment, level: int) -> Fragment:
    """Cut a page out before its rows are dressed: what stands beside OFFSET is worked out for skipped rows too."""
    shape = "(SELECT {0}.* FROM (SELECT {0}.* FROM {1}) AS {0}{2}) AS {0}"
    return fill(shape, text(alias(level)), ordered, rest)


def where(plan: ReadPlan, level: int, linked: Fragment = EMPTY) -> Fragment:
    return conditions(linked, predicate(plan.allowed, level), predicate(plan.where, level))


def conditions(*said: Fragment) -> Fragment:
    parts = [part for part in said if part not in (EMPTY, TRUE)]
    return concat(" WHERE ", join(" AND ", parts)) if parts else EMPTY


def rows_up_to_limit(page: Page | None) -> Fragment:
    """Print the number of rows that the page lies within; it is one of the parser's round numbers."""
    return text(f" LIMIT {page.row_limit}") if page and page.row_limit else EMPTY


def window(page: Page | None) -> Fragment:
    """Print which of those rows the page is."""
    limit = concat(" LIMIT ", param(page.limit, "bigint")) if page and page.limit else EMPTY
    return limit + (
        concat(" OFFSET ", param(page.offset, "bigint")) if page and page.offset else EMPTY
    )


def counts(plan: ReadPlan) -> Fragment:
    counted = {
        "total_count": conditions(predicate(plan.allowed, 0)),
        "filter_count": where(plan, 0),
    }
    found = (
        fill("(SELECT count(*) FROM {0} AS t0{1})", name(plan.collection.name), counted[count])
        for count in plan.counts
    )
    return join("", (concat(", ", count) for count in found))


# Outputs


def output(item: Output, level: int) -> Fragment:
    match item:
        case ValueOutput(_, value, plain):
            return fill("{0}::text", expression(value, level)) if plain else shown(value, level)
        case Embed():
            return embed_many(item, level) if item.step.link.to_many else embed_one(item, level)
        case EmbedChoice():
            return embed_choice(item, level)
        case _ as never:
            assert_never(never)


def shown(value: Value, level: int) -> Fragment:
    """Print how a value looks in an answer, at any depth."""
    inner = expression(value, level)
    return inner if value.function else fill(value.field.show, inner)


def embed_one(item: Embed, level: int) -> Fragment:
    return fill("(SELECT {0} FROM ({1}) AS n)", embedded_item(item), related_rows(item, level))


def embed_many(item: Embed, level: int) -> Fragment:
    shape = "coalesce((SELECT json_agg({0}) FROM ({1}) AS n), '[]'::json)"
    return fill(shape, embedded_item(item), related_rows(item, level))


def embed_choice(item: EmbedChoice, level: int) -> Fragment:
    return concat("coalesce(", commas(embed_one(arm, level) for arm in item.arms), ")")


def related_rows(item: Embed, level: int) -> Fragment:
    """Print the rows that a link leads to, as columns c0 … or under their own names."""
    plan = item.plan
    if plan.grouping:
        found = [
            (f"c{n}", value)
            for n, value in enumerate(group_outputs(plan, plan.grouping, level + 1))
        ]
    else:
        keys = (f"c{n}" if plan.renamed else output.key for n, output in enumerate(plan.outputs))
        found = [
            (key, output(shown, level + 1)) for key, shown in zip(keys, plan.outputs, strict=True)
        ]
    outputs = commas(concat(value, " AS ", name(key)) for key, value in found)
    return rows(plan, outputs, level + 1, linked=link_condition(item.step, level))


def embedded_item(item: Embed) -> Fragment:
    """Print one related item as JSON."""
    if item.keys_only:
        return concat("n.", name(item.plan.outputs[0].key))
    if item.plan.grouping:
        return as_object(group_paths(item.plan))
    if item.plan.renamed:
        return as_object(tuple((shown.key,) for shown in item.plan.outputs))
    return text(
        "row_to_json(n.*)"
    )  # n alone would be the field of that name in a collection that has one


def as_object(paths: Sequence[tuple[str, ...]], columns: Sequence[int] | None = None) -> Fragment:
    """Print the columns c0 … as one object with these keys, which are parameters: some come from the request.

    PostgreSQL's own function for it takes fifty keys at most, so the object is put together as text.
    """
    places = range(len(paths)) if columns is None else columns
    members = []
    for key in dict.fromkeys(path[0] for path in paths):
        inner = [
            (path[1:], place) for path, place in zip(paths, places, strict=True) if path[0] == key
        ]
        leaf = fill("to_json(n.{0})", text(f"c{inner[0][1]}"))
        value = (
            leaf
            if not inner[0][0]
            else as_object([path for path, _ in inner], [place for _, place in inner])
        )
        members.append(
            fill("{0} || coalesce({1}::text, 'null')", param(f"{json.dumps(key)}:", "text"), value)
        )
    return fill("('{' || {0} || '}')::json", join(" || ',' || ", members))


# Order


def order_by(order: tuple[Order, ...], level: int) -> Fragment:
    terms = [fill("{0}{1}", sorted_value(term, level), direction(term)) for term in order]
    return concat(" ORDER BY ", commas(terms)) if terms else EMPTY


def sorted_value(term: Order, level: int) -> Fragment:
    """A value at the end of a path is a scalar sub-select: it neither drops nor multiplies rows."""
    path, depth = term.path, level + len(term.path)
    found = expression(term.value, depth)
    for place, step in reversed(list(enumerate(path))):
        table = concat(name(step.link.target), f" AS {alias(level + place + 1)}")
        found = fill(
            "(SELECT {0} FROM {1} WHERE {2})", found, table, link_condition(step, level + place)
        )
    return found


def direction(term: Order | AggregateValue) -> Fragment:
    return text(" DESC") if term.descending else EMPTY


# Groups


def group_outputs(plan: ReadPlan, grouping: Grouping, level: int) -> list[Fragment]:
    groups = [shown(group.value, level) for group in grouping.groups]
    return groups + [aggregate_output(item, level) for item in grouping.aggregates]


def grouping_tail(grouping: Grouping, level: int) -> Fragment:
    values = [expression(group.value, level) for group in grouping.groups]
    group_by = concat(" GROUP BY ", commas(values)) if values else EMPTY
    terms = [
        fill(
            "{0}{1}",
            aggregate(term, level)
            if isinstance(term, AggregateValue)
            else expression(term.value, level),
            direction(term),
        )
        for term in grouping.order
    ]
    return group_by + (concat(" ORDER BY ", commas(terms)) if terms else EMPTY)


_AGGREGATES = {
    "count": "count({0})",
    "countAll": "count({0})",
    "countDistinct": "count(DISTINCT {0})",
    "sum": "sum({0})",
    "sumDistinct": "sum(DISTINCT {0})",
    "avg": "avg({0})",
    "avgDistinct": "avg(DISTINCT {0})",
    "min": "min({0})",
    "max": "max({0})",
}


def aggregate(item: AggregateValue, level: int) -> Fragment:
    """Print an aggregate as it is sorted by."""
    if item.value is None:
        return text("count(*)")
    return fill(_AGGREGATES[item.function], expression(item.value, level))


# JSON has no NaN and no infinity; the sum of 64-bit numbers is beyond 64 bits, and their average a numeric.
_SUMS = {
    "float": "CASE WHEN {0} - {0} = 0 THEN to_json({0}) END",
    "decimal": "CASE WHEN {0} - {0} = 0 THEN to_json(trim_scale({0})) END",
    "integer": "to_json(trim_scale({0}::numeric))",
}


def aggregate_output(item: AggregateValue, level: int) -> Fragment:
    """Print an aggregate as it is shown."""
    found = aggregate(item, level)
    if item.value is None or item.function.startswith("count"):
        return found
    if item.function in ("min", "max"):
        return fill(item.value.field.show, found)
    return fill(_SUMS.get(item.value.field.type_name, "to_json(trim_scale({0}))"), found)
