"""Defaults of columns, from PostgreSQL's expressions to values and back (docs/structure.md)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from cms import jsontext
from cms.schema.model import Column, Field
from cms.schema.types import TYPES, Family, parse_datetime

_NOW: Mapping[str, str] = MappingProxyType(
    {
        "date": "CURRENT_DATE",
        "time": "LOCALTIME",
        "datetime": "LOCALTIMESTAMP",
        "timestamp": "CURRENT_TIMESTAMP",
    }
)
_NOW_WORDS = frozenset({"now()", *(expression.lower() for expression in _NOW.values())})
_NEW_UUID = "gen_random_uuid()"

# Without quotes and operators, because 'a'::text || 'b'::text is no literal.
_CAST = r"(?:::[\w \".,()\[\]]+)?"
_QUOTED = re.compile(rf"'((?:[^']|'')*)'{_CAST}", re.DOTALL)
_BARE = re.compile(rf"\(?(-?\d[\d.]*(?:e[+-]?\d+)?|true|false)\)?{_CAST}", re.IGNORECASE)


def default_of(field: Field, column: Column) -> object:
    """Return a column's default in the form of items' values; a computed default as its expression.

    The present moment is `now()` for every type, and a new key is `gen_random_uuid()`: clients set
    these defaults by the same words.
    """
    expression = _expression(column)
    if expression is None:
        return None
    if field.type.family is Family.MOMENT and expression.lower() in _NOW_WORDS:
        return "now()"
    literal = _literal(expression)
    if field.is_list:
        return [] if literal == "{}" else expression
    return expression if literal is None else _typed(literal, field.type_name)


def is_computed(column: Column) -> bool:
    """Whether the default is an expression, whose value is known only once the row is there."""
    expression = _expression(column)
    return expression is not None and _literal(expression) is None


def is_database_expression(field: Field, column: Column) -> bool:
    """Whether the default is an expression that no client can set."""
    return is_computed(column) and computed_default(field.type_name, _expression(column)) is None


def computed_default(type_name: str, value: object) -> str | None:
    """Return the expression for a word such as `now()` as a default, or None for a plain value."""
    word = value.lower() if isinstance(value, str) else None
    if word in _NOW_WORDS:
        return _NOW.get(type_name)
    if word == _NEW_UUID and type_name == "uuid":
        return _NEW_UUID
    return None


def _expression(column: Column) -> str | None:
    # PostgreSQL stores the expressions of sequences and of generated columns as defaults too.
    if column.auto_increment or column.is_generated:
        return None
    return column.default


def _literal(expression: str) -> str | None:
    if quoted := _QUOTED.fullmatch(expression):
        return quoted[1].replace("''", "'")
    bare = _BARE.fullmatch(expression)
    return bare[1] if bare else None


def _typed(literal: str, type_name: str) -> object:
    """Return a literal as a value; one that JSON cannot show, such as infinity, stays as it is."""
    try:
        return _value(literal, type_name)
    except ValueError:
        return literal


def _value(literal: str, type_name: str) -> object:
    match TYPES[type_name].family:
        case Family.NUMBER | Family.JSON:
            return jsontext.loads_stored(literal)
        case Family.BOOLEAN:
            return TYPES["boolean"].parse(literal) == "true"
        case Family.CSV:
            return literal.split(",") if literal else []
        case Family.BINARY:
            return base64.b64encode(bytes.fromhex(literal.removeprefix("\\x"))).decode()
        case Family.MOMENT if type_name == "datetime":
            return parse_datetime(literal)
        case Family.MOMENT if type_name == "timestamp":
            moment = datetime.fromisoformat(literal).astimezone(UTC)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _:
            return literal
