"""The field types as one table: column type, accepted input, and how answers show a value.

Every parameter travels as text and is cast inside the statement, so that a statement is prepared
once for all values. Every value is shown by one SQL expression, at the top of an answer and in its
nested parts alike.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from cms import jsontext
from cms.digits import check_numbers, decimal_of
from cms.schema.geojson import is_geometry

M = TypeVar("M", date, time, datetime)

_UUID = re.compile(
    r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE
)
_KEY = re.compile(r"[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMERIC_DIGITS_BEFORE = 131_072
"""The digits before the point that a numeric can hold."""
_NUMERIC_DIGITS_AFTER = 16_383


class OutOfRange(ValueError):
    """A value of the right kind that its type cannot hold."""


class TooLong(ValueError):
    """A text with more characters than its column takes."""


class Family(StrEnum):
    """Types that take the same operators and functions."""

    TEXT = "text"
    NUMBER = "number"
    MOMENT = "moment"
    BOOLEAN = "boolean"
    UUID = "uuid"
    JSON = "json"
    CSV = "csv"
    LIST = "list"
    HASH = "hash"
    BINARY = "binary"
    GEOMETRY = "geometry"
    ALIAS = "alias"


@dataclass(frozen=True, slots=True)
class Type:
    """One field type: `ddl` for a new column, `cast` for a parameter, `show` as a template over the
    column.
    """

    name: str
    family: Family
    ddl: str
    cast: str
    parse: Callable[[object], str]
    show: str = "{0}"


def parse_text(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("the character U+0000 cannot be stored")
        return value
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(value)
    raise ValueError("it must be a string")


def parse_unknown(value: object) -> str:
    """Return the text of a value whose type only PostgreSQL knows."""
    text = parse_text(value)
    # A number with very many digits would keep PostgreSQL busy.
    check_numbers(text)
    return text


def parse_uuid(value: object) -> str:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise ValueError("it must be a UUID")
    return str(uuid.UUID(value))


def parse_integer(value: object) -> str:
    # Two fast paths: nearly all values are small numbers, and keys in paths are short texts.
    if type(value) is int and -(2**63) <= value < 2**63:
        return str(value)
    if type(value) is str and _KEY.fullmatch(value):
        return value
    number = _number(value, "it must be a whole number")
    if not -(2**63) <= number < 2**63:
        raise OutOfRange("it is out of range")
    if number != int(number):
        raise ValueError("it must be a whole number")
    return str(int(number))


def parse_float(value: object) -> str:
    """Take a number that double precision can hold, neither too large nor too near to zero."""
    number = _number(value, "it must be a number")
    nearest = float(number)
    if math.isinf(nearest) or (nearest == 0 and number != 0):
        raise OutOfRange("it is out of range")
    return str(number)


def parse_real(value: object) -> str:
    """Take a number that single precision can hold."""
    text = parse_float(value)
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        raise OutOfRange("it is out of range") from None
    if nearest == 0 and float(text) != 0:
        raise OutOfRange("it is out of range")
    return text


def parse_decimal(value: object) -> str:
    """Take a number that a numeric without a precision can hold, with all its digits."""
    number = _number(value, "it must be a number")
    # Zero is written without its exponent, which may be out of PostgreSQL's range.
    if not number:
        return "0"
    decimals = -int(number.as_tuple().exponent)
    if number.adjusted() >= _NUMERIC_DIGITS_BEFORE or decimals > _NUMERIC_DIGITS_AFTER:
        raise OutOfRange("it is out of range")
    return str(number)


def _number(value: object, reason: str) -> Decimal:
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


_BOOLEANS = MappingProxyType({"true": "true", "1": "true", "false": "false", "0": "false"})


def parse_boolean(value: object) -> str:
    text = _BOOLEANS.get(str(value).lower()) if isinstance(value, str | int) else None
    if text is None:
        raise ValueError("it must be true or false")
    return text


# Moments of the service ($NOW, date-created) are datetimes in UTC; clients send moments as text.


def parse_date(value: object) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat()
    return _moment(value, "it must be a date, YYYY-MM-DD", date.fromisoformat).isoformat()


def parse_time(value: object) -> str:
    if isinstance(value, datetime):
        return value.time().isoformat()
    moment = _moment(value, "it must be a time, HH:MM:SS", time.fromisoformat)
    if moment.tzinfo is not None:
        raise ValueError("it must be a time without a zone")
    return moment.isoformat()


def parse_datetime(value: object) -> str:
    """Take ISO 8601; a value with a zone, as JavaScript sends it, is converted to UTC."""
    reason = "it must be a date and time, YYYY-MM-DDTHH:MM:SS"
    moment = _moment(value, reason, datetime.fromisoformat)
    return _in_utc(moment).replace(tzinfo=None).isoformat()


def parse_timestamp(value: object) -> str:
    """Take ISO 8601; a value without a zone is UTC."""
    moment = _moment(value, "it must be an ISO 8601 timestamp", datetime.fromisoformat)
    return _in_utc(moment).isoformat()


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except OverflowError:
        raise OutOfRange("it is out of range") from None


def _moment(value: object, reason: str, parse: Callable[[str], M]) -> M:
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(reason)
    try:
        return parse(value)
    except ValueError:
        raise ValueError(reason) from None


def parse_json(value: object) -> str:
    try:
        return jsontext.dumps(value).decode()
    except TypeError:
        raise ValueError("it is nested too deeply") from None


def parse_csv(value: object) -> str:
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list):
        raise ValueError("it must be an array of strings")
    entries = [parse_text(entry) for entry in entries]
    if value != "" and any(not entry or "," in entry for entry in entries):
        raise ValueError("each entry must be a string that is not empty and holds no comma")
    return ",".join(entries)


def parse_binary(value: object) -> str:
    """Take base64 and return PostgreSQL's hexadecimal form."""
    if not isinstance(value, str):
        raise ValueError("it must be base64")
    try:
        raw = base64.b64decode(value, validate=True)
    except ValueError:  # binascii.Error is one, and letters outside ASCII raise it too
        raise ValueError("it must be base64") from None
    return "\\x" + raw.hex()


def parse_geometry(value: object) -> str:
    if not is_geometry(value):
        raise ValueError("it must be a GeoJSON geometry")
    return parse_json(value)


def parse_nothing(value: object) -> str:
    raise ValueError("an alias field has no value of its own")


MASK = "**********"
MASKED_SQL = f"CASE WHEN {{0}} IS NOT NULL THEN '{MASK}' END"
_FINITE = "CASE WHEN {0} - {0} = 0 THEN to_json({0}) END"
_GEOMETRIES = ("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon")

_ALL = (
    Type("string", Family.TEXT, "varchar(255)", "text", parse_text, "{0}::text"),
    Type("text", Family.TEXT, "text", "text", parse_text, "{0}::text"),
    Type("uuid", Family.UUID, "uuid", "uuid", parse_uuid, "{0}::text"),
    Type("integer", Family.NUMBER, "integer", "bigint", parse_integer),
    Type("bigInteger", Family.NUMBER, "bigint", "bigint", parse_integer),
    Type("float", Family.NUMBER, "double precision", "double precision", parse_float, _FINITE),
    Type("decimal", Family.NUMBER, "numeric", "numeric", parse_decimal, _FINITE),
    Type("boolean", Family.BOOLEAN, "boolean", "boolean", parse_boolean),
    Type("date", Family.MOMENT, "date", "date", parse_date, "{0}::text"),
    Type("time", Family.MOMENT, "time", "time", parse_time, "to_char({0}, 'HH24:MI:SS')"),
    Type(
        "datetime",
        Family.MOMENT,
        "timestamp",
        "timestamp",
        parse_datetime,
        "to_char({0}, 'YYYY-MM-DD\"T\"HH24:MI:SS')",
    ),
    Type(
        "timestamp",
        Family.MOMENT,
        "timestamptz",
        "timestamptz",
        parse_timestamp,
        "to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')",
    ),
    Type("json", Family.JSON, "json", "json", parse_json, "{0}::json"),
    Type("csv", Family.CSV, "text", "text", parse_csv, "to_json(string_to_array({0}, ','))"),
    Type("hash", Family.HASH, "varchar(255)", "text", parse_text),
    Type(
        "binary",
        Family.BINARY,
        "bytea",
        "bytea",
        parse_binary,
        "translate(encode({0}, 'base64'), E'\\n', '')",
    ),
    Type("alias", Family.ALIAS, "", "", parse_nothing),
    Type("unknown", Family.TEXT, "", "text", parse_unknown, "{0}::text"),
    Type(
        "geometry",
        Family.GEOMETRY,
        "geometry(Geometry, 4326)",
        "json",
        parse_geometry,
        "ST_AsGeoJSON({0})::json",
    ),
    *(
        Type(
            f"geometry.{shape}",
            Family.GEOMETRY,
            f"geometry({shape}, 4326)",
            "json",
            parse_geometry,
            "ST_AsGeoJSON({0})::json",
        )
        for shape in _GEOMETRIES
    ),
)

TYPES: Mapping[str, Type] = MappingProxyType({field_type.name: field_type for field_type in _ALL})

_BY_BASE_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "varchar": "string",
        "bpchar": "string",
        "text": "text",
        "citext": "text",
        "uuid": "uuid",
        "int2": "integer",
        "int4": "integer",
        "int8": "bigInteger",
        "float4": "float",
        "float8": "float",
        "numeric": "decimal",
        "bool": "boolean",
        "date": "date",
        "time": "time",
        "timestamp": "datetime",
        "timestamptz": "timestamp",
        "json": "json",
        "jsonb": "json",
        "bytea": "binary",
    }
)


def type_name_of(base_type: str, data_type: str, special: tuple[str, ...]) -> str:
    """Return the name of a column's field type, by its PostgreSQL type and its special markers."""
    if base_type == "geometry":
        shape = re.match(r"geometry\((\w+)", data_type)
        shape_name = f"geometry.{shape[1]}" if shape else "geometry"
        return shape_name if shape_name in TYPES else "geometry"
    type_name = _BY_BASE_TYPE.get(base_type, "unknown")
    if type_name in ("string", "text"):
        for marker, marked_name in _TYPES_BY_MARKER.items():
            if marker in special:
                return marked_name
    if type_name in ("integer", "bigInteger") and "cast-boolean" in special:
        return "boolean"
    return type_name


_TYPES_BY_MARKER = {"cast-csv": "csv", "cast-json": "json", "hash": "hash"}
