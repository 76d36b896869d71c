"""A finished statement: text, placeholders, and how its rows become an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cms.query.language.ast import HIGHLIGHTS, RowOutput
from cms.query.plan.indexable_json_paths import IndexableJsonPath, indexable_json_paths
from cms.query.plan.output_paths import KeyPath, output_paths
from cms.query.plan.read_plan import Cursor, Output, ReadPlan, ValueOutput
from cms.query.plan.sizes import NO_SIZE, AnswerSize, WrittenSize, size_of
from cms.query.sql.count_estimate import EstimateStatements, estimate_statements
from cms.query.sql.highlight import HighlightReader, reader_of
from cms.query.sql.select import select
from cms.schema.model import Field, Version

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
