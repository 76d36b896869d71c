"""Imports of files: `post_file` sends one as the body itself."""

from __future__ import annotations

from tests.client import Answer, Client
from tests.things import Json, Table

TYPES = {"csv": "text/csv", "json": "application/json", "jsonl": "application/x-ndjson"}


def post_file(
    things: Table,
    content: str | bytes,
    *,
    form: str = "csv",
    api: Client | None = None,
    headers: Json | None = None,
) -> Answer:
    all_headers = {"Content-Type": TYPES[form], **(headers or {})}
    path = f"/utils/import/{things.name}"
    return (api or things.api).send("POST", path, raw=content, **all_headers)
