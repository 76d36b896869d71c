"""The maximum size of an answer in bytes, as far as its plan tells: small ones are not measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cms.digits import MAX_DIGITS
from cms.query.plan.read_plan import (
    EmbedChoice,
    Grouping,
    Output,
    Page,
    ReadPlan,
    Value,
    ValueOutput,
)
from cms.schema.types.field_type import ValueSize

LONG_VALUE = 2**20
"""Bytes of a value without a maximal length: as many as a body may bring."""
SHORT_VALUE = 64
MAX_BYTES_OF_A_CHARACTER = 4
"""Of UTF-8."""
PORTION_BYTES = 32 * LONG_VALUE
"""Bytes of the rows that are fetched at a time, where all of them may be too many."""
MAX_PORTION_ROWS = 1_000
WIDE_ROW = 8 * LONG_VALUE
"""Bytes of a row that is fetched alone, so that its size is known before it is decoded."""


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """The maximum size of a row and of a whole answer; infinity where a list has no limit."""

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
    if single:
        return AnswerSize(row, row)
    return AnswerSize(row, row * _rows(plan.page))


@dataclass(frozen=True, slots=True)
class WrittenSize:
    """The maximum size of a write's answer: `row` for each item, and values that the body sends.

    `sent_values` are the maximum sizes of the outputs that show such values. All items of one call
    come in one body, so these are bounded for all of them together.
    """

    row: float
    sent_values: tuple[float, ...]

    def of(self, count: int) -> float:
        """Return the maximum size of an answer with so many items."""
        total = self.row * count
        for value in self.sent_values:
            # All values of one output come in one body, which is not longer than LONG_VALUE.
            total += min(value * count, LONG_VALUE)
        return total


def written_size(plan: ReadPlan) -> WrittenSize:
    """Return the size of a write's answer."""
    sent: list[float] = []
    others: list[Output] = []
    for output in plan.outputs:
        if _is_sent(output):
            sent.append(_bytes(output))
        else:
            others.append(output)
    defaults = sum(map(_default, plan.outputs))
    return WrittenSize(_sum(others) + defaults, tuple(sent))


def _is_sent(output: Output) -> bool:
    return isinstance(output, ValueOutput) and output.value.type.size is ValueSize.LONG


def _default(output: Output) -> int:
    """Return the bytes that a column's default may put into an item."""
    if not isinstance(output, ValueOutput):
        return 0
    column = output.value.field.column
    if column is None or column.default is None:
        return 0
    return MAX_BYTES_OF_A_CHARACTER * len(column.default)


def _row(plan: ReadPlan) -> float:
    if plan.grouping:
        return _group_row(plan.grouping)
    total = _sum(plan.outputs) + SHORT_VALUE * len(plan.row_values)
    if plan.highlights:
        for matches in plan.highlights.fields:
            total += _value(matches[0].value)
    if plan.cursor:
        # Every row has the values that it is sorted by: those of the last row are in the next
        # cursor.
        for term in plan.cursor.terms:
            total += _value(term.value)
    return total


def _group_row(grouping: Grouping) -> float:
    # A sum may have more digits than each of its values, so each counts as the longest number.
    total: float = (SHORT_VALUE + MAX_DIGITS) * len(grouping.aggregates)
    for group in grouping.groups:
        total += _value(group.value)
    return total


def _sum(outputs: Iterable[Output]) -> float:
    # The constant is for braces and other characters around the values.
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
        return MAX_BYTES_OF_A_CHARACTER * column.max_length
    return LONG_VALUE
