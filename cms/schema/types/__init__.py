"""The field types: a table of them all, and the types of existing columns.

Every parameter travels as text and is cast inside the statement, so that a statement is prepared
once for all values. Every value is shown by one SQL expression, at the top of an answer and in its
nested parts alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from cms.schema.types.date_times import DATE, DATETIME, TIME, TIMESTAMP
from cms.schema.types.field_type import FieldType
from cms.schema.types.numbers import (
    BIG_INTEGER,
    BOOLEAN,
    DECIMAL,
    FLOAT,
    INTEGER,
    NUMERIC_BOOLEAN,
    REAL,
    SMALL_INTEGER,
)
from cms.schema.types.structures import BINARY, GEOMETRIES, GEOMETRY, JSON, LIST, TEXT_JSON
from cms.schema.types.texts import (
    BITS,
    CITEXT,
    CSV,
    ENUM,
    HASH,
    INET,
    OPAQUE,
    ORDERED,
    REGCLASS,
    STRING,
    TEXT,
    UNKNOWN,
    UUID,
)
from cms.text_shapes import MASK

MASKED_SQL = f"CASE WHEN {{0}} IS NOT NULL THEN '{MASK}' END"

ALIAS_SPECIALS = frozenset(
    {"alias", "o2m", "m2m", "m2a", "files", "translations", "group", "no-data"}
)


def parse_nothing(value: object) -> str:
    raise ValueError("an alias field has no value of its own")


ALIAS = FieldType(
    name="alias",
    parse=parse_nothing,
    cast="",
    json_schema={},
    markers=ALIAS_SPECIALS,
    can_change=False,
)
"""A field without a column: a list of related items, or a mere part of a form."""

_ALL = (
    STRING,
    TEXT,
    UUID,
    INTEGER,
    BIG_INTEGER,
    FLOAT,
    DECIMAL,
    BOOLEAN,
    DATE,
    TIME,
    DATETIME,
    TIMESTAMP,
    JSON,
    CSV,
    HASH,
    BINARY,
    ALIAS,
    UNKNOWN,
    GEOMETRY,
    *GEOMETRIES,
)
VARIANTS = (
    SMALL_INTEGER,
    REAL,
    NUMERIC_BOOLEAN,
    TEXT_JSON,
    LIST,
    CITEXT,
    ORDERED,
    BITS,
    INET,
    OPAQUE,
    REGCLASS,
    ENUM,
)
"""Types that have the name of another one for clients, and differ in their columns only."""

TYPES: Mapping[str, FieldType] = MappingProxyType(
    {field_type.name: field_type for field_type in _ALL}
)

# Directus writes it so.
_OTHER_NAMES = MappingProxyType({"dateTime": "datetime"})


def type_named(name: object) -> FieldType | None:
    """Return the type that a client names, or None for a text that is no type."""
    if not isinstance(name, str):
        return None
    return TYPES.get(_OTHER_NAMES.get(name, name))


_KEYS = [field_type for field_type in _ALL if field_type.can_be_key]
_KEYS.sort(key=lambda field_type: not field_type.is_whole_number)
KEY_TYPES = tuple(field_type.name for field_type in _KEYS)
"""The types of primary keys that clients can make, whole numbers first."""


_BY_BASE_TYPE = {
    base_type: field_type
    for field_type in (*_ALL, *VARIANTS)
    for base_type in field_type.base_types
}
# If a field has several markers, the first in alphabetical order decides.
_MARKED_TYPES = [field_type for field_type in (*_ALL, *VARIANTS) if field_type.marked_types]
_MARKED_TYPES.sort(key=lambda field_type: field_type.marker)


def type_of_base_type(base_type: str) -> FieldType:
    """Return the type of columns, or of elements of arrays, by the name that PostgreSQL has."""
    return _BY_BASE_TYPE.get(base_type, UNKNOWN)


def type_of_column(base_type: str, data_type: str, special: tuple[str, ...]) -> FieldType:
    """Return the type of a column, by its PostgreSQL type and the special markers of its field."""
    # First by the type of PostgreSQL, then by the marker: a `varchar` with the marker `cast-csv` is
    # a csv field, a `date` with it stays a date.
    column_type = type_of_base_type(base_type)
    if column_type is GEOMETRY:
        # `geometry(Point,4326)` is geometry.Point; plain `geometry` takes all shapes.
        shape = re.match(r"geometry\((\w+)", data_type)
        return TYPES.get(f"geometry.{shape[1]}", GEOMETRY) if shape else GEOMETRY
    for field_type in _MARKED_TYPES:
        if field_type.marker in special and column_type.name in field_type.marked_types:
            return field_type
    return column_type
