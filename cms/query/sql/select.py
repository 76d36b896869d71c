"""The printer of reads: a plan in, one statement out. A function for each syntactic idea."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from cms.fragment import (
    EMPTY,
    Fragment,
    clause,
    commas,
    concat,
    fill,
    join,
    name,
    param,
    text,
)
from cms.query.language.ast import RowOutput
from cms.query.plan.document_paths import JsonPath
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
from cms.query.plan.shared_masks import share_masks
from cms.query.sql import json_paths
from cms.query.sql.best_first import best_first
from cms.query.sql.clauses import conditions, direction, order_by, rows_up_to_limit, where
from cms.query.sql.columns import alias
from cms.query.sql.expressions import (
    expression,
    json_member,
    link_condition,
    predicate,
)
from cms.query.sql.highlight import highlight_columns
from cms.query.sql.keyset import behind
from cms.query.sql.sorted_values import sorted_value

_WITH_VERSION = (
    "SELECT {0}, v.structure, v.access, v.flows, r.found{1} "
    "FROM system_version AS v LEFT JOIN LATERAL ({2}) AS r ON TRUE"
)
_ROWS = "SELECT {0} FROM {1}{2}"


def select(plan: ReadPlan) -> Fragment:
    """Print a read with the counters of freshness beside it.

    The columns are the outputs in order (`c0 …`), the counters, TRUE (NULL in the one row of an
    empty answer) and the counts that were asked for. The join with the one row of `system_version`
    keeps the order of the rows: only a nested loop can carry out ON TRUE.
    """
    plan = share_masks(plan)
    shown = group_outputs(plan, plan.grouping, 0) if plan.grouping else top_outputs(plan)
    # For two fields, roughly: SELECT r.c0, r.c1, v.structure, v.access, v.flows, r.found FROM
    # system_version AS v LEFT JOIN LATERAL (SELECT TRUE AS found, t0."id" AS c0, t0."title" AS c1
    # FROM "articles" AS t0 ORDER BY t0."id" LIMIT 100) AS r ON TRUE
    columns = commas(text(f"r.c{n}") for n in range(len(shown))) if shown else text("NULL")
    outputs = (concat(value, f" AS c{n}") for n, value in enumerate(shown))
    inner = rows(plan, commas([text("TRUE AS found"), *outputs]), 0)
    return fill(_WITH_VERSION, columns, count_columns(plan), inner)


def top_outputs(plan: ReadPlan) -> list[Fragment]:
    """Print what a read shows of each item, and behind it what the service reads of the row."""
    outputs = [output(item, 0) for item in plan.outputs]
    row_values = [fill("{0}::text", expression(item.value, 0)) for item in plan.row_values]
    cursor = [fill("{0}::text", sorted_value(term, 0)) for term in _cursor_terms(plan)]
    return outputs + row_values + cursor + highlight_columns(plan.highlights)


def _cursor_terms(plan: ReadPlan) -> tuple[Order, ...]:
    return plan.cursor.terms if plan.cursor else ()


def rows(plan: ReadPlan, shown: Fragment, level: int, *, linked: Fragment = EMPTY) -> Fragment:
    """Print the rows of one level; `linked` is the condition that links them to the row above."""
    if plan.cursor and plan.cursor.starts:
        linked = behind(plan.cursor.terms, plan.cursor.starts)  # nothing leads to the top
    if plan.best is not None:
        source = best_first(plan)
    else:
        condition = where(plan, level, linked)
        source = fill("{0} AS {1}{2}", name(plan.collection.name), text(alias(level)), condition)
    page = window(plan.page)
    if plan.grouping:
        # Groups are few and computed anyway: the exact page takes the place of the round limit.
        tail = grouping_tail(plan.grouping, level) + (page or rows_up_to_limit(plan.page))
        return fill(_ROWS, shown, with_masks(plan, source, level), tail)
    ordered = concat(source, order_by(plan.order, level), rows_up_to_limit(plan.page))
    paged = cut_page(ordered, page, level) if page else ordered
    return fill(_ROWS, shown, with_masks(plan, paged, level), EMPTY)


def with_masks(plan: ReadPlan, source: Fragment, level: int) -> Fragment:
    """Print rows with a column for each rule that their fields share.

    A sub-select with an OFFSET stays one, so that PostgreSQL tests each rule once for a row, and
    not where its result is used. As a LATERAL join it could not hash the sub-selects of rules.
    """
    if not plan.masks:
        return source
    row = alias(level)
    columns = [text(f"{row}.*")]
    # `*` does not name PostgreSQL's own column.
    if any(item.output is RowOutput.VERSION for item in plan.row_values):
        columns.append(text(f"{row}.xmin"))
    for mask in plan.masks:
        columns.append(concat(predicate(mask.rule, level), " AS ", name(mask.name)))
    return fill("(SELECT {0} FROM {1} OFFSET 0) AS {2}", commas(columns), source, text(row))


def cut_page(ordered: Fragment, page: Fragment, level: int) -> Fragment:
    """Print a page that is cut out before its outputs are computed.

    PostgreSQL computes the outputs beside an OFFSET for skipped rows, too.
    """
    shape = "(SELECT {0}.* FROM (SELECT {0}.* FROM {1}) AS {0}{2}) AS {0}"
    return fill(shape, text(alias(level)), ordered, page)


def window(page: Page | None) -> Fragment:
    """Print the exact limit and offset of the page, empty where it is the first rows."""
    limit = EMPTY
    offset = EMPTY
    if page and page.limit:
        limit = concat(" LIMIT ", param(page.limit, "bigint"), " + 1" if page.has_next_row else "")
    if page and page.offset:
        offset = concat(" OFFSET ", param(page.offset, "bigint"))
    return limit + offset


def count_columns(plan: ReadPlan) -> Fragment:
    filters = {
        # Counts have sub-selects of their own, as the rows beside them are only those of one page.
        "total_count": conditions(predicate(plan.allowed, 0)),
        "filter_count": where(plan, 0),
    }
    shape = ", (SELECT count(*) FROM {0} AS t0{1})"
    table = name(plan.collection.name)
    return join("", (fill(shape, table, filters[count]) for count in plan.counts))


# Outputs


def output(item: Output, level: int) -> Fragment:
    match item:
        case ValueOutput(_, value):
            return output_value(value, level)
        case Embed():
            return embed_many(item, level) if item.step.link.to_many else embed_one(item, level)
        case EmbedChoice():
            return embed_choice(item, level)
        case _ as never:
            assert_never(never)


def output_value(value: Value, level: int) -> Fragment:
    """Print how a value looks in an answer, at any depth."""
    if isinstance(value.at, JsonPath):
        return json_member(value, value.at, level)
    inner = expression(value, level)
    return inner if value.is_computed else fill(value.field.json_sql, inner)


def embed_one(item: Embed, level: int) -> Fragment:
    return fill("(SELECT {0} FROM ({1}) AS n)", embedded_item(item), related_rows(item, level))


def embed_many(item: Embed, level: int) -> Fragment:
    # json_agg of no rows is NULL, while a list without items is [].
    shape = "coalesce((SELECT json_agg({0}) FROM ({1}) AS n), '[]'::json)"
    return fill(shape, embedded_item(item), related_rows(item, level))


def embed_choice(item: EmbedChoice, level: int) -> Fragment:
    # At most one is not NULL: the collection field of a row names one collection.
    return concat("coalesce(", commas(embed_one(embed, level) for embed in item.embeds), ")")


def related_rows(item: Embed, level: int) -> Fragment:
    """Print the rows that a link leads to, with columns c0 … or named as the keys of the answer."""
    plan = share_masks(item.plan)
    if plan.grouping:
        values = group_outputs(plan, plan.grouping, level + 1)
        keys = [f"c{n}" for n in range(len(values))]
    else:
        values = [output(inner, level + 1) for inner in plan.outputs]
        keys = [f"c{n}" if plan.renamed else inner.key for n, inner in enumerate(plan.outputs)]
    named = zip(keys, values, strict=True)
    outputs = commas(concat(value, " AS ", name(key)) for key, value in named)
    return rows(plan, outputs, level + 1, linked=link_condition(item.step, level))


def embedded_item(item: Embed) -> Fragment:
    """Print one related item as JSON."""
    # Keys are shown as they are, and not as objects with one member.
    if item.keys_only:
        return concat("n.", name(item.plan.outputs[0].key))
    if item.plan.grouping:
        return as_object(group_paths(item.plan))
    # Aliases come from the request and so are parameters; long names fit no column.
    if item.plan.renamed:
        return as_object(tuple((shown.key,) for shown in item.plan.outputs))
    # `n` alone would be the field of that name in a collection that has one.
    return text("row_to_json(n.*)")


def as_object(paths: Sequence[tuple[str, ...]], columns: Sequence[int] | None = None) -> Fragment:
    """Print the columns c0 … as one object; its keys are parameters, as some come from the request.

    PostgreSQL's own function for it takes fifty keys at most, so the object is put together as
    text.
    """
    numbers = range(len(paths)) if columns is None else columns
    members = []
    # Paths with one head make one member: ("count",), ("sum", "a"), ("sum", "b") is {"count": n.c0,
    # "sum": {"a": n.c1, "b": n.c2}}.
    for key in dict.fromkeys(path[0] for path in paths):
        inner_paths = []
        inner_numbers = []
        for path, number in zip(paths, numbers, strict=True):
            if path[0] == key:
                inner_paths.append(path[1:])
                inner_numbers.append(number)
        if inner_paths[0]:
            value = as_object(inner_paths, inner_numbers)
        else:
            value = fill("to_json(n.{0})", text(f"c{inner_numbers[0]}"))
        label = param(f"{json.dumps(key)}:", "text")
        members.append(fill("{0} || coalesce({1}::text, 'null')", label, value))
    return fill("('{' || {0} || '}')::json", join(" || ',' || ", members))


# Groups


def group_outputs(plan: ReadPlan, grouping: Grouping, level: int) -> list[Fragment]:
    groups = [group_value(group.value, level) for group in grouping.groups]
    return groups + [aggregate_output(item, level) for item in grouping.aggregates]


def group_value(value: Value, level: int) -> Fragment:
    """Print how a value that is grouped by looks in an answer."""
    # SELECT may hold what GROUP BY does, and no other part of the document.
    if isinstance(value.at, JsonPath):
        return fill("{0}::json", expression(value, level))
    return output_value(value, level)


def grouping_tail(grouping: Grouping, level: int) -> Fragment:
    values = [expression(group.value, level) for group in grouping.groups]
    group_by = clause(" GROUP BY ", values)
    terms = []
    for term in grouping.order:
        if isinstance(term, AggregateValue):
            value = aggregate(term, level)
        else:
            value = expression(term.value, level)
        terms.append(fill("{0}{1}", value, direction(term)))
    return group_by + clause(" ORDER BY ", terms)


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
    if isinstance(item.value.at, JsonPath):
        return json_paths.aggregate(item.function, json_member(item.value, item.value.at, level))
    return fill(_AGGREGATES[item.function], expression(item.value, level))


def aggregate_output(item: AggregateValue, level: int) -> Fragment:
    """Print an aggregate as it is shown."""
    value = aggregate(item, level)
    if item.value is None or item.function.startswith("count"):
        return value
    # The least and the largest value look like values of the field; sums and averages have a type
    # of their own.
    if item.function in ("min", "max"):
        return fill(item.value.field.json_sql, value)
    return fill(item.value.field.type.sum_sql, value)
