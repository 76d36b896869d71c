"""The types of numbers and booleans."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import total_ordering
from types import MappingProxyType
from typing import Any

from cms import jsontext
from cms.digits import decimal_of
from cms.schema.types.field_type import (
    Cell,
    FastPath,
    FieldType,
    OutOfRange,
    Parse,
    RangeTest,
    RangeTestOf,
    Search,
    Trait,
    ValueSize,
    comparing,
)

# Keys as paths have them: no sign, no leading zero, within bigint whatever the digits.
_KEY = re.compile(r"[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMERIC_DIGITS_BEFORE = 131_072
"""The digits before the point that a numeric can hold."""
_NUMERIC_DIGITS_AFTER = 16_383
_ROUNDS_TO_INFINITY = 3.4028235677973366e38
"""The smallest number that rounds to infinity in single precision."""
_ROUNDS_TO_ZERO = 7.006492321624085e-46
"""The largest number that rounds to zero in single precision."""
_MAX_SCALE = 1_000
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_NO_NUMBER = "it must be a number"
_NO_WHOLE_NUMBER = "it must be a whole number"
_BOOLEANS = MappingProxyType({"true": "true", "1": "true", "false": "false", "0": "false"})


def parse_integer(value: object) -> str:
    # Two fast paths: nearly all values are small numbers, and keys in paths are short texts.
    if type(value) is int and -(2**63) <= value < 2**63:
        return str(value)
    if type(value) is str and _KEY.fullmatch(value):
        return value
    number = _number(value, _NO_WHOLE_NUMBER)
    # Before int(), which would write out all the digits of 1e900.
    if not -(2**63) <= number < 2**63:
        raise OutOfRange
    if number != int(number):
        raise ValueError(_NO_WHOLE_NUMBER)
    return str(int(number))


def parse_float(value: object) -> str:
    """Take a number that double precision can hold, neither too large nor too near to zero."""
    if value in _NOT_FINITE:
        return str(value)
    number = _number(value, _NO_NUMBER)
    nearest = float(number)
    if math.isinf(nearest) or (nearest == 0 and number != 0):
        raise OutOfRange
    return str(number)


def parse_real(value: object) -> str:
    """Take a number that single precision can hold."""
    text = parse_float(value)
    if not _fits_single_precision(text):
        raise OutOfRange
    return text


def parse_decimal(value: object) -> str:
    """Take a number that a numeric without a precision can hold, with all its digits."""
    if value in _NOT_FINITE:
        return str(value)
    number = _number(value, _NO_NUMBER)
    # Zero is written without its exponent, which may be out of PostgreSQL's range.
    if not number:
        return "0"
    decimals = -int(number.as_tuple().exponent)
    if number.adjusted() >= _NUMERIC_DIGITS_BEFORE or decimals > _NUMERIC_DIGITS_AFTER:
        raise OutOfRange
    return str(number)


def _number(value: object, reason: str) -> Decimal:
    # bool is an int to Python, and true is no number.
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise ValueError(reason)
    if isinstance(value, str):
        text = value.strip()
        # Decimal alone would take 1_000, and digits of other scripts.
        if not _NUMBER.fullmatch(text):
            raise ValueError(reason)
        number = decimal_of(text)
    else:
        number = Decimal(value)
    if not number.is_finite():
        raise ValueError(reason)
    return number


def parse_boolean(value: object) -> str:
    if isinstance(value, str | int):
        # True of Python becomes "true", and the number 1 is "1".
        text = _BOOLEANS.get(str(value).lower())
        if text is not None:
            return text
    raise ValueError("it must be true or false")


def integer_range(limit: int) -> RangeTestOf:
    """Return the range of whole numbers from `-limit` to below `limit`."""

    minimum = -limit

    def in_range(text: str) -> bool:
        return minimum <= int(text) < limit

    return lambda precision, scale: in_range


def single_precision_range(precision: int | None, scale: int | None) -> RangeTest | None:
    return _fits_single_precision


def _fits_single_precision(text: str) -> bool:
    if text in _NOT_FINITE:
        return True
    size = abs(float(text))
    return size == 0 or _ROUNDS_TO_ZERO < size < _ROUNDS_TO_INFINITY


def numeric_range(precision: int | None, scale: int | None) -> RangeTest | None:
    """Return whether a number has at most `precision` digits once PostgreSQL has rounded it."""
    if not precision:
        return None
    decimals = scale or 0
    # PostgreSQL stores the scale in eleven bits, so a negative one reads as a large number.
    if decimals > _MAX_SCALE:
        decimals -= 2048
    unit = Decimal(1).scaleb(-decimals)
    # PostgreSQL rounds halves away from zero, which Python calls ROUND_HALF_UP. quantize() fails
    # where the rounded number has more than `prec` digits.
    context = Context(prec=precision, rounding=ROUND_HALF_UP)

    def in_range(text: str) -> bool:
        try:
            context.quantize(Decimal(text), unit)
        except InvalidOperation:
            return False
        return True

    return in_range


def _single_precision(text: str) -> float:
    # Packed into four bytes and back: as the column holds it.
    return float(struct.unpack("f", struct.pack("f", float(text)))[0])


@total_ordering
class _NotANumber:
    """NaN in PostgreSQL's order: it equals itself, and is greater than all numbers."""

    def __eq__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __hash__(self) -> int:
        return 0


_NAN = _NotANumber()


def _comparable(parse: Parse, convert: Callable[[str], Any]) -> Callable[[object], Any]:
    """Return a function that converts what `parse` returns to a number, or to NaN."""
    return comparing(parse, lambda text: _NAN if text == "NaN" else convert(text))


def _is_true(text: str) -> bool:
    return text == "true"


def _shown_number(stored: str) -> object:
    # JSON has no NaN and no infinity: answers show them as texts.
    return stored if stored in _NOT_FINITE else jsontext.loads_stored(stored)


def _extreme_numbers(values: Sequence[int]) -> Iterable[int]:
    return min(values), max(values)


def _number_texts(values: Sequence[int | None]) -> Sequence[str | None]:
    return [None if value is None else str(value) for value in values]


def _integers_up_to(maximum: str) -> str:
    """Return the pattern of whole numbers, of either sign, whose digits make no more than these."""
    rest = len(maximum) - 1
    # For 250: [0-9]{1,2}, [0-1][0-9]{2}, 2[0-4][0-9]{1}, and 250 itself. A range of numbers has no
    # shorter regular expression.
    alternatives = [f"[0-9]{{1,{rest}}}"]
    # Numbers as long as the maximum: equal digits up to an index, a smaller one there, then any.
    for index, digit in enumerate(maximum):
        if digit != "0":
            smaller = f"[0-{int(digit) - 1}]"
            alternatives.append(f"{maximum[:index]}{smaller}[0-9]{{{rest - index}}}")
    # There is one more negative number than positive ones.
    return f"^(-?({'|'.join((*alternatives, maximum))})|-{int(maximum) + 1})$"


_NUMBER_TRAITS = frozenset(
    {
        Trait.NULL,
        Trait.EQUALITY,
        Trait.ORDER,
        Trait.SORTING,
        Trait.ARITHMETIC,
        Trait.REGEX,
    }
)
_NUMBER_MARKERS = frozenset({"cast-boolean"})
_JSON_NUMBER = {
    "anyOf": [{"type": "number"}, {"type": "string", "enum": list(_NOT_FINITE)}],
}
# JSON has no NaN and no infinity: to_json makes texts of them.
_NUMBER_OR_TEXT = "to_json({0})"


def _whole_numbers_below(limit: int) -> dict[str, object]:
    return {"type": "integer", "minimum": -limit, "maximum": limit - 1}


BIG_INTEGER = FieldType(
    name="bigInteger",
    traits=_NUMBER_TRAITS,
    parse=parse_integer,
    fast_path=FastPath(int, _extreme_numbers, _number_texts),
    comparable=comparing(parse_integer, Decimal),
    read_default=jsontext.loads_stored,
    cell=Cell.NUMBER,
    search=Search.EQUAL,
    cast="bigint",
    # The smallest bigint, -2**63, does not match: no many-to-any relation can name such a key.
    key_pattern=_integers_up_to(str(2**63 - 1)),
    base_types=("int8",),
    markers=_NUMBER_MARKERS,
    column_sql="bigint",
    json_schema=_whole_numbers_below(2**63),
    is_whole_number=True,
    can_be_key=True,
)
INTEGER = replace(
    BIG_INTEGER,
    name="integer",
    range_test=integer_range(2**31),
    # An index of an integer column serves a list only if the list is integer[]; bigint[] would make
    # PostgreSQL cast the column.
    index_cast="integer",
    # The sum of 32-bit numbers is no numeric.
    sum_sql="to_json(trim_scale({0}::numeric))",
    base_types=("int4",),
    json_schema=_whole_numbers_below(2**31),
    column_sql="integer",
)
# Clients know no smaller type than integer; the range and the index are those of the column.
SMALL_INTEGER = replace(
    INTEGER,
    range_test=integer_range(2**15),
    index_cast="smallint",
    base_types=("int2",),
    json_schema=_whole_numbers_below(2**15),
)
FLOAT = FieldType(
    name="float",
    traits=_NUMBER_TRAITS,
    parse=parse_float,
    comparable=_comparable(parse_float, float),
    read_default=_shown_number,
    cell=Cell.NUMBER,
    search=Search.EQUAL,
    cast="double precision",
    json_sql=_NUMBER_OR_TEXT,
    json_schema=_JSON_NUMBER,
    sum_sql=_NUMBER_OR_TEXT,
    base_types=("float8",),
    markers=_NUMBER_MARKERS,
    column_sql="double precision",
)
REAL = replace(
    FLOAT,
    range_test=single_precision_range,
    comparable=_comparable(parse_float, _single_precision),
    # A column of single precision equals only operands that are rounded in the same way.
    rounded_cast="real",
    parse_rounded=parse_real,
    base_types=("float4",),
)
# Decimals are compared as Decimal in Python: a float would make 0.1 + 0.2 another number than 0.3.
DECIMAL = replace(
    FLOAT,
    name="decimal",
    parse=parse_decimal,
    range_test=numeric_range,
    comparable=_comparable(parse_decimal, Decimal),
    size=ValueSize.DIGITS,
    cast="numeric",
    sum_sql=BIG_INTEGER.sum_sql,
    base_types=("numeric",),
    column_sql="numeric",
    size_settings=("numeric_precision", "numeric_scale"),
    sized_column_sql="numeric({0}, {1})",
)
BOOLEAN = FieldType(
    name="boolean",
    traits=frozenset({Trait.NULL, Trait.EQUALITY, Trait.SORTING}),
    parse=parse_boolean,
    comparable=comparing(parse_boolean, _is_true),
    read_default=comparing(parse_boolean, _is_true),
    cast="boolean",
    json_schema={"type": "boolean"},
    base_types=("bool",),
    marker="cast-boolean",
    markers=_NUMBER_MARKERS,
    column_sql="boolean",
)
# Older tables keep booleans as 0 and 1; the marker tells them from numbers.
NUMERIC_BOOLEAN = replace(
    BOOLEAN,
    write_sql="{0}::integer::{1}",
    text_sql="{0}::boolean::integer::{1}",
    value_sql="({0} <> 0)",
    is_kept_in_history=False,
    base_types=(),
    marked_types=frozenset({"integer", "bigInteger"}),
)
