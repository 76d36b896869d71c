"""How many digits a number may have, before and after the point, with the exponent written out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from cms.errors import Problem, abbreviated
from cms.text_shapes import UUID

# PostgreSQL's numeric holds far more, but then a few characters such as 1e100000 would stand for a
# very long value.
MAX_DIGITS = 1_000

JsonPathStep = str | int


class TooManyDigits(ValueError):
    """A number has more than `MAX_DIGITS` digits.

    `path` leads to the number within its JSON value, and `end` is where the text of that value
    ends.
    """

    def __init__(self, text: str, path: Sequence[JsonPathStep] = (), *, end: int = 0) -> None:
        super().__init__(f"a number takes at most {MAX_DIGITS} digits, its exponent written out")
        self.text = text
        self.path = tuple(path)
        self.end = end


def decimal_of(text: str) -> Decimal:
    """Return the number of a text of digits, point and exponent; raises `TooManyDigits`."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise TooManyDigits(text) from None
    # A short text without an exponent cannot have too many digits.
    if (len(text) > MAX_DIGITS or "e" in text or "E" in text) and _is_too_long(text, number):
        raise TooManyDigits(text)
    return number


def check_numbers(text: str) -> None:
    """Raise `TooManyDigits` for a number with a large exponent in the text of a range or record.

    Digits without an exponent are left alone: they take no more room than the text, and may be bits
    or a word.
    """
    # Parts of a UUID can look like numbers with an exponent: 7e90.
    for match in _WITH_EXPONENT.finditer(_UUID.sub("", text.translate(_IGNORED))):
        decimal_of(match[0])


_IGNORED = str.maketrans("", "", '\\"_')
"""Characters that PostgreSQL ignores within a number: quotes, escapes and digit separators."""

_UUID = re.compile(rf"\b{UUID}\b", re.ASCII | re.IGNORECASE)

# The quantifiers are possessive (`++`): a long run of digits is not tried again piece by piece.
_WITH_EXPONENT = re.compile(
    r"(?<![\w.])(?:\d++(?:\.\d*+)?+|\.\d++)e[+-]?\d++(?!\w)", re.ASCII | re.IGNORECASE
)
"""A number with an exponent that is a word of its own, not a part of hexadecimal digits."""


def _is_too_long(text: str, number: Decimal) -> bool:
    """Count the digits without writing them out: a short exponent may stand for gigabytes."""
    # Leading zeros and the point count here as well; a text so long is refused whatever it is.
    if len(text) > 2 * MAX_DIGITS:
        return True
    # For 1.5e3 the exponent of the decimal is 2 (15 with two zeros): no digits behind the point,
    # four before it.
    fraction_digits = max(-int(number.as_tuple().exponent), 0)
    integer_digits = max(number.adjusted() + 1, 0)
    return integer_digits + fraction_digits > MAX_DIGITS


def too_many_digits(error: TooManyDigits, **details: object) -> Problem:
    """Return the problem of a number with too many digits."""
    reason = str(error)
    extensions = {"reason": reason, **details, "value": abbreviated(error.text)}
    return Problem("VALUE_OUT_OF_RANGE", f"A value is out of range: {reason}.", extensions)
