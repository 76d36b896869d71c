"""Defaults of columns, from PostgreSQL's expressions to values and back (docs/structure.md)."""

from __future__ import annotations

import re

from cms.schema.model import Column, Field
from cms.schema.types import TYPES
from cms.schema.types.field_type import FieldType


def _now_words() -> frozenset[str]:
    """Return the expressions of the present moment, in small letters: `now()`, `current_date` …"""
    words = {"now()"}
    for field_type in TYPES.values():
        if field_type.now_sql:
            words.add(field_type.now_sql.lower())
    return frozenset(words)


_NOW_WORDS = _now_words()

# Without quotes and operators, because 'a'::text || 'b'::text is no literal.
CAST = r"(?:::[\w \".,()\[\]]+)?"
# 'draft'::character varying; quotes within the text are doubled.
_QUOTED = re.compile(rf"'((?:[^']|'')*)'{CAST}", re.DOTALL)
# 5, 1.5e10, true, and (-1): PostgreSQL prints negative numbers in parentheses, or in quotes as
# '-1'::integer.
_BARE = re.compile(rf"\(?(-?\d[\d.]*(?:e[+-]?\d+)?|true|false)\)?{CAST}", re.IGNORECASE)


def default_of(field: Field, column: Column) -> object:
    """Return a column's default in the form of items' values; a computed default as its expression.

    The present moment is `now()` for every type, and a new key is `gen_random_uuid()`: clients set
    these defaults by the same words.
    """
    expression = _expression(column)
    if expression is None:
        return None
    if field.type.now_sql and expression.lower() in _NOW_WORDS:
        return "now()"
    literal = _literal(expression)
    if column.element and literal == "{}":
        return []
    if column.element or literal is None:
        return expression
    return _typed(literal, field.type)


def is_computed(column: Column) -> bool:
    """Whether the default is an expression, whose value is known only when the row is inserted."""
    expression = _expression(column)
    return expression is not None and _literal(expression) is None


def has_unsettable_default(field: Field, column: Column) -> bool:
    """Tell whether the default is an expression of the database that clients cannot set."""
    return is_computed(column) and computed_default(field.type, _expression(column)) is None


def computed_default(field_type: FieldType, value: object) -> str | None:
    """Return the expression for a word such as `now()` as a default, or None for a plain value."""
    if not isinstance(value, str):
        return None
    text = value.lower()
    if text in _NOW_WORDS:
        return field_type.now_sql or None
    # `gen_random_uuid()` is the only expression besides the moment that a client can set.
    if text and text == field_type.key_default:
        return text
    return None


def _expression(column: Column) -> str | None:
    # PostgreSQL stores the expressions of sequences and of generated columns as defaults too.
    if column.has_auto_increment or column.is_generated:
        return None
    return column.default


def _literal(expression: str) -> str | None:
    if quoted := _QUOTED.fullmatch(expression):
        return quoted[1].replace("''", "'")
    if bare := _BARE.fullmatch(expression):
        return bare[1]
    return None


def _typed(literal: str, field_type: FieldType) -> object:
    """Return a literal as a value; one that JSON cannot show, such as infinity, stays as it is."""
    try:
        return field_type.read_default(literal)
    except ValueError:
        return literal
