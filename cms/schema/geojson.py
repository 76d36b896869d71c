"""GeoJSON geometries (RFC 7946, section 3.1): PostGIS answers a malformed one with an internal error."""

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
        return _all(value.get("geometries"), _is_single, least=0)
    return _is_single(value)


def _is_single(value: object) -> bool:
    """A collection within a collection is to be avoided (RFC 7946, section 3.1.8), and PostGIS cannot show one."""
    if not isinstance(value, Mapping):
        return False
    check = _SHAPES.get(str(value.get("type")))
    return check is not None and check(value.get("coordinates"))


def _all(value: object, check: ShapeCheck, *, least: int) -> bool:
    return isinstance(value, list) and len(value) >= least and all(map(check, value))


def _is_position(value: object) -> bool:
    return _all(value, _is_number, least=2) and isinstance(value, list) and len(value) <= 3


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    return -(10**12) < value < 10**12


def _is_line(value: object) -> bool:
    return _all(value, _is_position, least=2)


def _is_ring(value: object) -> bool:
    """A ring is closed: it ends where it began."""
    return _all(value, _is_position, least=4) and isinstance(value, list) and value[0] == value[-1]


def _is_polygon(value: object) -> bool:
    return _all(value, _is_ring, least=1)


_SHAPES: Mapping[str, ShapeCheck] = MappingProxyType(
    {
        "Point": _is_position,
        "LineString": _is_line,
        "Polygon": _is_polygon,
        "MultiPoint": lambda value: _all(value, _is_position, least=0),
        "MultiLineString": lambda value: _all(value, _is_line, least=0),
        "MultiPolygon": lambda value: _all(value, _is_polygon, least=0),
    }
)
