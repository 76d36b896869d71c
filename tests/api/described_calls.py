"""Calls that the service has accepted, compared with its document of OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

Json = dict[str, Any]


def require_described_body(document: Json, operation: Json, body: object) -> None:
    """Require that a body in JSON fits its schema, which names each of its members."""
    if body is None:
        return
    components = document["components"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    jsonschema_rs.validate({**schema, "components": components}, body)
    if isinstance(body, Mapping):
        named = _members(schema, components["schemas"])
        assert named is None or set(body) <= named, operation["operationId"]


def parameters_of(operation: Json) -> set[str]:
    """Return the names of the components of an operation's parameters."""
    return {entry["$ref"].rpartition("/")[2] for entry in operation.get("parameters", ())}


def _members(schema: Json, schemas: Json) -> set[str] | None:
    """Return the members that a schema names; None for one that stands for rows of any kind."""
    if "$ref" in schema:
        return _members(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" not in schema:
        names = set(schema.get("properties", ()))
        return names if names or schema.get("type") != "object" else None
    members: set[str] = set()
    for part in schema["anyOf"]:
        names_of_part = _members(part, schemas)
        if names_of_part is None:
            return None
        members |= names_of_part
    return members
