"""The types of structures: JSON, arrays, geometries; and of bytes.

The shape of GeoJSON geometries (RFC 7946, section 3.1) is checked here, because PostGIS answers a
malformed geometry with an internal error.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType

from cms import jsontext
from cms.schema.types.field_type import (
    Cell,
    FieldFunction,
    FieldType,
    IndexKind,
    Trait,
    ValueSize,
    count_entries,
)
from cms.schema.types.texts import TEXT_TYPES

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


_COUNT = "CASE WHEN json_typeof({0}::json) = 'array' THEN json_array_length({0}::json) END"


def parse_json(value: object) -> str:
    try:
        return jsontext.dumps(value).decode()
    except TypeError:
        raise ValueError(jsontext.NESTED_TOO_DEEPLY) from None


def parse_binary(value: object) -> str:
    """Take base64 and return PostgreSQL's hexadecimal form."""
    if isinstance(value, str):
        # binascii.Error is a ValueError, and letters outside ASCII raise one too.
        with suppress(ValueError):
            return "\\x" + base64.b64decode(value, validate=True).hex()
    raise ValueError("it must be base64")


def parse_geometry(value: object) -> str:
    if not is_geometry(value):
        raise ValueError("it must be a GeoJSON geometry")
    return parse_json(value)


def _same_value(value: object) -> object:
    return value


def _base64(literal: str) -> object:
    return base64.b64encode(bytes.fromhex(literal.removeprefix("\\x"))).decode()


# Columns are json and not jsonb: json keeps the order of members and all digits of numbers, as they
# were sent.
JSON = FieldType(
    name="json",
    traits=frozenset({Trait.NULL, Trait.EMPTINESS, Trait.JSON}),
    parse=parse_json,
    comparable=_same_value,
    read_default=jsontext.loads_stored,
    cell=Cell.JSON,
    functions={"count": FieldFunction(_COUNT, count_entries)},
    size=ValueSize.LONG,
    cast="json",
    array_cast="text",
    write_sql="{0}::{1}",
    json_sql="{0}::json",
    json_schema={},
    base_types=("json", "jsonb"),
    marker="cast-json",
    markers=frozenset({"cast-json"}),
    has_equality=False,
    has_list_elements=False,
    column_sql="json",
)
# A text column that holds JSON; only the marker tells it from other texts.
TEXT_JSON = replace(
    JSON,
    document_sql="{0}::json",
    is_kept_in_history=False,
    base_types=(),
    marked_types=TEXT_TYPES,
)
# An array, which clients read and write as a list.
LIST = replace(
    JSON,
    traits=JSON.traits | {Trait.PARTS},
    value_sql="to_json({0})",
    json_schema={"type": "array", "items": {}},
    is_kept_in_history=False,
    base_types=(),
)
BINARY = FieldType(
    name="binary",
    traits=frozenset({Trait.NULL}),
    parse=parse_binary,
    read_default=_base64,
    size=ValueSize.LONG,
    cast="bytea",
    # encode() breaks lines after 76 characters, and JSON readers of base64 may refuse that.
    json_sql="translate(encode({0}, 'base64'), E'\\n', '')",
    json_schema={"type": "string", "contentEncoding": "base64"},
    base_types=("bytea",),
    is_kept_in_history=False,
    has_list_elements=False,
    column_sql="bytea",
)
GEOMETRY = FieldType(
    name="geometry",
    traits=frozenset({Trait.NULL, Trait.GEOMETRY}),
    parse=parse_geometry,
    cell=Cell.JSON,
    size=ValueSize.LONG,
    cast="json",
    array_cast="text",
    write_sql="ST_GeomFromGeoJSON({0})",
    text_sql="ST_GeomFromGeoJSON({0})",
    json_sql="ST_AsGeoJSON({0})::json",
    json_schema={
        "type": "object",
        "description": "A geometry of GeoJSON.",
        "examples": [{"type": "Point", "coordinates": [13.4, 52.5]}],
    },
    base_types=("geometry",),
    marker="geometry",
    markers=frozenset({"geometry"}),
    has_equality=False,
    is_kept_in_history=False,
    has_list_elements=False,
    # 4326 is the number of WGS 84, the longitudes and latitudes of GeoJSON.
    column_sql="geometry(Geometry, 4326)",
    extension="postgis",
    index_kind=IndexKind.GEOMETRIES,
    can_change=False,
)
GEOMETRIES = tuple(
    replace(
        GEOMETRY, name=f"geometry.{shape}", base_types=(), column_sql=f"geometry({shape}, 4326)"
    )
    for shape in SHAPES
)
