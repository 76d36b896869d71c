"""How many bytes an answer may come to, as far as its plan tells: what cannot be too large need not be measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cms.query.resolved import Either, Output, Page, ReadPlan, Shown, Value
from cms.schema.types import Family

LONG = 2**20
"""Bytes of a value without a length of its own: as many as a body may bring."""
SHORT = 64
PORTION = 32 * LONG
"""Bytes of the rows that are taken at a time, where all of them may be too many."""
MAX_PORTION = 1_000
WIDE = 8 * LONG
"""Bytes of a row that is better looked at before values are made of it."""

_LONG_FAMILIES = frozenset({Family.TEXT, Family.JSON, Family.CSV, Family.BINARY, Family.GEOMETRY})


@dataclass(frozen=True, slots=True)
class Size:
    """The most that a row and the whole of an answer may come to; infinity where a list has no end."""

    row: float
    whole: float

    @property
    def portion(self) -> int:
        """The number of rows to take at a time."""
        return 1 if self.row > WIDE else min(MAX_PORTION, int(PORTION / max(self.row, 1)))


NO_SIZE = Size(0, 0)


def size_of(plan: ReadPlan, *, single: bool = False) -> Size:
    """Return the size of an answer; with `single` it is of one item."""
    row = _row(plan)
    return Size(row, row * (1 if single else _rows(plan.page)))


def size_of_written(plan: ReadPlan, number: int) -> Size:
    """Return the size of what a write of so many items answers: one body has brought what stands in them."""
    own = _sum(output for output in plan.outputs if isinstance(output, Shown))
    related = _sum(output for output in plan.outputs if not isinstance(output, Shown))
    return Size(own + related, own + related * number)


def _row(plan: ReadPlan) -> float:
    if plan.grouping:
        return SHORT * len(plan.grouping.summed) + sum(_value(group.value) for group in plan.grouping.groups)
    return _sum(plan.outputs)


def _sum(outputs: Iterable[Output]) -> float:
    return sum(map(_bytes, outputs), SHORT)


def _bytes(output: Output) -> float:
    if isinstance(output, Either):
        return _sum(output.arms)
    if isinstance(output, Shown):
        return SHORT if output.plain else _value(output.value)
    rows = _rows(output.plan.page) if output.step.link.to_many else 1
    return _row(output.plan) * rows


def _rows(page: Page | None) -> float:
    return page.reach if page and page.reach else math.inf


def _value(value: Value) -> float:
    field = value.field
    if value.function or field.secret or value.family not in _LONG_FAMILIES:
        return SHORT
    length = field.column.max_length if field.column else None
    return 4 * length if length else LONG
