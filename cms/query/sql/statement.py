"""A finished statement: text, placeholders, and how its rows become an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cms.fragment import Fragment, NumberedSql, fill, text
from cms.query.language.ast import HIGHLIGHTS, RowOutput
from cms.query.plan.grouping import KeyPath, output_paths
from cms.query.plan.read_plan import (
    All,
    AnyOf,
    CountEstimate,
    Cursor,
    Embed,
    EmbedChoice,
    Exists,
    JsonPath,
    JsonTest,
    Order,
    Output,
    Predicate,
    ReadPlan,
    Value,
    ValueOutput,
)
from cms.query.plan.sizes import NO_SIZE, AnswerSize, WrittenSize, size_of
from cms.query.sql.clauses import conditions, where
from cms.query.sql.columns import rows_of
from cms.query.sql.expressions import predicate
from cms.query.sql.highlight import HighlightReader, reader_of
from cms.query.sql.select import select
from cms.schema.model import Field, Version

SAMPLE_ROWS = 1_000
"""Rows of the sample on which the filter is tried, for a caller who does not see every row."""


@dataclass(frozen=True, slots=True)
class EstimateStatements:
    """The statement whose rows PostgreSQL is to expect, and one that counts in a sample.

    Without a sample, the expected rows fulfil the filter. With one they are those that the caller
    sees; the sample's one row tells how many rows it has, and how many of them fulfil the filter.
    """

    expected: NumberedSql
    sample: NumberedSql | None = None


Rows = Sequence[tuple[Any, ...]]
"""The rows that PostgreSQL returns, each with the values of its columns."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An entry of the plan cache. `paths` are the paths of the columns in an item, in order.

    `fields` has the field of each path that shows one unchanged, None for any other;
    `touched_collections` are the collections that the statement reads.
    """

    text: str
    values: tuple[object, ...]
    paths: tuple[KeyPath, ...]
    counts: tuple[str, ...]
    is_grouped: bool = False
    is_of_singleton: bool = False
    touched_collections: frozenset[str] = frozenset()
    fields: tuple[Field | None, ...] = ()
    row_outputs: tuple[RowOutput, ...] = ()
    """The columns behind those of the item, which the service reads for itself."""
    is_search: bool = False
    """Whether the best plan depends on the word that is searched."""
    size: AnswerSize = NO_SIZE
    cursor: Cursor | None = None
    """The cursor of the page; the values of its terms stand behind `row_outputs`."""
    written_size: WrittenSize | None = None
    """The size of the answer of a write, if it is one."""
    indexable_json_paths: tuple[IndexableJsonPath, ...] = ()
    """The paths into JSON by which it searches and sorts."""
    highlights: HighlightReader | None = None
    """Reads where the words of a search are, from the columns behind those of the cursor."""
    count_estimate: EstimateStatements | None = None
    """The statements of an estimate of the rows, if the read asks for one."""
    _keys: tuple[str, ...] | None = field(init=False, compare=False, repr=False)
    """The keys of an item in which nothing is nested; None for nested ones."""
    _first_extra: int = field(init=False, compare=False, repr=False)
    """The first column behind the outputs; a row without outputs holds one NULL in their place."""

    def __post_init__(self) -> None:
        # Computed once for each statement, and needed for every answer of it.
        object.__setattr__(self, "_keys", _flat_keys(self.paths))
        outputs = len(self.paths) + len(self.row_outputs)
        if self.cursor:
            outputs += len(self.cursor.terms)
        if self.highlights:
            outputs += self.highlights.width
        object.__setattr__(self, "_first_extra", max(outputs, 1))

    def version(self, rows: Rows) -> Version:
        """Return the counters under which the rows were read."""
        at = self._first_extra
        return Version._make(rows[0][at : at + 3])

    def least_size(self, count: int) -> int:
        """Return how many bytes so many items have at least, whatever their values are."""
        keys = {path[0] for path in self.paths}
        # `"key":0,` is the shortest part of an item.
        return count * sum(len(key) + 5 for key in keys)

    def items(self, rows: Rows) -> list[dict[str, Any]]:
        """Return the rows as items, with nested parts as ready JSON."""
        # Behind the outputs: three counters, then TRUE for a row that exists. An empty answer has
        # one row, for its counters.
        if not rows or rows[0][self._first_extra + 3] is None:
            return []
        if self.highlights is not None:
            return [self._with_highlights(row) for row in rows]
        # Nearly all answers are flat, and then a row is a dict at once.
        keys = self._keys
        if keys is not None:
            # The row goes on behind the outputs with the counters. To say `strict=False` would take
            # half as long again.
            return [dict(zip(keys, row)) for row in rows]  # noqa: B905
        return [self._nested(row) for row in rows]

    def _with_highlights(self, row: tuple[Any, ...]) -> dict[str, Any]:
        assert self.highlights is not None
        first = self._first_extra - self.highlights.width
        highlights = self.highlights.read(row[first : self._first_extra])
        return {**self._nested(row), HIGHLIGHTS: highlights}

    def row_texts(self, output: RowOutput, rows: Rows) -> list[str]:
        """Return an output of each row, one of `row_outputs`, in the order of the items."""
        if rows[0][self._first_extra + 3] is None:
            return []
        column = len(self.paths) + self.row_outputs.index(output)
        return [str(row[column]) for row in rows]

    def items_by_key(self, rows: Rows) -> dict[str, dict[str, Any]]:
        """Return the items under their primary keys, which `row_outputs` must have."""
        return dict(zip(self.row_texts(RowOutput.KEY, rows), self.items(rows), strict=True))

    def cursor_values(self, row: tuple[Any, ...]) -> list[str | None]:
        """Return the values of a row by which the rows are sorted, as text."""
        assert self.cursor is not None
        first = len(self.paths) + len(self.row_outputs)
        return list(row[first : first + len(self.cursor.terms)])

    def meta(self, rows: Rows) -> dict[str, int]:
        """Return the counts that were asked for, and how many rows are ranked if not all are."""
        counts = zip(self.counts, self.extra_columns(rows[0]), strict=True)
        return {name: count for name, count in counts if count is not None}

    def extra_columns(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the columns behind the item, the counters and the TRUE of a row that exists."""
        return row[self._first_extra + 4 :]

    def _nested(self, row: tuple[Any, ...]) -> dict[str, Any]:
        item: dict[str, Any] = {}
        for (*outer, last), value in zip(self.paths, row, strict=False):
            group = item
            for key in outer:
                group = group.setdefault(key, {})
            group[last] = value
        return item


def finish_statement(
    plan: ReadPlan,
    touched_collections: frozenset[str] = frozenset(),
    *,
    is_search: bool = False,
    single: bool = False,
    of_singleton: bool = False,
) -> Statement:
    """Print a plan and number its parameters; a `single` plan reads one item."""
    text, values = select(plan).numbered()
    return Statement(
        text,
        values,
        paths=output_paths(plan),
        counts=plan.counts,
        is_grouped=plan.grouping is not None,
        is_of_singleton=of_singleton,
        touched_collections=touched_collections,
        fields=tuple(map(_field, plan.outputs)),
        row_outputs=tuple(row_value.output for row_value in plan.row_values),
        is_search=is_search,
        size=size_of(plan, single=single),
        cursor=plan.cursor,
        indexable_json_paths=indexable_json_paths(plan),
        highlights=reader_of(plan),
        count_estimate=estimate_statements(plan),
    )


def _flat_keys(paths: Sequence[KeyPath]) -> tuple[str, ...] | None:
    keys = []
    for path in paths:
        # Only aggregates have longer paths, such as ("sum", "price").
        if len(path) > 1:
            return None
        keys.append(path[0])
    return tuple(keys)


def _field(output: Output) -> Field | None:
    if isinstance(output, ValueOutput) and not output.value.is_computed:
        return output.value.field
    return None


# Estimated counts (docs/query-language.md)


def estimate_statements(plan: ReadPlan) -> EstimateStatements | None:
    """Return the statements of the estimate that a plan asks for, if any."""
    match plan.count_estimate:
        case None:
            return None
        case CountEstimate.STATISTICS:
            return EstimateStatements(_rows(plan, where(plan, 0)))
        case CountEstimate.SAMPLE:
            seen = conditions(predicate(plan.allowed, 0))
            return EstimateStatements(_rows(plan, seen), _sample(plan, seen))


def _rows(plan: ReadPlan, condition: Fragment) -> NumberedSql:
    shape = "SELECT FROM {0} AS t0{1}"
    return fill(shape, rows_of(plan.collection.name), condition).numbered()


def _sample(plan: ReadPlan, seen: Fragment) -> NumberedSql:
    # The LIMIT keeps the filter out of the inner select: it only ever reads rows of the sample.
    shape = (
        "SELECT count(*), count(*) FILTER (WHERE {0}) "
        "FROM (SELECT t0.* FROM {1} AS t0{2} LIMIT {3}) AS t0"
    )
    table = rows_of(plan.collection.name)
    return fill(shape, predicate(plan.where, 0), table, seen, text(str(SAMPLE_ROWS))).numbered()


# The paths into JSON by which a read filters or sorts, and which an index would serve


IndexableJsonPath = tuple[str, str]
"""A collection, and a path as the query language writes it."""


def indexable_json_paths(plan: ReadPlan) -> tuple[IndexableJsonPath, ...]:
    """Return the paths of a read and of the lists in it, each once."""
    return tuple(dict.fromkeys(_of_plan(plan)))


def _of_plan(plan: ReadPlan) -> Iterator[IndexableJsonPath]:
    yield from _of_predicate(plan.allowed)
    yield from _of_predicate(plan.where)
    yield from _of_order(plan.order)
    # Related items are a read of their own, with rules, filter and order.
    for output in plan.outputs:
        match output:
            case Embed():
                yield from _of_plan(output.plan)
            case EmbedChoice(_, embeds):
                for embed in embeds:
                    yield from _of_plan(embed.plan)


def _of_predicate(predicate: Predicate | None) -> Iterator[IndexableJsonPath]:
    match predicate:
        case All(items) | AnyOf(items):
            for item in items:
                yield from _of_predicate(item)
        case Exists(step, where):
            yield from _of_predicate(step.allowed)
            yield from _of_predicate(where)
        case JsonTest(value) if predicate.takes_index:
            yield from _of_value(value)


def _of_order(order: tuple[Order, ...]) -> Iterator[IndexableJsonPath]:
    # An index serves the order by its first term, of the rows themselves.
    if order and not order[0].path:
        yield from _of_value(order[0].value)


def _of_value(value: Value) -> Iterator[IndexableJsonPath]:
    # A field that is hidden in some rows is another expression than that of an index.
    if isinstance(value.at, JsonPath) and value.when is None and value.members is None:
        yield value.field.collection, ".".join((value.field.name, *value.at.steps))
