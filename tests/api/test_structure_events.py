"""Changes of structure are events of action flows."""

from __future__ import annotations

import pytest

from cms.config import Config
from tests.active_flows import make_flow, runs, work
from tests.client import Client
from tests.things import Stage


@pytest.mark.release
def test_changes_of_structure_are_events(stage: Stage, admin: Client, settings: Config) -> None:
    scope = [
        f"{name}.{verb}"
        for name in ("collections", "fields", "relations")
        for verb in ("create", "update", "delete")
    ]
    flow = make_flow(admin, "event", {"type": "action", "scope": scope}, [])
    fields = [{"field": "title", "type": "string"}, {"field": "parent", "type": "integer"}]
    body = {"collection": "events", "schema": {}, "fields": fields}
    assert admin.post("/collections", body).status == 200
    relation = {"collection": "events", "field": "parent", "related_collection": "events"}
    assert admin.post("/relations", relation).status == 200
    assert admin.patch("/fields/events/title", {"meta": {"note": "Short"}}).status == 200
    assert admin.patch("/fields/events/title", {"meta": {"note": "Short"}}).status == 200
    assert admin.patch("/collections/events", {"meta": {"icon": "bolt"}}).status == 200
    assert admin.delete("/fields/events/parent").status == 204
    assert admin.delete("/collections/events").status == 204
    work(stage, settings)
    told = [run["data"] for run in runs(admin, flow)]
    seen = {(data["event"], *data.get("keys", [data.get("key")])) for data in told}
    expected = {
        ("collections.create", "events"),
        ("fields.create", "events.title"),
        ("relations.create", "events.parent"),
        ("fields.update", "events.title"),
        ("collections.update", "events"),
        ("relations.delete", "events.parent"),
        ("fields.delete", "events.parent"),
        ("fields.delete", "events.title"),
        ("collections.delete", "events"),
    }
    assert expected <= seen
    (noted,) = [data for data in told if data["event"] == "fields.update" and "title" in str(data)]
    assert noted == {
        "event": "fields.update",
        "collection": "system_fields",
        "keys": ["events.title"],
        "payload": {"meta": {"note": "Short"}},
    }
    filtering = {"type": "filter", "scope": ["fields.create"]}
    refused = admin.post("/flows", {"name": "A", "trigger": "event", "options": filtering})
    assert refused.status == 422
