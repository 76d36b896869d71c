"""The members that bodies may have, on the routes whose bodies are no items or structure.

What the document of OpenAPI describes is what is accepted: both are of the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.openapi.account_routes import ACCOUNT_ROUTES
from cms.openapi.operation import JSON, Body
from cms.openapi.service_routes import SERVICE_ROUTES

_NONE: frozenset[str] = frozenset()


def _members(body: Body | None) -> frozenset[str]:
    properties = body.content.get(JSON, {}).get("properties") if body else None
    return frozenset(properties) if isinstance(properties, Mapping) else _NONE


def _body_members() -> dict[tuple[str, str], frozenset[str]]:
    members: dict[tuple[str, str], frozenset[str]] = {}
    for routes in (ACCOUNT_ROUTES, SERVICE_ROUTES):
        for path, operations in routes.items():
            for method, operation in operations.items():
                members[path, method.upper()] = _members(operation.body)
    return members


BODY_MEMBERS: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(_body_members())
"""By the template of a path and the method; a call without a body has no members."""
