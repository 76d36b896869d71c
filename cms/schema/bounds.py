"""What one column can hold of the values of its type, so that a value beyond it is told with its field."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from types import MappingProxyType

from cms.schema.model import Column

_WHOLE: Mapping[str, int] = MappingProxyType({"int2": 2**15, "int4": 2**31, "int8": 2**63})
_LARGEST_SINGLE, _SMALLEST_SINGLE = (
    3.4028235677973366e38,
    7.006492321624085e-46,
)  # what rounds to infinity, and to 0
_MAX_SCALE = 1_000


def is_bounded(column: Column) -> bool:
    """Whether there is anything for `is_within_bounds` to look at."""
    return column.base_type in _WHOLE or column.base_type == "float4" or bool(column.precision)


def is_within_bounds(column: Column, text: str) -> bool:
    """Whether a value, parsed by the column's type, is in the column's own range."""
    if most := _WHOLE.get(column.base_type):
        return -most <= int(text) < most
    if column.base_type == "float4":
        size = abs(float(text))
        return size == 0 or _SMALLEST_SINGLE < size < _LARGEST_SINGLE
    if column.base_type == "numeric" and column.precision:
        return _rounds_into(Decimal(text), column.precision, column.scale or 0)
    return True


def _rounds_into(number: Decimal, precision: int, scale: int) -> bool:
    """PostgreSQL rounds to the scale first; a negative scale is stored in eleven bits."""
    scale = scale - 2048 if scale > _MAX_SCALE else scale
    try:
        Context(prec=precision, rounding=ROUND_HALF_UP).quantize(number, Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return False
    return True
