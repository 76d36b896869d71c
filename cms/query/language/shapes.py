"""The shape of a query string: what is left of it without the operands of its filters.

Requests that differ in operands only have one shape, which is parsed once for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from urllib.parse import unquote_plus

from cms.query.language.brackets import decoded_pairs, merge_pairs
from cms.query.language.operators import OPERATORS, Takes

_OPERAND_MARK = "\udfff"
"""What no query string holds: half of a surrogate pair."""

_OPENS, _CLOSES, _KEY = r"(?:\[|%5[Bb])", r"(?:\]|%5[Dd])", r"[^\[\]&=%+]*"
_NAMES = "|".join(
    name for name, found in OPERATORS.items() if found.takes in (Takes.ONE, Takes.PATTERN)
)
_LAST = f"(?:{_NAMES}){_CLOSES}"
_BRACKET = re.compile(_OPENS)
_OPERAND = re.compile(
    rf"(?<![^&])({_KEY}(?:{_OPENS}(?!{_LAST}){_KEY}{_CLOSES})+{_OPENS}{_LAST}=)(?!\$|%24)([^&]*)"
)


@dataclass(frozen=True, slots=True)
class OperandGap:
    """Where an operand stood. It is no text and no list, so whatever looks at a value refuses it."""

    index: int


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query string with gaps, and what stood in them, decoded."""

    text: str
    operands: tuple[str, ...] = ()

    def params(self) -> dict[str, object]:
        """Return the parameters as nested dicts, with gaps for operands."""
        places = count()
        found = decoded_pairs(self.text)
        return merge_pairs(
            (name, OperandGap(next(places)) if value == _OPERAND_MARK else value)
            for name, value in found
        )

    def fill_gaps(self, literals: Iterable[object]) -> tuple[object, ...]:
        """Return the literals of the parsed shape with the operands in their gaps."""
        return tuple(
            self.operands[found.index] if isinstance(found, OperandGap) else found
            for found in literals
        )


def shape_of(query_string: str) -> QueryShape:
    """Take out what becomes a literal as it is: operands that are no variables, of operators that take one value."""
    if (
        _BRACKET.search(query_string) is None
        or not query_string.isascii()
        or _holds_zero(query_string)
    ):
        return QueryShape(query_string)
    operands: list[str] = []

    def taken(found: re.Match[str]) -> str:
        operands.append(unquote_plus(found[2]))
        return found[1] + _OPERAND_MARK

    return QueryShape(_OPERAND.sub(taken, query_string), tuple(operands))


def _holds_zero(query_string: str) -> bool:
    return "\0" in query_string or "%00" in query_string
