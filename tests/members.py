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
    with stage.side_door.connection() as connection:
        for permission in permissions:
            columns = {"role": role, **{key: _json(value) for key, value in permission.items()}}
            names = ", ".join(columns)
            placeholders = ", ".join(["%s"] * len(columns))
            connection.execute(
                f"INSERT INTO system_permissions ({names}) VALUES ({placeholders})".encode(),
                list(columns.values()),
            )


def new_role(stage: Stage, *permissions: Json, **columns: object) -> str:
    """Make a role that has these permissions, and return its id."""
    values = {"id": str(uuid4()), "name": "Members", **columns}
    names = ", ".join(values)
    placeholders = ", ".join(["%s"] * len(values))
    with stage.side_door.connection() as connection:
        connection.execute(
            f"INSERT INTO system_roles ({names}) VALUES ({placeholders})".encode(),
            list(values.values()),
        )
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
    names = ", ".join(values)
    placeholders = ", ".join(["%s"] * len(values))
    with stage.side_door.connection() as connection:
        connection.execute(
            f"INSERT INTO system_users ({names}) VALUES ({placeholders})".encode(),
            list(values.values()),
        )
    return stage.anonymous.bearing(token)


def member(stage: Stage, *permissions: Json) -> Client:
    """Make a user of a new role that has these permissions."""
    return member_of(stage, new_role(stage, *permissions))


def _json(value: object) -> object:
    return value if isinstance(value, str) else json.dumps(value)
