"""How many digits a number may have: those before and after the point together, exponent written out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from cms.errors import Problem, abbreviated

MAX_DIGITS = 1_000

PathStep = str | int


class TooManyDigits(ValueError):
    """A number of more than `MAX_DIGITS` digits.

    `path` leads to it in the value of the JSON text that holds it, and `end` is where that value ends.
    """

    def __init__(self, text: str, path: Sequence[PathStep] = (), *, end: int = 0) -> None:
        super().__init__(f"a number takes at most {MAX_DIGITS} digits, its exponent written out")
        self.text = text
        self.path = tuple(path)
        self.end = end


def decimal_of(text: str) -> Decimal:
    """Return the number that a text of digits, point and exponent stands for; raises TooManyDigits.

    What is short and has no exponent cannot have too many, and is not looked at any further.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise TooManyDigits(text) from None
    if (len(text) > MAX_DIGITS or "e" in text or "E" in text) and _is_too_long(text, number):
        raise TooManyDigits(text)
    return number


def check_numbers(text: str) -> None:
    """Look at the numbers with an exponent in the text of a range, a record or the like; raises TooManyDigits.

    Digits that are written out are left alone: they take no more room than the text did, and may be bits or a word.
    """
    for match in _WITH_EXPONENT.finditer(_UUID.sub("", text.translate(_IGNORED))):
        decimal_of(match[0])


_IGNORED = str.maketrans("", "", '\\"_')
"""What PostgreSQL passes over within a number: the escapes and quotes of ranges and records, and marks of grouping."""

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.ASCII | re.IGNORECASE)

_WITH_EXPONENT = re.compile(
    r"(?<![\w.])(?:\d++(?:\.\d*+)?+|\.\d++)e[+-]?\d++(?!\w)", re.ASCII | re.IGNORECASE
)
"""A number that is a word of its own, and no part of hexadecimal digits."""


def _is_too_long(text: str, number: Decimal) -> bool:
    """Count without writing anything out: an exponent of a few characters may stand for gigabytes."""
    if len(text) > 2 * MAX_DIGITS:
        return True
    behind = max(-int(number.as_tuple().exponent), 0)
    before = max(number.adjusted() + 1, 0)
    return before + behind > MAX_DIGITS


def too_many_digits(error: TooManyDigits, **place: object) -> Problem:
    """Return the problem of a number with too many digits."""
    reason = str(error)
    extensions = {"reason": reason, **place, "value": abbreviated(error.text)}
    return Problem("VALUE_OUT_OF_RANGE", f"A value is out of range: {reason}.", extensions)
