"""Defaults of columns, from PostgreSQL's expressions to values and back (decisions, section 6)."""

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

_CAST = r"(?:::[\w \".,()\[\]]+)?"  # no quote and no operator: 'a'::text || 'b'::text is no literal
_QUOTED = re.compile(rf"'((?:[^']|'')*)'{_CAST}", re.DOTALL)
_BARE = re.compile(rf"\(?(-?\d[\d.]*(?:e[+-]?\d+)?|true|false)\)?{_CAST}", re.IGNORECASE)


def default_of(field: Field, column: Column) -> object:
    """Return a column's default as items show values of its type; a computed one as its expression.

    The present moment is `now()` whatever the type, a new key is `gen_random_uuid()`: the words that a client sends.
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
    """Whether the default is an expression: what it makes is not known before the row is there."""
    expression = _expression(column)
    return expression is not None and _literal(expression) is None


def is_database_expression(field: Field, column: Column) -> bool:
    """Whether the default is an expression of the database's that no client could have set."""
    return is_computed(column) and computed_default(field.type_name, _expression(column)) is None


def computed_default(type_name: str, value: object) -> str | None:
    """Return the expression that a word stands for as the default of a type, or None for a plain value."""
    word = value.lower() if isinstance(value, str) else None
    if word in _NOW_WORDS:
        return _NOW.get(type_name)
    return _NEW_UUID if word == _NEW_UUID and type_name == "uuid" else None


def _expression(column: Column) -> str | None:
    """What counts up or is generated has no default, although PostgreSQL keeps its expression in the same place."""
    return None if column.auto_increment or column.is_generated else column.default


def _literal(expression: str) -> str | None:
    if quoted := _QUOTED.fullmatch(expression):
        return quoted[1].replace("''", "'")
    bare = _BARE.fullmatch(expression)
    return bare[1] if bare else None


def _typed(literal: str, type_name: str) -> object:
    """Values that have no form in the interface, such as infinity, stay as PostgreSQL writes them."""
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
