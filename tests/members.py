"""Callers that are no administrators: a role, its permissions, and a user with a static token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from cms.auth.tokens import random_token
from cms.hashing.passwords import digest
from tests.client import Client
from tests.things import Stage

Json = dict[str, Any]


def may(collection: str, *fields: str, action: str = "read", **settings: object) -> Json:
    """A permission: the fields (all when none is named), and
    `permissions`, `validation` or `presets`.
    """
    return {"collection": collection, "action": action, "fields": list(fields) or ["*"], **settings}


def grant(stage: Stage, role: str | None, permissions: Sequence[Json]) -> None:
    """Give permissions to a role; None is the Public role."""
    for permission in permissions:
        columns = {key: _json(value) for key, value in permission.items()}
        stage.insert("system_permissions", {"role": role, **columns})


def new_role(stage: Stage, *permissions: Json, **columns: object) -> str:
    """Make a role that has these permissions, and return its id."""
    values = {"id": str(uuid4()), "name": "Members", **columns}
    stage.insert("system_roles", values)
    grant(stage, str(values["id"]), permissions)
    return str(values["id"])


def member_of(stage: Stage, role: str | None, **columns: object) -> Client:
    """Make a user of a role, and return a client that bears the user's static token."""
    token = random_token()
    user = str(uuid4())
    values = {
        "id": user,
        "email": f"{user}@example.com",
        "role": role,
        "token": digest(token),
        **columns,
    }
    stage.insert("system_users", values)
    return stage.anonymous.bearing(token)


def member(stage: Stage, *permissions: Json) -> Client:
    """Make a user of a new role that has these permissions."""
    return member_of(stage, new_role(stage, *permissions))


def _json(value: object) -> object:
    return value if isinstance(value, str) else json.dumps(value)
