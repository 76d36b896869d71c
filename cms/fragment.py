"""SQL text that holds its parameters: the only way in which statements are composed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


class NumberedSql(NamedTuple):
    """The text of a statement with its parameters as `$1 …`, and their values in that order."""

    text: str
    values: tuple[object, ...]


class TemplatePiece(NamedTuple):
    """A piece of a template: SQL, or the number of the operand that stands there."""

    text: str
    is_operand: bool


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of SQL: parts of text with one parameter between each two of them.

    `parts` always has one element more than `values`. `numbered` gives the parameters their numbers
    `$1 …` once the statement is complete; a value never becomes text.
    """

    parts: tuple[str, ...] = ("",)
    values: tuple[object, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether the fragment holds anything."""
        return self != EMPTY

    def __add__(self, suffix: Fragment) -> Fragment:
        # The last part of the one and the first of the other become one part, so that a parameter
        # stays between each two.
        joint = self.parts[-1] + suffix.parts[0]
        return Fragment((*self.parts[:-1], joint, *suffix.parts[1:]), self.values + suffix.values)

    def numbered(self) -> NumberedSql:
        """Return the finished statement.

        A symbolic value (one that PostgreSQL does not take as it is) gets one number for all of its
        places, so that an expression can stand in SELECT and in GROUP BY.
        """
        pieces = [self.parts[0]]
        values: list[object] = []
        # By identity: placeholders are shared objects (`lru_cache` in the printers), and comparing
        # them would take longer.
        numbers: dict[int, int] = {}
        for value, part in zip(self.values, self.parts[1:], strict=True):
            number = numbers.get(id(value))
            if number is None:
                values.append(value)
                number = len(values)
                # One object may be the plain value of several places that take different types.
                if not isinstance(value, str | list | None):
                    numbers[id(value)] = number
            pieces.append(f"${number}{part}")
        return NumberedSql("".join(pieces), tuple(values))


EMPTY = Fragment()


def text(sql: str) -> Fragment:
    """Return SQL that is written in this code base; never pass anything from a request."""
    return Fragment((sql,))


def param(value: object, cast: str = "") -> Fragment:
    """Return a parameter, with `::cast` where its type does not follow from its place."""
    return Fragment(("", f"::{cast}" if cast else ""), (value,))


def name(identifier: str) -> Fragment:
    """Return an identifier of the catalogue, quoted."""
    return text(quoted(identifier))


def quoted(identifier: str) -> str:
    """Return an identifier in double quotes, with double quotes inside it doubled."""
    return '"' + identifier.replace('"', '""') + '"'


def join(separator: str, fragments: Iterable[Fragment]) -> Fragment:
    """Return the fragments with `separator` between them, in linear time."""
    parts: list[str] = [""]
    values: list[object] = []
    for index, fragment in enumerate(fragments):
        parts[-1] += (separator if index else "") + fragment.parts[0]
        parts.extend(fragment.parts[1:])
        values.extend(fragment.values)
    return Fragment(tuple(parts), tuple(values))


def concat(*fragments: Fragment | str) -> Fragment:
    """Return fragments, and pieces of this code base's SQL, one behind the other."""
    return join("", (text(piece) if isinstance(piece, str) else piece for piece in fragments))


def commas(fragments: Iterable[Fragment]) -> Fragment:
    return join(", ", fragments)


def clause(keyword: str, fragments: Sequence[Fragment], *, separator: str = ", ") -> Fragment:
    """Return the fragments behind a keyword such as ` WHERE `, or EMPTY where there are none."""
    if not fragments:
        return EMPTY
    return concat(keyword, join(separator, fragments))


def optional(sql: str, *, when: object) -> Fragment:
    """Return SQL of this code base if `when` holds, else EMPTY."""
    if not when:
        return EMPTY
    return text(sql)


def fill(template: str, *operands: Fragment) -> Fragment:
    """Return a template of this code base's SQL with `{0}`, `{1}` … replaced by the operands."""
    fragments = [
        operands[int(piece.text)] if piece.is_operand else text(piece.text)
        for piece in _split(template)
    ]
    return join("", fragments)


@lru_cache(maxsize=1024)
def _split(template: str) -> tuple[TemplatePiece, ...]:
    # With a group in the pattern, every second piece is the number of an operand.
    pieces = re.split(r"\{(\d)\}", template)
    return tuple(TemplatePiece(piece, bool(index % 2)) for index, piece in enumerate(pieces))
