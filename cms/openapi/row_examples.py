"""Examples of rows, made of the schemas of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from cms.openapi.json_schemas import JsonSchema

_TEXT = "text"
_ENCODED = "dGV4dA=="
_FORMATS: Mapping[object, str] = MappingProxyType(
    {
        "date": "2025-01-31",
        "date-time": "2025-01-31T13:45:00Z",
        "uuid": "5e0c39b4-0b0e-4d5c-8a0e-0d3f1b6a7c11",
    }
)


def with_example(schema: JsonSchema, names: Iterable[str]) -> JsonSchema:
    """Return the schema of rows with an example of one, which has the members of these names."""
    members: Any = schema["properties"]
    row = {name: example_of(members[name]) for name in names}
    return {**schema, "examples": [row]} if row else schema


def example_of(schema: Mapping[str, Any]) -> object:
    """Return a value that a schema permits: one that it names, else one of its type."""
    for choices in ("examples", "enum"):
        if schema.get(choices):
            return schema[choices][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0])
    match _type_of(schema):
        case "integer":
            return 1
        case "number":
            return 1.5
        case "boolean":
            return True
        case "array":
            return [example_of(schema["items"])] if "items" in schema else []
        case "object":
            return {}
        case _:
            return _text(schema)


def _type_of(schema: Mapping[str, Any]) -> object:
    """Return the type of a schema; of several the last, since null says least."""
    types = schema.get("type")
    if isinstance(types, list):
        return next(name for name in reversed(types) if name != "null")
    return types


def _text(schema: Mapping[str, Any]) -> str:
    if "contentEncoding" in schema:
        return _ENCODED
    text = _FORMATS.get(schema.get("format"), _TEXT)
    return text[: schema.get("maxLength", len(text))]
