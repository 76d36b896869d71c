"""How many rows the lists in an answer may come to: each holds a page for every row of the list around it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cms.query.language.ast import Slot
from cms.query.plan.resolved import (
    Embed,
    EmbedChoice,
    LinkStep,
    Output,
    Page,
    ReadPlan,
    ValueOutput,
)

Place = tuple[str, str]
"""A collection and a column of it."""


@dataclass(frozen=True, slots=True)
class ListLevel:
    """A list of an answer with the lists in its items; `key` is the path to it from the list around it.

    It holds `row_limit` rows at most (None is all of them), and where a request names a limit, the literal in that
    slot. Its rows hold in `column` to which item around it they belong.
    """

    key: str
    row_limit: int | None
    limit: int | None = None
    inner_lists: tuple[ListLevel, ...] = ()
    column: Place | None = None
    max_rows: float = field(init=False)
    """The rows of all innermost lists, whatever the limits of a request: infinity where a list has no end."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_rows", _times(_size(self, None), _rows_below(self, None)))


def list_levels(plan: ReadPlan, *, single: bool = False) -> ListLevel | None:
    """Return the lists of a read, None where no item of it holds a list; with `single` it is of one item."""
    inner_lists = tuple(_levels(plan.outputs, counted=False))
    page = Page(1) if single else plan.page
    return _level("", page, inner_lists) if inner_lists else None


def nested_rows(level: ListLevel, literals: Sequence[object], *, top: int | None = None) -> float:
    """Return how many rows the innermost lists of one request may hold; `top` is the number of its items, if known."""
    own = _size(level, literals) if top is None else top
    return _times(own, _rows_below(level, literals))


def columns_of(level: ListLevel) -> set[Place]:
    """Return the columns that tie the rows of lists to the items around them."""
    own = {level.column} if level.column else set()
    return own.union(*map(columns_of, level.inner_lists))


def heaviest_rows(
    level: ListLevel, literals: Sequence[object], longest: Mapping[Place, float]
) -> float:
    """Return how many rows the lists of one item hold where each is as long as the `longest` of its column."""
    return sum(
        min(_size(each, literals), longest.get(each.column, 1.0) if each.column else 1.0)
        * (heaviest_rows(each, literals, longest) if each.inner_lists else 1)
        for each in level.inner_lists
    )


def largest_path(level: ListLevel) -> str:
    """Return the path to the lists of which there may be most rows, `author.articles.comments`."""
    if not level.inner_lists:
        return level.key
    inner = largest_path(max(level.inner_lists, key=lambda each: each.max_rows))
    return f"{level.key}.{inner}" if level.key else inner


def _levels(outputs: tuple[Output, ...], *, counted: bool) -> Iterator[ListLevel]:
    """Yield the lists of items; what is `counted` of rows in a list is looked at like a list without an end."""
    for output in outputs:
        if isinstance(output, EmbedChoice):
            yield from _levels(output.arms, counted=counted)
        elif isinstance(output, ValueOutput):
            if counted and output.value.step:
                yield ListLevel(output.key, None, column=_column_of(output.value.step))
        elif output.step.link.to_many:
            inner_lists = tuple(_levels(output.plan.outputs, counted=True))
            yield _level(output.key, output.plan.page, inner_lists, _column_of(output.step))
        else:
            yield from _through(output, counted=counted)


def _through(opened: Embed, *, counted: bool) -> Iterator[ListLevel]:
    for level in _levels(opened.plan.outputs, counted=counted):
        yield ListLevel(
            f"{opened.key}.{level.key}",
            level.row_limit,
            level.limit,
            level.inner_lists,
            level.column,
        )


def _level(
    key: str, page: Page | None, inner_lists: tuple[ListLevel, ...], column: Place | None = None
) -> ListLevel:
    limit = page.limit.operand if page and page.limit else None
    return ListLevel(
        key,
        page.row_limit if page else None,
        limit.index if isinstance(limit, Slot) else None,
        inner_lists,
        column,
    )


def _column_of(step: LinkStep) -> Place:
    return step.link.target, step.link.far


def _size(level: ListLevel, literals: Sequence[object] | None) -> float:
    limit = (
        literals[level.limit]
        if literals is not None and level.limit is not None
        else level.row_limit
    )
    return limit if isinstance(limit, int) else math.inf


def _rows_below(level: ListLevel, literals: Sequence[object] | None) -> float:
    """Return the rows of the innermost lists for each row of this one; a row without lists counts itself."""
    if not level.inner_lists:
        return 1
    return sum(
        _times(_size(each, literals), _rows_below(each, literals)) for each in level.inner_lists
    )


def _times(one: float, other: float) -> float:
    return one * other if one and other else 0  # infinity times zero is no number
