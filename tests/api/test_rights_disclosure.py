"""Callers get their own rights and the structure that they may see, and no more."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.members import grant, may, member, member_of, new_role
from tests.things import Stage, Table, field, table


@pytest.fixture(scope="module")
def notes(admin: Client) -> Table:
    entry = table(admin, field("text", "string"), field("secret", "string"), field("owner", "uuid"))
    entry.add({"text": "one"}, {"text": "two"})
    return entry


def test_a_caller_gets_its_rights_by_collection_and_action(stage: Stage, notes: Table) -> None:
    caller = member(
        stage,
        may(notes.name, "id", "text"),
        may(
            notes.name,
            "text",
            action="update",
            permissions={"id": 1},
            presets={"owner": "$CURRENT_USER"},
        ),
        may(notes.name, action="delete", permissions={"gone": 1}),
    )
    permissions = caller.get("/permissions/me").data
    assert (
        permissions.pop("system_settings")["read"]["access"] == "full"
    )  # their public part is everybody's
    assert permissions == {
        notes.name: {
            "read": {"access": "full", "fields": ["id", "text"], "presets": {}},
            "update": {
                "access": "partial",
                "fields": ["text"],
                "presets": {"owner": "$CURRENT_USER"},
            },
            **{action: {"access": "none"} for action in ("create", "delete", "share")},
        }
    }


def test_a_caller_gets_its_rights_on_one_item(stage: Stage, notes: Table, admin: Client) -> None:
    caller = member(
        stage,
        may(notes.name, "id", permissions={"id": {"_lte": 2}}),
        may(notes.name, "text", action="update", permissions={"id": 1}),
        may(notes.name, action="delete", permissions={"id": 2}),
    )
    path = f"/permissions/me/{notes.name}"
    assert caller.get(f"{path}/1").data == {
        "update": {"access": True, "fields": ["text"], "presets": {}},
        "delete": {"access": False},
        "share": {"access": False},
    }
    assert caller.get(f"{path}/2").data["delete"] == {"access": True}
    assert caller.get(f"{path}/3").status == caller.get(f"{path}/x").status == 404
    assert caller.get("/permissions/me/nowhere/1").status == 403
    assert admin.get(f"{path}/1").data["update"] == {"access": True, "fields": ["*"], "presets": {}}
    assert admin.get(f"{path}/3").status == 404


def test_a_caller_gets_its_rights_on_a_singleton(stage: Stage, admin: Client) -> None:
    site = table(admin, field("text", "string"), field("secret", "string"), singleton=True)
    path = f"/permissions/me/{site.name}"
    caller = member(
        stage,
        may(site.name, "id", "text", permissions={"secret": {"_null": True}}),
        may(site.name, "text", action="update"),
        may(site.name, "text", "secret", action="create"),
    )
    none = {"access": False}
    created = {"access": True, "fields": ["secret", "text"], "presets": {}}
    missing = {"update": created, "delete": none, "share": none}
    assert caller.get(path).data == missing
    admin.patch(site.path, {"text": "one"})
    assert caller.get(path).data["update"] == {"access": True, "fields": ["text"], "presets": {}}
    assert admin.get(path).data["delete"] == {"access": True}
    admin.patch(site.path, {"secret": "x"})
    assert caller.get(path).data == missing
    assert member(stage).get(path).status == 403
    assert admin.get("/permissions/me/system_settings").data["update"]["access"] is True
    assert admin.get("/permissions/me/system_users").status == 404


def test_nobody_gets_the_rights_of_the_public_role(stage: Stage, notes: Table) -> None:
    assert list(stage.anonymous.get("/permissions/me").data) == ["system_settings"]
    grant(stage, None, [may(notes.name)])
    assert set(stage.anonymous.get("/permissions/me").data) == {notes.name, "system_settings"}
    stage.execute("DELETE FROM system_permissions WHERE role IS NULL")


def test_app_access_brings_the_reads_that_an_app_needs_and_no_more(
    stage: Stage, notes: Table
) -> None:
    role = new_role(
        stage, may(notes.name, "id", "text"), app_access=True, ip_access='["::/0", "0.0.0.0/0"]'
    )
    caller = member_of(stage, role)
    other = member_of(stage, role)
    me = caller.get("/users/me").data
    assert me["role"] == role
    assert [user["id"] for user in caller.get("/users").data] == [me["id"]]
    assert caller.get(f"/users/{other.get('/users/me').data['id']}").status == 404
    (mine,) = caller.get("/roles").data
    assert mine["id"] == role
    assert "ip_access" not in mine
    assert [row["collection"] for row in caller.get("/permissions").data] == [notes.name]
    assert "project_name" in caller.get("/settings").data
    assert caller.get("/settings", fields="auth_login_attempts").status == 403
    assert caller.get("/activity").status == 403


def test_structure_is_reported_as_far_as_permissions_speak_of_it(
    stage: Stage, notes: Table, admin: Client
) -> None:
    other = table(admin, field("x", "string"))
    caller = member_of(stage, new_role(stage, may(notes.name, "id", "text"), app_access=True))
    listed = {entry["collection"] for entry in caller.get("/collections").data}
    assert notes.name in listed
    assert other.name not in listed
    assert [entry["field"] for entry in caller.get(f"/fields/{notes.name}").data] == ["id", "text"]
    assert {entry["collection"] for entry in caller.get("/fields").data} == listed - {
        entry["collection"] for entry in caller.get("/collections").data if entry["schema"] is None
    }
    for path in (
        f"/collections/{other.name}",
        "/collections/nowhere",
        f"/fields/{other.name}",
        "/fields/nowhere/x",
    ):
        assert (caller.get(path).status, caller.get(path).codes) == (403, ["FORBIDDEN"]), path
    assert (
        caller.get(f"/fields/{notes.name}/secret").text
        == caller.get(f"/fields/{notes.name}/nowhere").text
    )
    assert caller.get(f"/relations/{notes.name}/secret").status == 403
    without = member(stage, may(notes.name))
    assert without.get("/collections").status == without.get(f"/fields/{notes.name}").status == 403
    assert caller.patch(f"/collections/{notes.name}", {"meta": {"note": "x"}}).status == 403
