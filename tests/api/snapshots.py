"""Snapshots of the structure, as documents."""

from __future__ import annotations

from typing import Any

from tests.client import Client

Json = dict[str, Any]


def snapshot(client: Client, **params: object) -> Json:
    document: Json = client.get("/schema/snapshot", **params).data
    return document
