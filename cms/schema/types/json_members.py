"""The type of values inside of JSON documents, each of which has a type of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from cms import jsontext
from cms.schema.types.field_type import FieldType, Trait, ValueSize
from cms.schema.types.texts import TEXT, parse_text

# As PostgreSQL reads them: `strtol` takes blanks before the number and a sign.
_INDEX = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")
_MAX_INDEX_LENGTH = 30


def scalar_of(value: object) -> Any:
    """Return a text, number or boolean as it is; arrays and objects are not compared."""
    if not isinstance(value, str | bool | int | Decimal):
        raise ValueError("it must be a text, a number, true or false")
    # A text may be a `JsonText`, which is a class of its own.
    if isinstance(value, str):
        return str(parse_text(value))
    return value


def parse_scalar(value: object) -> str:
    """Return a text, number or boolean as JSON."""
    return jsontext.dumps(scalar_of(value)).decode()


def json_type(value: object) -> str:
    """Return the type of a value as PostgreSQL names it."""
    match value:
        case None:
            return "null"
        case bool():  # before numbers: to Python it is one
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


def value_at(document: object, steps: Sequence[str]) -> object:
    """Return the value at a path of a document, None where it is missing."""
    value = document
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list):
            value = _entry(value, step)
        else:
            return None
    return value


def _entry(entries: list[object], step: str) -> object:
    # int() refuses very long numbers, and no array is as long as that.
    if len(step) > _MAX_INDEX_LENGTH or not _INDEX.fullmatch(step):
        return None
    index = int(step)
    # Negative indexes count from the end.
    if not -len(entries) <= index < len(entries):
        return None
    return entries[index]


JSON_MEMBER = FieldType(
    name="json",
    traits=TEXT.traits | {Trait.ARITHMETIC},
    parse=parse_scalar,
    comparable=scalar_of,
    size=ValueSize.LONG,
    json_schema={},
    cast="jsonb",
    json_sql="{0}::json",
)
