"""The maximum of rows in the lists of an answer: a page for every row of the list around."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cms.query.language.ast import Slot
from cms.query.plan.read_plan import (
    Embed,
    EmbedChoice,
    LinkStep,
    Output,
    Page,
    ReadPlan,
    ValueOutput,
)

ColumnKey = tuple[str, str]
"""A collection and a column of it."""


@dataclass(frozen=True, slots=True)
class ListLevel:
    """A list of an answer, with the lists in its items.

    `path` are the keys that lead to it from the list around it; none lead to the outermost. It
    holds `row_limit` rows at most (None is all of them); where a request sets a limit, `limit` is
    the slot of that literal. `column` of its rows points to the item around it.
    """

    path: tuple[str, ...]
    row_limit: int | None
    limit: int | None = None
    inner_lists: tuple[ListLevel, ...] = ()
    column: ColumnKey | None = None
    max_rows: float = field(init=False)
    """The maximum of rows in all innermost lists, under any limits of a request.

    It is infinity where a list has no row limit.
    """

    def __post_init__(self) -> None:
        # Computed once for each plan: every request of it compares the number.
        object.__setattr__(self, "max_rows", _times(_size(self, None), _rows_below(self, None)))


def list_levels(plan: ReadPlan, *, single: bool = False) -> ListLevel | None:
    """Return the lists of a read, None where its items hold no list; `single` reads one item."""
    inner_lists = tuple(_levels(plan.outputs, counted=False))
    if not inner_lists:
        return None
    page = Page(1) if single else plan.page
    return _level((), page, inner_lists)


_ASSUMED_ROWS = 100
"""What a list without a limit counts as in a single item, whose lists come whole."""


def lists_of_one_item(plan: ReadPlan) -> ListLevel | None:
    """Return the lists of a single item, None where it has none."""
    level = list_levels(plan, single=True)
    return None if level is None else _with_assumed_rows(level)


def _with_assumed_rows(level: ListLevel) -> ListLevel:
    row_limit = _ASSUMED_ROWS if level.row_limit is None else level.row_limit
    inner_lists = tuple(map(_with_assumed_rows, level.inner_lists))
    return replace(level, row_limit=row_limit, inner_lists=inner_lists)


def nested_rows(level: ListLevel, literals: Sequence[object], *, top: float | None = None) -> float:
    """Return how many rows the innermost lists of one request may hold.

    `top` is the number of its items, if that is known.
    """
    if top is None:
        top = _size(level, literals)
    return _times(top, _rows_below(level, literals))


def columns_of(level: ListLevel) -> set[ColumnKey]:
    """Return the columns by which rows of lists point to the items around them."""
    columns: set[ColumnKey] = set()
    if level.column:
        columns.add(level.column)
    for inner in level.inner_lists:
        columns |= columns_of(inner)
    return columns


def heaviest_rows(
    level: ListLevel, literals: Sequence[object], longest: Mapping[ColumnKey, float]
) -> float:
    """Return the rows in the lists of one item, each as long as the `longest` of its column."""
    total = 0.0
    for inner in level.inner_lists:
        rows_below: float = 1
        if inner.inner_lists:
            rows_below = heaviest_rows(inner, literals, longest)
        total += min(_size(inner, literals), _longest_list(inner, longest)) * rows_below
    return total


def _longest_list(level: ListLevel, longest: Mapping[ColumnKey, float]) -> float:
    """Return the longest list that PostgreSQL's statistics know of.

    That is how many rows point to one and the same item. An unknown column counts as pointing to
    each item once.
    """
    if level.column is None:
        return 1.0
    return longest.get(level.column, 1.0)


def largest_path(level: ListLevel) -> str:
    """Return the path to the lists that may have most rows, `author.articles.comments`."""
    keys = [*level.path]
    while level.inner_lists:
        level = max(level.inner_lists, key=lambda inner_list: inner_list.max_rows)
        keys += level.path
    return ".".join(keys)


def _levels(outputs: tuple[Output, ...], *, counted: bool) -> Iterator[ListLevel]:
    """Yield the lists of items.

    Counts of related items (`counted`) in the rows of a list read rows too, so each is taken for a
    list without a limit.
    """
    for output in outputs:
        if isinstance(output, EmbedChoice):
            yield from _levels(output.embeds, counted=counted)
        elif isinstance(output, ValueOutput):
            if counted and output.value.step:
                yield ListLevel((output.key,), None, column=_column_of(output.value.step))
        elif output.step.link.to_many:
            # Every item of this list counts its related items anew.
            inner_lists = tuple(_levels(output.plan.outputs, counted=True))
            yield _level((output.key,), output.plan.page, inner_lists, _column_of(output.step))
        else:
            yield from _lists_in(output, counted=counted)


def _lists_in(embed: Embed, *, counted: bool) -> Iterator[ListLevel]:
    for level in _levels(embed.plan.outputs, counted=counted):
        yield ListLevel(
            (embed.key, *level.path),
            level.row_limit,
            level.limit,
            level.inner_lists,
            level.column,
        )


def _level(
    path: tuple[str, ...],
    page: Page | None,
    inner_lists: tuple[ListLevel, ...],
    column: ColumnKey | None = None,
) -> ListLevel:
    row_limit = None
    limit_index = None
    if page:
        row_limit = page.row_limit
        # The exact limit of a request is known with its literals only.
        if page.limit and isinstance(page.limit.operand, Slot):
            limit_index = page.limit.operand.index
    return ListLevel(path, row_limit, limit_index, inner_lists, column)


def _column_of(step: LinkStep) -> ColumnKey:
    return step.link.target, step.link.far


def _size(level: ListLevel, literals: Sequence[object] | None) -> float:
    """Return the rows of a list under the literals of a request, or without them at most."""
    # The literal is None where a request asks for all rows with `limit=-1`.
    limit: object = level.row_limit
    if literals is not None and level.limit is not None:
        limit = literals[level.limit]
    if isinstance(limit, int):
        return limit
    return math.inf


def _rows_below(level: ListLevel, literals: Sequence[object] | None) -> float:
    """Return the rows of the innermost lists for each row of this one.

    A row without lists counts as one.
    """
    if not level.inner_lists:
        return 1
    total: float = 0
    for inner in level.inner_lists:
        total += _times(_size(inner, literals), _rows_below(inner, literals))
    return total


def _times(count: float, factor: float) -> float:
    # Infinity times zero is no number.
    if count == 0 or factor == 0:
        return 0
    return count * factor
