"""Snapshots with roles, permissions, flows, dashboards and settings, on request."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.api.snapshots import snapshot
from tests.client import Answer, Client
from tests.things import Json, Stage, make_collections

ALL = "roles,permissions,flows,dashboards,settings"
CONTENT = ALL.split(",")


@pytest.fixture(scope="module", autouse=True)
def content(stage: Stage) -> None:
    fill(stage.admin)


def fill(admin: Client) -> None:
    make_collections(admin, {"things": [{"field": "name", "type": "string"}]}, [])
    lead = admin.post("/roles", {"name": "Lead", "app_access": True}).data["id"]
    writer = admin.post("/roles", {"name": "Writer", "parent": lead}).data["id"]
    rule = {"name": {"_nnull": True}}
    for role, action in ((writer, "read"), (writer, "update"), (None, "read")):
        body = {"role": role, "collection": "things", "action": action, "fields": ["name"]}
        assert admin.post("/permissions", body | {"permissions": rule}).status == 200
    make_flows(admin)
    panels = [
        {"name": text, "type": "label", "position_x": 1, "position_y": row, "width": 4, "height": 2}
        | {"options": {"text": text}}
        for row, text in ((5, "lower"), (1, "upper"))
    ]
    dashboard = {"name": "Numbers", "note": "All", "panels": panels}
    assert admin.post("/dashboards", dashboard).status == 200
    settings = {"project_name": "Shop", "public_registration_role": writer}
    assert admin.patch("/settings", settings).status == 200


def make_flows(admin: Client) -> None:
    inner = {"name": "Inner", "trigger": "operation", "options": {}}
    inner_id = admin.post("/flows", inner).data["id"]
    flow = admin.post("/flows", {"name": "Outer", "trigger": "manual", "options": {}}).data["id"]
    ids: dict[str, str] = {}
    for key, kind, options in (
        ("log", "log", {"message": "hello"}),
        ("call", "trigger", {"flow": inner_id}),
        ("first", "transform", {"json": {"a": 1}}),
    ):
        body = {"flow": flow, "key": key, "type": kind, "options": options}
        answer = admin.post("/operations", body)
        assert answer.status == 200, answer.text
        ids[key] = answer.data["id"]
    admin.patch(f"/operations/{ids['first']}", {"resolve": ids["call"], "reject": ids["log"]})
    assert admin.patch(f"/flows/{flow}", {"operation": ids["first"]}).status == 200


def apply(client: Client, document: Json, *, destroys: bool = False) -> Answer:
    answer = client.post("/schema/diff", document)
    assert answer.status == 200, answer.text
    return client.post("/schema/apply", {**answer.data, "allow_destructive": destroys})


def named(records: list[Json], name: str, key: str = "name") -> Json:
    (record,) = (record for record in records if record[key] == name)
    return record


def test_a_snapshot_names_what_it_holds_and_has_no_ids(admin: Client) -> None:
    document = snapshot(admin, include=ALL)
    assert list(document)[-5:] == CONTENT
    assert named(document["roles"], "Writer")["parent"] == "Lead"
    roles = [record["role"] for record in document["permissions"]]
    assert roles == [None, "Writer", "Writer"]
    outer = named(document["flows"], "Outer")
    assert outer["operation"] == "first"
    assert [operation["key"] for operation in outer["operations"]] == ["call", "first", "log"]
    assert named(outer["operations"], "call", "key")["options"] == {"flow": "Inner"}
    assert named(outer["operations"], "first", "key")["resolve"] == "call"
    (dashboard,) = document["dashboards"]
    assert [panel["name"] for panel in dashboard["panels"]] == ["upper", "lower"]
    (settings,) = document["settings"]
    assert settings["public_registration_role"] == "Writer"
    assert "project_logo" not in settings
    for section in CONTENT:
        for record in document[section]:
            assert not {"id", "user_created", "date_created"} & record.keys()


def test_only_what_is_asked_for_is_in_it(admin: Client) -> None:
    assert list(snapshot(admin, include="flows"))[6:] == ["flows"]
    assert admin.get("/schema/snapshot", include="users").status == 400


@pytest.mark.release
def test_another_installation_gets_the_same_content(admin: Client, other_stage: Stage) -> None:
    document = snapshot(admin, include=ALL)
    assert admin.post("/schema/diff", document).status == 204
    diff = other_stage.admin.post("/schema/diff", document).data
    for _ in range(2):
        answer = other_stage.admin.post("/schema/apply", diff)
        assert answer.status == 204, answer.text
        assert snapshot(other_stage.admin, include=ALL) == document
    assert other_stage.admin.post("/schema/diff", document).status == 204


CHANGES: list[Callable[[Json], object]] = [
    lambda document: named(document["roles"], "Writer").update(parent=None, icon="edit"),
    lambda document: document["permissions"].pop(),
    lambda document: document["permissions"][0].update(fields=["*"]),
    lambda document: named(document["flows"], "Outer")["operations"].pop(0),
    lambda document: named(document["flows"], "Outer").update(operation="log", status="inactive"),
    lambda document: document["dashboards"][0]["panels"].pop(),
    lambda document: document["dashboards"][0].update(note="Some"),
    lambda document: document["settings"][0].update(project_name="Market"),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_applied(admin: Client, change: Callable[[Json], object]) -> None:
    before = snapshot(admin, include=ALL)
    target = deepcopy(before)
    change(target)
    for operation in named(target["flows"], "Outer")["operations"]:
        keys = [other["key"] for other in named(target["flows"], "Outer")["operations"]]
        for end in ("resolve", "reject"):
            operation[end] = operation[end] if operation[end] in keys else None
    first = named(target["flows"], "Outer")["operation"]
    for operation in named(target["flows"], "Outer")["operations"]:
        if first == "log" and operation["reject"] == "log":
            operation["reject"] = None
    for document in (target, before):
        answer = apply(admin, document)
        assert answer.status == 204, answer.text
        assert sorted_content(snapshot(admin, include=ALL)) == sorted_content(document)


def sorted_content(document: Json) -> dict[str, Any]:
    return {**document, "permissions": sorted(map(repr, document["permissions"]))}


@pytest.mark.release
@pytest.mark.parametrize("section", ["roles", "flows", "dashboards"])
def test_they_are_deleted_only_where_that_is_allowed(admin: Client, section: str) -> None:
    before = snapshot(admin, include=ALL)
    target = deepcopy(before)
    target[section] = [record for record in target[section] if "admin" in str(record).lower()]
    target["settings"][0]["public_registration_role"] = None
    target["permissions"] = []
    if section == "roles":
        target["roles"] = [record for record in before["roles"] if record["admin_access"]]
    answer = apply(admin, target)
    assert (answer.status, set(answer.codes)) == (422, {"UNPROCESSABLE_CONTENT"})
    assert snapshot(admin, include=ALL) == before
    assert apply(admin, target, destroys=True).status == 204
    assert snapshot(admin, include=ALL) == target
    assert apply(admin, before).status == 204
    assert snapshot(admin, include=ALL) == before


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("section", "record"),
    [
        ("roles", {}),
        ("roles", {"name": "New", "parent": "nobody"}),
        ("roles", {"name": "New", "unknown": 1}),
        ("roles", {"name": "New", "parent": ["Lead"]}),
        ("permissions", {"role": "nobody", "collection": "things", "action": "read"}),
        ("permissions", {"role": None, "collection": "nowhere", "action": "read"}),
        ("permissions", {"role": None, "collection": "things", "action": "fly"}),
        ("flows", {"name": "New", "operations": 5}),
        ("flows", {"name": "New", "operations": [5]}),
        ("flows", {"name": "New", "operations": [{"key": "a"}]}),
        ("flows", {"name": "New", "operation": "nowhere", "operations": []}),
        ("flows", {"name": "New", "trigger": "nothing"}),
        ("dashboards", {"name": "New", "panels": {"create": [{}]}}),
        ("dashboards", {"name": "New", "panels": [1]}),
        ("settings", {"project_color": "red"}),
    ],
)
def test_wrong_content_is_refused_and_leaves_nothing(
    admin: Client, section: str, record: Json
) -> None:
    before = snapshot(admin, include=ALL)
    target = deepcopy(before)
    target["collections"].append({"collection": "beside", "meta": {}, "schema": {}})
    if section == "settings":
        target["settings"][0] |= record
    else:
        target[section].append(record)
    answer = admin.post("/schema/diff", target)
    if answer.status == 200:
        answer = admin.post("/schema/apply?allow_destructive=true", answer.data)
    assert 400 <= answer.status < 500, answer.text
    assert snapshot(admin, include=ALL) == before


def test_names_that_are_there_twice_are_refused(admin: Client) -> None:
    key = admin.post("/roles", {"name": "Lead"}).data["id"]
    answer = admin.get("/schema/snapshot?include=roles")
    assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    assert admin.delete(f"/roles/{key}").status == 204


def test_the_last_administrator_stays(admin: Client) -> None:
    before = snapshot(admin, include=ALL)
    target = deepcopy(before)
    target["roles"] = []
    target["permissions"] = []
    target["settings"][0]["public_registration_role"] = None
    assert 400 <= apply(admin, target, destroys=True).status < 500
    assert snapshot(admin, include=ALL) == before


@pytest.mark.release
@pytest.mark.parametrize("written", ["name", "title"])
def test_permissions_follow_a_renamed_field(admin: Client, written: str) -> None:
    """Whichever name the permissions of the document have."""
    before = snapshot(admin, include=ALL)
    target = deepcopy(before)
    field = named(target["fields"], "name", "field")
    field |= {"field": "title", "renamed_from": "name"}
    for record in target["permissions"]:
        record |= {"fields": [written], "permissions": {written: {"_nnull": True}}}
    for document in (target, back(before)):
        answer = apply(admin, document)
        assert answer.status == 204, answer.text
        (record,) = (record for record in document["fields"] if "renamed_from" in record)
        for permission in snapshot(admin, include=ALL)["permissions"]:
            assert permission["fields"] == [record["field"]]
            assert list(permission["permissions"]) == [record["field"]]
    assert snapshot(admin, include=ALL) == before


def back(document: Json) -> Json:
    document = deepcopy(document)
    named(document["fields"], "name", "field")["renamed_from"] = "title"
    return document
