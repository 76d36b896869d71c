"""The arguments of statements: arrays, the placeholders of a write, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cms.fragment import Fragment, commas, fill, param
from cms.query.language.ast import Slot
from cms.schema.model import Field

FlowsByVerb = tuple[tuple[str, tuple[str, ...]], ...]
"""Ids of flows that run after a write, by the verb of their event: create, update and so on."""

# Literals of a write, in order: [structure, access, flows,] user, address, user agent, origin,
# [depth, accountability,] and then one for each column.
VERSION_SLOTS = 3
AUTHOR_TYPES = ("uuid", "text", "text", "text")
AUTHOR_SLOTS = len(AUTHOR_TYPES)
CAUSE_SLOTS = 2


@dataclass(frozen=True, slots=True)
class ArgumentSlots:
    """The slots of a write's literals: four for the author, then an array for each column.

    With `single` there is a plain value for each column instead, which PostgreSQL executes fastest.
    `history_action` is the action in the history, where it differs from the write's own. `flows`
    are those that run after the write: depth and accountability of their runs are then literals
    after the author.
    """

    first_slot: int = 0
    single: bool = False
    history_action: str | None = None
    flows: FlowsByVerb = ()

    def depth(self) -> Fragment:
        """Print how many runs of flows have led to the write."""
        return param(_slot(self.first_slot + AUTHOR_SLOTS), "integer")

    def accountability(self) -> Fragment:
        """Print who causes the runs of flows, as JSON."""
        return param(_slot(self.first_slot + AUTHOR_SLOTS + 1), "json")

    def author(self) -> Fragment:
        """Print user, address, user agent and origin."""
        values = []
        for number, cast in enumerate(AUTHOR_TYPES):
            values.append(param(_slot(self.first_slot + number), cast))
        return commas(values)

    def user(self) -> Fragment:
        """Print the user of the author."""
        return param(_slot(self.first_slot), "uuid")

    def address(self) -> Fragment:
        """Print the address of the author."""
        return param(_slot(self.first_slot + 1), "text")

    def column(self, index: int, element: str) -> Fragment:
        slot = _slot(self._first_column + index)
        if self.single:
            return param(slot, element)
        return param(slot, f"{element}[]")

    def column_array(self, index: int, element: str) -> Fragment:
        """Print the values of a column as an array, however many there are."""
        column = self.column(index, element)
        if not self.single:
            return column
        return fill("ARRAY[{0}]", column)

    def row_count(self) -> Fragment:
        """Print the number of rows that come without values."""
        return param(_slot(self._first_column), "integer")

    @property
    def _first_column(self) -> int:
        slot = self.first_slot + AUTHOR_SLOTS
        if self.flows:
            slot += CAUSE_SLOTS
        return slot


def array_type(field: Field) -> str:
    """Return the type of an array's elements: text where the column's type has no plain array."""
    # A key of single precision equals only what is rounded in the same way.
    return field.type.rounded_cast or field.type.array_cast or field.type.cast


def key_cast(key: Field) -> str:
    """Return the type that a key is cast to."""
    # Such a type, an enum for instance, has a cast of its own in each column.
    if (key.type.is_text_form or key.type.own_comparisons) and key.column:
        return key.column.cast
    return array_type(key)


@lru_cache(maxsize=1024)
def _slot(index: int) -> Slot:
    """Return the slot of a literal: the same object however often it is printed."""
    return Slot(index)


# Arrays as PostgreSQL reads them: many values as one parameter


def array(values: Sequence[str | None]) -> str:
    """Return PostgreSQL's text of an array, which the driver would build far more slowly."""
    # Most values need no escaping: joined at once, they hold no other quotes than those between
    # them.
    if values and None not in values:
        joined = '","'.join(values)  # type: ignore[arg-type]
        if joined.count('"') == 2 * (len(values) - 1) and "\\" not in joined:
            return f'{{"{joined}"}}'
    # Unquoted NULL is the null of an array; every other element is quoted, so that a text "NULL"
    # stays a text.
    elements = ["NULL" if value is None else _element(value) for value in values]
    return "{" + ",".join(elements) + "}"


def _element(value: str) -> str:
    if '"' in value or "\\" in value:
        # The backslash first: otherwise the backslashes of escaped quotes would be doubled.
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
