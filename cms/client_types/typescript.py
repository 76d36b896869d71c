"""Types in TypeScript, with the `Schema` that the JavaScript SDK of Directus takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from cms.client_types.client_model import ClientCollection, ClientField, type_names
from cms.openapi.json_schemas import JsonSchema

_HEAD = "// The collections of the service, as `cms types --language typescript` prints them.\n"
_RESERVED = frozenset({"Schema", "Record"})
"""Names that the printed text itself uses."""

_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_TYPES: Mapping[object, str] = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "array": "unknown[]",
    "object": "Record<string, unknown>",
}


def print_typescript(collections: list[ClientCollection]) -> str:
    """Return a module that exports an interface for each collection, and `Schema` of them all."""
    names = type_names(collections, _RESERVED)
    interfaces = [_interface(collection, names) for collection in collections]
    return "\n".join([_HEAD, *interfaces, _schema(collections, names)])


def _schema(collections: list[ClientCollection], names: Mapping[str, str]) -> str:
    lines = ["export interface Schema {"]
    for collection in collections:
        row_type = names[collection.name]
        # The SDK recognises a singleton by a type that is no array.
        if not collection.is_singleton:
            row_type = f"{row_type}[]"
        lines.append(f"  {_member(collection.name)}: {row_type};")
    return "\n".join([*lines, "}\n"])


def _interface(collection: ClientCollection, names: Mapping[str, str]) -> str:
    lines = [f"export interface {names[collection.name]} {{"]
    for field in collection.fields:
        lines.append(f"  {_member(field.name)}: {_field_type(field, names)};")
    return "\n".join([*lines, "}\n"])


def _field_type(field: ClientField, names: Mapping[str, str]) -> str:
    brackets = "[]" if field.is_list else ""
    own = _value_type(field.schema)
    # The SDK knows by the literal which operators and functions a field has, and takes any text for
    # the other type; `string` alone would absorb the literal.
    if field.is_time:
        own = '"datetime" | (string & {})'
    # `unknown` includes rows and null: it needs no other type beside it.
    if own == "unknown":
        return f"unknown{brackets}"
    types = [_list_of(own) if field.is_list else own]
    for target in field.targets:
        types.append(f"{names[target]}{brackets}")
    if field.is_nullable:
        types.append("null")
    return " | ".join(types)


def _value_type(schema: JsonSchema) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list):
        return " | ".join(map(json.dumps, choices))
    # The key of an item that has several columns.
    values = schema.get("prefixItems")
    if isinstance(values, list):
        return f"[{', '.join(map(_value_type, values))}]"
    items = schema.get("items")
    if isinstance(items, Mapping):
        return _list_of(_value_type(items))
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, list):
        return " | ".join(map(_value_type, alternatives))
    return _TYPES.get(schema.get("type"), "unknown")


def _list_of(own: str) -> str:
    return f"({own})[]" if " | " in own else f"{own}[]"


def _member(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return json.dumps(name)
