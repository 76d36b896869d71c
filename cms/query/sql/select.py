"""The printer of reads: a plan in, one statement out. A function for each syntactic idea."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
    optional,
    param,
    text,
)
from cms.query.language.aggregates import AGGREGATES, AggregateOutput
from cms.query.language.ast import RowOutput
from cms.query.language.parameters import FILTER_COUNT, RANKED
from cms.query.plan.grouping import output_paths
from cms.query.plan.masks import share_masks
from cms.query.plan.read_plan import (
    AggregateValue,
    Embed,
    EmbedChoice,
    Grouping,
    JsonPath,
    Output,
    Page,
    ReadPlan,
    Value,
    ValueOutput,
)
from cms.query.sql import json_paths
from cms.query.sql.clauses import (
    behind,
    conditions,
    direction,
    order_by,
    rows_up_to_limit,
    sorted_value,
    where,
)
from cms.query.sql.columns import (
    alias,
    numbered_outputs,
    output_columns,
    rows_of,
)
from cms.query.sql.expressions import (
    compared,
    expression,
    json_member,
    link_condition,
    predicate,
)
from cms.query.sql.highlight import highlight_columns
from cms.query.sql.keys import key_order
from cms.schema.model import VERSION_COLUMN, Kind
from cms.schema.types.field_type import Trait

MAX_RANKED = 10_000
"""How many rows a page by relevance ranks: the first that are found, by their key."""

# No collection has the name. One row more tells whether there are others.
_FOUND_ROWS = (
    "WITH system_found AS MATERIALIZED (SELECT t0.* FROM (SELECT t0.* FROM {0} AS t0{1}{2}) AS t0 "
    "ORDER BY {3} LIMIT {4} + 1) "
)
_FIRST_ROWS = "(SELECT t0.* FROM system_found AS t0 ORDER BY {0} LIMIT {1}) AS t0{2}"
_RANKED = "(SELECT CASE WHEN count(*) > {0} THEN {0} END FROM system_found)"

_WITH_VERSION = (
    "{3}SELECT {0}, v.structure, v.access, v.flows, r.row_exists{1} "
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
    outputs = group_outputs(plan.grouping, 0) if plan.grouping else top_outputs(plan)
    # For two fields, roughly: SELECT r.c0, r.c1, v.structure, v.access, v.flows, r.row_exists FROM
    # system_version AS v LEFT JOIN LATERAL (SELECT TRUE AS row_exists, t0."id" AS c0, t0."title"
    # AS c1 FROM "articles" AS t0 ORDER BY t0."id" LIMIT 100) AS r ON TRUE
    columns = [text("TRUE AS row_exists"), *numbered_outputs(outputs)]
    inner = rows(plan, commas(columns), 0)
    selected = output_columns("r", len(outputs))
    return fill(_WITH_VERSION, selected, count_columns(plan), inner, found_rows(plan))


def found_rows(plan: ReadPlan) -> Fragment:
    """Print the found rows of a page by relevance, in front of the statement."""
    if not plan.is_ranked:
        return EMPTY
    # The OFFSET keeps PostgreSQL from reading all rows in the order of the key: of long texts it
    # takes a short word for a frequent one. Without an index it had better do so.
    fence = optional(" OFFSET 0", when=plan.is_found_by_index)
    table = rows_of(plan.collection.name)
    return fill(_FOUND_ROWS, table, where(plan, 0), fence, _key(plan), text(str(MAX_RANKED)))


def _key(plan: ReadPlan) -> Fragment:
    return key_order(plan.collection.key, alias(0))


def top_outputs(plan: ReadPlan) -> list[Fragment]:
    """Print the outputs of each item, and behind them the columns that the service itself reads."""
    columns = [output(item, 0) for item in plan.outputs]
    for row_value in plan.row_values:
        columns.append(fill("{0}::text", expression(row_value.value, 0)))
    if plan.cursor:
        for term in plan.cursor.terms:
            columns.append(fill("{0}::text", sorted_value(term, 0)))
    columns += highlight_columns(plan.highlights)
    return columns


def rows(plan: ReadPlan, columns: Fragment, level: int, *, linked: Fragment = EMPTY) -> Fragment:
    """Print the rows of one level; `linked` is the condition that links them to the row above."""
    if plan.cursor and plan.cursor.starts:
        linked = behind(plan.cursor.terms, plan.cursor.starts)  # nothing leads to the top
    if plan.is_ranked:
        source = fill(_FIRST_ROWS, _key(plan), text(str(MAX_RANKED)), conditions(linked))
    else:
        condition = where(plan, level, linked)
        source = fill("{0} AS {1}{2}", rows_of(plan.collection.name), text(alias(level)), condition)
    page = window(plan.page)
    if plan.grouping:
        # Groups are few and computed anyway: the exact page takes the place of the round limit.
        tail = grouping_tail(plan.grouping, level) + (page or rows_up_to_limit(plan.page))
        return fill(_ROWS, columns, with_masks(plan, source, level), tail)
    ordered = concat(source, order_by(plan.order, level), rows_up_to_limit(plan.page))
    if plan.page and page:
        ordered = cut_page(ordered, plan.page, level)
    return fill(_ROWS, columns, with_masks(plan, ordered, level), EMPTY)


def with_masks(plan: ReadPlan, source: Fragment, level: int) -> Fragment:
    """Print rows with a column for each rule that their fields share.

    A sub-select with an OFFSET stays one, so that PostgreSQL tests each rule once for a row, and
    not where its result is used. As a LATERAL join it could not hash the sub-selects of rules.
    """
    if not plan.masks:
        return source
    row = alias(level)
    columns = [text(f"{row}.*")]
    # `*` does not name PostgreSQL's own column, but that of a view, which is one like others.
    needs_version = any(item.output is RowOutput.VERSION for item in plan.row_values)
    if needs_version and plan.collection.kind is Kind.TABLE:
        columns.append(text(f"{row}.{VERSION_COLUMN}"))
    for mask in plan.masks:
        columns.append(concat(predicate(mask.rule, level), " AS ", name(mask.name)))
    return fill("(SELECT {0} FROM {1} OFFSET 0) AS {2}", commas(columns), source, text(row))


def cut_page(ordered: Fragment, page: Page, level: int) -> Fragment:
    """Print a page that is cut out before its outputs are computed.

    PostgreSQL computes the outputs beside an OFFSET for skipped rows, too.
    """
    shape = "(SELECT {0}.* FROM (SELECT {0}.* FROM {1}) AS {0}{2}) AS {0}"
    row = text(alias(level))
    paged = fill(shape, row, ordered, window(page))
    if page.page_limit is None:
        return paged
    # It cuts nothing off: from it PostgreSQL knows for how few rows the outputs are computed.
    limit = text(str(page.page_limit + page.has_next_row))
    return fill("(SELECT {0}.* FROM {1} LIMIT {2}) AS {0}", row, paged, limit)


def window(page: Page | None) -> Fragment:
    """Print the exact limit and offset of the page, empty where it is the first rows."""
    if page is None:
        return EMPTY
    parts: list[Fragment] = []
    if page.limit:
        parts.append(concat(" LIMIT ", param(page.limit, "bigint")))
        parts.append(optional(" + 1", when=page.has_next_row))
    if page.offset:
        parts.append(concat(" OFFSET ", param(page.offset, "bigint")))
    return join("", parts)


def count_columns(plan: ReadPlan) -> Fragment:
    # Counts have sub-selects of their own, as the rows beside them are only those of one page.
    shape = "(SELECT count(*) FROM {0} AS t0{1})"
    table = rows_of(plan.collection.name)
    columns = []
    for count in plan.counts:
        if count == RANKED:
            column = fill(_RANKED, text(str(MAX_RANKED)))
        elif count == FILTER_COUNT:
            column = fill(shape, table, where(plan, 0))
        else:
            column = fill(shape, table, conditions(predicate(plan.allowed, 0)))
        columns.append(concat(", ", column))
    return join("", columns)


# Outputs


def output(item: Output, level: int) -> Fragment:
    match item:
        case ValueOutput(_, value):
            return output_value(value, level)
        case Embed():
            if item.step.link.to_many:
                return embed_many(item, level)
            return embed_one(item, level)
        case EmbedChoice():
            return embed_choice(item, level)
        case _ as never:
            assert_never(never)


def output_value(value: Value, level: int) -> Fragment:
    """Print how a value looks in an answer, at any depth."""
    if isinstance(value.at, JsonPath):
        return json_member(value, value.at, level)
    if value.field.parts and not value.is_computed:
        return key_array(value, level)
    inner = expression(value, level)
    if value.is_computed:
        return inner
    return fill(value.field.json_sql, inner)


def key_array(value: Value, level: int) -> Fragment:
    """Print a key of several columns as an array, null where a part of it is."""
    parts = [output_value(Value(part), level) for part in value.field.parts]
    text_of_key = expression(value, level)
    shape = "CASE WHEN {0} IS NOT NULL THEN json_build_array({1}) END"
    return fill(shape, text_of_key, commas(parts))


def embed_one(item: Embed, level: int) -> Fragment:
    # There is one, or several where inheriting tables have a key again: the item is one of them.
    # With the LIMIT a scan of a small table ends at it.
    shape = "(SELECT {0} FROM ({1}) AS n LIMIT 1)"
    return fill(shape, embedded_item(item), related_rows(item, level))


def embed_many(item: Embed, level: int) -> Fragment:
    # json_agg of no rows is NULL, while a list without items is [].
    shape = "coalesce((SELECT json_agg({0}) FROM ({1}) AS n), '[]'::json)"
    return fill(shape, embedded_item(item), related_rows(item, level))


def embed_choice(item: EmbedChoice, level: int) -> Fragment:
    # At most one is not NULL: the collection field of a row names one collection.
    targets = [embed_one(embed, level) for embed in item.embeds]
    other_key = fill("to_json({0})", output_value(item.other_key, level))
    return fill("coalesce({0})", commas([*targets, other_key]))


def related_rows(item: Embed, level: int) -> Fragment:
    """Print the rows that a link leads to, with columns c0 … or named as the keys of the answer."""
    plan = share_masks(item.plan)
    outputs = commas(_related_outputs(plan, level + 1))
    return rows(plan, outputs, level + 1, linked=link_condition(item.step, level))


def _related_outputs(plan: ReadPlan, level: int) -> list[Fragment]:
    if plan.grouping:
        return numbered_outputs(group_outputs(plan.grouping, level))
    if plan.renamed:
        return numbered_outputs(output(item, level) for item in plan.outputs)
    return [concat(output(item, level), " AS ", name(item.key)) for item in plan.outputs]


def embedded_item(item: Embed) -> Fragment:
    """Print one related item as JSON."""
    # Keys are shown as they are, and not as objects with one member.
    if item.keys_only:
        columns = [concat("n.", name(output.key)) for output in item.plan.outputs]
        return columns[0] if len(columns) == 1 else fill("json_build_array({0})", commas(columns))
    # Aliases come from the request and so are parameters; long names fit no column.
    if item.plan.grouping or item.plan.renamed:
        return as_object(output_paths(item.plan))
    # `n` alone would be the field of that name in a collection that has one.
    return text("row_to_json(n.*)")


def as_object(paths: Sequence[tuple[str, ...]]) -> Fragment:
    """Print the columns c0 … as one object; its keys are parameters, as some come from the request.

    PostgreSQL's own function for it takes fifty keys at most, so the object is put together as
    text.
    """
    return _object({path: f"n.c{number}" for number, path in enumerate(paths)})


def _object(columns: Mapping[tuple[str, ...], str]) -> Fragment:
    # Paths with one head make one entry: ("count",), ("sum", "a"), ("sum", "b") is {"count": n.c0,
    # "sum": {"a": n.c1, "b": n.c2}}.
    columns_by_key: dict[str, dict[tuple[str, ...], str]] = {}
    for (key, *rest), column in columns.items():
        columns_by_key.setdefault(key, {})[tuple(rest)] = column
    entries = []
    for key, inner in columns_by_key.items():
        # A path that ends here is the only one with its key.
        value = fill("to_json({0})", text(inner[()])) if () in inner else _object(inner)
        label = param(f"{json.dumps(key)}:", "text")
        entries.append(fill("{0} || coalesce({1}::text, 'null')", label, value))
    return fill("('{' || {0} || '}')::json", join(" || ',' || ", entries))


# Groups


def group_outputs(grouping: Grouping, level: int) -> list[Fragment]:
    outputs = [group_value(group.value, level) for group in grouping.groups]
    for item in grouping.aggregates:
        outputs.append(aggregate_output(item, level))
    return outputs


def group_value(value: Value, level: int) -> Fragment:
    """Print how a value that is grouped by looks in an answer."""
    # SELECT may hold what GROUP BY does, and no other part of the document.
    if isinstance(value.at, JsonPath):
        return fill("{0}::json", expression(value, level))
    return output_value(value, level)


def grouping_tail(grouping: Grouping, level: int) -> Fragment:
    # The same fragments as in the outputs, with the same parameters: PostgreSQL would not recognise
    # a group whose expression has a parameter of another number.
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


def aggregate(item: AggregateValue, level: int) -> Fragment:
    """Print an aggregate as it is sorted by."""
    if item.value is None:
        return text("count(*)")
    if isinstance(item.value.at, JsonPath):
        return json_paths.aggregate(item.function, json_member(item.value, item.value.at, level))
    function = AGGREGATES[item.function]
    value = compared(item.value, level, function.trait)
    if function.trait is Trait.ORDER and item.value.own_cast(function.trait):
        # min() and max() know few of these types, and all of them have an order.
        order = "ASC" if item.function == "min" else "DESC"
        return fill("(array_agg({0} ORDER BY {0} {1} NULLS LAST))[1]", value, text(order))
    return fill(function.sql, value)


def aggregate_output(item: AggregateValue, level: int) -> Fragment:
    """Print an aggregate as it is shown."""
    value = aggregate(item, level)
    if item.value is None:
        return value
    match AGGREGATES[item.function].output:
        case AggregateOutput.COUNT:
            return value
        case AggregateOutput.VALUE_OF_THE_FIELD:
            if item.value.own_cast(Trait.ORDER):
                value = fill(item.value.type.value_sql, value)
            return fill(item.value.field.json_sql, value)
        case AggregateOutput.NUMBER:
            return fill(item.value.field.type.sum_sql, value)
