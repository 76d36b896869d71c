"""The shape of GeoJSON geometries (RFC 7946, section 3.1).

Checked here because PostGIS answers a malformed geometry with an internal error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType

ShapeCheck = Callable[[object], bool]


def is_geometry(value: object) -> bool:
    """Tell whether a value is a GeoJSON geometry with its coordinates in the right shape."""
    if not isinstance(value, Mapping):
        return False
    if value.get("type") == "GeometryCollection":
        return _is_list_of(value.get("geometries"), _is_single, min_length=0)
    return _is_single(value)


def _is_single(value: object) -> bool:
    """Tell whether a value is a geometry other than a collection.

    RFC 7946, section 3.1.8, advises against collections in collections, and PostGIS cannot show
    them.
    """
    if not isinstance(value, Mapping):
        return False
    check = SHAPES.get(str(value.get("type")))
    return check is not None and check(value.get("coordinates"))


def _is_list_of(value: object, check: ShapeCheck, *, min_length: int) -> bool:
    return isinstance(value, list) and len(value) >= min_length and all(map(check, value))


def _is_position(value: object) -> bool:
    """Tell whether a value is a longitude and a latitude, with or without an altitude."""
    return isinstance(value, list) and 2 <= len(value) <= 3 and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    # Far beyond any coordinate, and far below the numbers that PostGIS computes infinity from.
    return -(10**12) < value < 10**12


def _is_line(value: object) -> bool:
    return _is_list_of(value, _is_position, min_length=2)


def _is_ring(value: object) -> bool:
    """Tell whether a value is a closed line: its last position is its first one."""
    # A triangle has three corners, and its first one again.
    if not isinstance(value, list) or not _is_list_of(value, _is_position, min_length=4):
        return False
    return bool(value[0] == value[-1])


def _is_polygon(value: object) -> bool:
    return _is_list_of(value, _is_ring, min_length=1)


SHAPES: Mapping[str, ShapeCheck] = MappingProxyType(
    {
        "Point": _is_position,
        "LineString": _is_line,
        "Polygon": _is_polygon,
        # Empty collections of shapes are valid GeoJSON.
        "MultiPoint": lambda value: _is_list_of(value, _is_position, min_length=0),
        "MultiLineString": lambda value: _is_list_of(value, _is_line, min_length=0),
        "MultiPolygon": lambda value: _is_list_of(value, _is_polygon, min_length=0),
    }
)
