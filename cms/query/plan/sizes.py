"""The most bytes of an answer, as far as its plan tells: small answers need not be measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cms.digits import MAX_DIGITS
from cms.query.plan.resolved import EmbedChoice, Output, Page, ReadPlan, Value, ValueOutput
from cms.schema.types.field_type import ValueSize

LONG_VALUE = 2**20
"""Bytes of a value without a maximal length: as many as a body may bring."""
SHORT_VALUE = 64
PORTION_BYTES = 32 * LONG_VALUE
"""Bytes of the rows that are fetched at a time, where all of them may be too many."""
MAX_PORTION_ROWS = 1_000
WIDE_ROW = 8 * LONG_VALUE
"""Bytes of a row that is fetched alone, so that its size is known before it is decoded."""


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """The most bytes of a row and of a whole answer; infinity where a list has no limit."""

    row: float
    total: float

    @property
    def rows_at_a_time(self) -> int:
        """The number of rows to fetch at a time."""
        if self.row > WIDE_ROW:
            return 1
        return min(MAX_PORTION_ROWS, int(PORTION_BYTES / max(self.row, 1)))


NO_SIZE = AnswerSize(0, 0)


def size_of(plan: ReadPlan, *, single: bool = False) -> AnswerSize:
    """Return the size of an answer; a `single` one has one item."""
    row = _row(plan)
    return AnswerSize(row, row * (1 if single else _rows(plan.page)))


@dataclass(frozen=True, slots=True)
class WrittenSize:
    """The most bytes of a write's answer: `row` for each item, and values that the body sends.

    `sent_values` are the most bytes of each output that shows such a value. All items of one call
    come in one body, so these are bounded for all of them together.
    """

    row: float
    sent_values: tuple[float, ...]

    def of(self, count: int) -> float:
        """Return the most bytes of an answer with so many items."""
        # All values of one output come in one body, which is not longer than LONG_VALUE.
        sent = sum(min(value * count, LONG_VALUE) for value in self.sent_values)
        return self.row * count + sent


def written_size(plan: ReadPlan) -> WrittenSize:
    """Return the size of a write's answer."""
    sent = tuple(_bytes(output) for output in plan.outputs if _is_sent(output))
    others = (output for output in plan.outputs if not _is_sent(output))
    return WrittenSize(_sum(others) + sum(map(_default, plan.outputs)), sent)


def _is_sent(output: Output) -> bool:
    return isinstance(output, ValueOutput) and output.value.type.size is ValueSize.LONG


def _default(output: Output) -> int:
    """Return the bytes that a column's default may put into an item."""
    # UTF-8 takes at most four bytes for a character.
    column = output.value.field.column if isinstance(output, ValueOutput) else None
    return 4 * len(column.default or "") if column else 0


def _row(plan: ReadPlan) -> float:
    if plan.grouping:
        groups = sum(_value(group.value) for group in plan.grouping.groups)
        # A sum may have more digits than each of its values, so each counts as the longest number.
        return (SHORT_VALUE + MAX_DIGITS) * len(plan.grouping.aggregates) + groups
    searched = plan.highlights.fields if plan.highlights else ()
    highlights = sum(_value(matches[0].value) for matches in searched)
    # Every row brings the values that it is sorted by: the last one's are in the next cursor.
    cursor = sum(_value(term.value) for term in plan.cursor.terms) if plan.cursor else 0
    return _sum(plan.outputs) + SHORT_VALUE * len(plan.row_values) + highlights + cursor


def _sum(outputs: Iterable[Output]) -> float:
    # The start is for the braces and what else stands around the values.
    return sum(map(_bytes, outputs), SHORT_VALUE)


def _bytes(output: Output) -> float:
    # Each row shows one target only; the sum of all is a bound all the same.
    if isinstance(output, EmbedChoice):
        return _sum(output.embeds)
    if isinstance(output, ValueOutput):
        return _value(output.value)
    if not output.step.link.to_many:
        return _row(output.plan)
    return _row(output.plan) * _rows(output.plan.page)


def _rows(page: Page | None) -> float:
    if page is None or not page.row_limit:
        return math.inf
    return page.row_limit


def _value(value: Value) -> float:
    column = value.field.column
    if value.at is not None:
        return LONG_VALUE
    # Functions return whole numbers, and secrets are shown as a mask.
    if value.is_computed or value.field.is_secret:
        return SHORT_VALUE
    # A numeric may be sent with an exponent of a few characters, and is shown with all its digits.
    if column and value.type.size is ValueSize.DIGITS:
        return SHORT_VALUE + (column.precision or MAX_DIGITS)
    if value.type.size is ValueSize.SHORT:
        return SHORT_VALUE
    if column and column.max_length:
        return 4 * column.max_length
    return LONG_VALUE
