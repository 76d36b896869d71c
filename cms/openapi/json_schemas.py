"""JSON Schemas as values: the few shapes that descriptions consist of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

JsonSchema = Mapping[str, object]

BINARY: JsonSchema = MappingProxyType({"type": "string", "format": "binary"})
ANYTHING: JsonSchema = MappingProxyType({})
TEXT: JsonSchema = MappingProxyType({"type": "string"})
FLAG: JsonSchema = MappingProxyType({"type": "boolean"})
INTEGER: JsonSchema = MappingProxyType({"type": "integer"})
UUID: JsonSchema = MappingProxyType({"type": "string", "format": "uuid"})
EMAIL: JsonSchema = MappingProxyType({"type": "string", "format": "email"})
NULL: JsonSchema = MappingProxyType({"type": "null"})
OBJECT: JsonSchema = MappingProxyType({"type": "object", "additionalProperties": True})
KEY: JsonSchema = MappingProxyType({"type": ["string", "integer"]})
ITEM_KEY: JsonSchema = MappingProxyType({"type": ["string", "integer", "array"], "items": {}})
"""The key of an item, which is an array where it has several columns."""
KEYS: JsonSchema = MappingProxyType({"type": "array", "items": ITEM_KEY})

# The characters of keys of components; the codes of others stand between hyphens.
_NOT_IN_COMPONENTS = re.compile(r"[^A-Za-z0-9._]")


def array_of(schema: JsonSchema, **bounds: int) -> JsonSchema:
    return {"type": "array", "items": schema, **bounds}


def any_of(*schemas: JsonSchema) -> JsonSchema:
    return {"anyOf": list(schemas)}


def one_of_texts(values: Sequence[str]) -> JsonSchema:
    return {"type": "string", "enum": list(values)}


def object_of(
    required: Mapping[str, JsonSchema] | None = None,
    optional: Mapping[str, JsonSchema] | None = None,
) -> JsonSchema:
    """Return the schema of an object; members that it does not name are not excluded."""
    members = {**(required or {}), **(optional or {})}
    schema: dict[str, object] = {"type": "object", "properties": members}
    # An empty list of required members is no valid JSON Schema before its draft 6.
    if required:
        schema["required"] = list(required)
    return schema


def texts(*required: str, optional: Sequence[str] = ()) -> JsonSchema:
    """Return the schema of an object whose members are texts."""
    return object_of(dict.fromkeys(required, TEXT), dict.fromkeys(optional, TEXT))


def nullable(schema: JsonSchema) -> JsonSchema:
    """Return a schema that takes null as well; one without a type takes it already."""
    kind = schema.get("type")
    if isinstance(kind, str):
        widened: dict[str, object] = {**schema, "type": [kind, "null"]}
        if isinstance(values := schema.get("enum"), list):
            widened["enum"] = [*values, None]
        return widened
    return any_of(schema, NULL) if schema else schema


def described(schema: JsonSchema, description: str) -> JsonSchema:
    return {**schema, "description": description}


def reference(component: str) -> JsonSchema:
    """Return the reference to a schema among the components."""
    return {"$ref": f"#/components/schemas/{component}"}


def component_part(name: str) -> str:
    """Return a collection's name as a part of the key of a component, different for each name."""
    # A key takes few characters; tables of other programs may have any in their names.
    return _NOT_IN_COMPONENTS.sub(lambda match: f"-{ord(match[0]):x}-", name)
