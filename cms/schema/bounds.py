"""The range of one column, so that the service can name the field of a value beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from types import MappingProxyType

from cms.schema.model import Column

_INTEGER_LIMITS: Mapping[str, int] = MappingProxyType({"int2": 2**15, "int4": 2**31, "int8": 2**63})
_ROUNDS_TO_INFINITY = 3.4028235677973366e38
"""The smallest number that rounds to infinity in single precision."""
_ROUNDS_TO_ZERO = 7.006492321624085e-46
"""The largest number that rounds to zero in single precision."""
_MAX_SCALE = 1_000


def is_bounded(column: Column) -> bool:
    """Whether a column has bounds for `is_within_bounds` to check."""
    if column.base_type in _INTEGER_LIMITS or column.base_type == "float4":
        return True
    return bool(column.precision)


def is_within_bounds(column: Column, text: str) -> bool:
    """Whether a value, parsed by the column's type, is in the column's own range."""
    if limit := _INTEGER_LIMITS.get(column.base_type):
        return -limit <= int(text) < limit
    if column.base_type == "float4":
        size = abs(float(text))
        return size == 0 or _ROUNDS_TO_ZERO < size < _ROUNDS_TO_INFINITY
    if column.base_type == "numeric" and column.precision:
        return _rounds_into(Decimal(text), column.precision, column.scale or 0)
    return True


def _rounds_into(number: Decimal, precision: int, scale: int) -> bool:
    """Tell whether a number has at most `precision` digits once it is rounded, as by PostgreSQL."""
    # PostgreSQL stores the scale in eleven bits, so a negative one reads as a large number.
    if scale > _MAX_SCALE:
        scale -= 2048
    try:
        Context(prec=precision, rounding=ROUND_HALF_UP).quantize(number, Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return False
    return True
