"""The shape of a query string: the query string without the operands of its filters.

Requests that differ in operands only have one shape, which is parsed once for all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple
from urllib.parse import unquote_plus

from cms.query.language.brackets import decoded_pairs, merge_pairs
from cms.query.language.operators import OPERATORS, OperandKind

_OPERAND_MARKER = "\udfff"
"""A character that no query string holds: half of a surrogate pair."""

# Clients send brackets raw or percent-encoded, in either case.
_OPENS = r"(?:\[|%5[Bb])"
_CLOSES = r"(?:\]|%5[Dd])"
# A key with a percent sign or a plus could decode to anything, so such a parameter keeps its
# operand and is parsed with it.
_KEY = r"[^\[\]&=%+]*"
# Operands of these kinds reach the statement as they are. The parser looks into those of others: it
# splits lists and reads flags.
_NAMES = "|".join(
    name
    for name, operator in OPERATORS.items()
    if operator.operand_kind in (OperandKind.ONE, OperandKind.PATTERN)
)
_LAST = f"(?:{_NAMES}){_CLOSES}"
# The groups of `filter[price][_gt]=5` are `filter[price][_gt]=` and `5`. (?<![^&]) is the start of
# a parameter, (?!_LAST) keeps an operator out of the middle, and (?!\$|%24) leaves variables to the
# parser.
_OPERAND = re.compile(
    rf"(?<![^&])({_KEY}(?:{_OPENS}(?!{_LAST}){_KEY}{_CLOSES})+{_OPENS}{_LAST}=)(?!\$|%24)([^&]*)"
)


class JsonText(str):
    """A text of a query string that is read as JSON where it is JSON: `5`, `true`, `"5"`, `red`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OperandGap:
    """Stands where an operand was taken out; with `is_json` it comes back as `JsonText`.

    It is neither text nor list: code that looked at the value would refuse it.
    """

    index: int
    is_json: bool = False

    def as_json(self) -> OperandGap:
        """Return the gap of an operand that may be JSON."""
        return replace(self, is_json=True)


class QueryShape(NamedTuple):
    """A query string with gaps, and the operands that were taken out, decoded."""

    text: str
    operands: tuple[str, ...] = ()

    def params(self) -> dict[str, object]:
        """Return the parameters as nested dicts, with gaps for operands."""
        # The n-th marker gets the n-th operand. Both sides run through the query string from left
        # to right; the tree may meet the gaps in another order, and so each knows its index.
        indexes = count()
        pairs: list[tuple[str, object]] = []
        for name, value in decoded_pairs(self.text):
            if value == _OPERAND_MARKER:
                pairs.append((name, OperandGap(next(indexes))))
            else:
                pairs.append((name, value))
        return merge_pairs(pairs)

    def fill_gaps(self, literals: tuple[object, ...]) -> tuple[object, ...]:
        """Return the literals of the parsed shape with the operands in their gaps."""
        if not self.operands:
            return literals
        filled: list[object] = []
        for literal in literals:
            if isinstance(literal, OperandGap):
                operand = self.operands[literal.index]
                filled.append(JsonText(operand) if literal.is_json else operand)
            else:
                filled.append(literal)
        return tuple(filled)


def shape_of(query_string: str) -> QueryShape:
    """Return a query string without the operands that become literals as they are.

    These are operands of operators with one value; variables such as `$NOW` stay.
    """
    # A string that the parser refuses, or decodes in a way of its own, is left to it as a whole.
    # Searches for a text take a tenth of the time of one for a pattern.
    has_brackets = "[" in query_string or "%5B" in query_string or "%5b" in query_string
    holds_zero = "\0" in query_string or "%00" in query_string
    if not has_brackets or holds_zero or not query_string.isascii():
        return QueryShape(query_string)
    # What stands before an operand, the two groups of the operand, and so on.
    parts = _OPERAND.split(query_string)
    operands = tuple(map(unquote_plus, parts[2::3]))
    parts[2::3] = [_OPERAND_MARKER] * len(operands)
    return QueryShape("".join(parts), operands)
