"""Permissions to write what only administrators write, and settings without power."""

from __future__ import annotations

import pytest

from tests.members import may, member, member_of, new_role
from tests.things import Stage

ADMINS_WRITE = [
    "system_roles",
    "system_permissions",
    "system_settings",
    "system_flows",
    "system_operations",
]


@pytest.mark.parametrize("collection", ADMINS_WRITE)
def test_a_permission_to_write_it_is_refused_and_a_stored_one_gives_nothing(
    stage: Stage, collection: str
) -> None:
    role = new_role(stage)
    for action in ("create", "update", "delete"):
        body = {"role": role, "collection": collection, "action": action, "fields": ["*"]}
        answer = stage.admin.post("/permissions", body)
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"]), action
        # A permission of former times, or of another program.
        somebody = member(stage, may(collection, action=action))
        told = somebody.get("/permissions/me").data.get(collection, {})
        assert told.get(action, {"access": "none"}) == {"access": "none"}


def test_a_member_changes_the_settings_that_carry_no_power(stage: Stage) -> None:
    role = new_role(stage)
    names = ["project_name", "project_descriptor", "public_note"]
    body = {"role": role, "collection": "system_settings", "action": "update", "fields": names}
    assert stage.admin.post("/permissions", body).status == 200
    somebody = member_of(stage, role)
    told = somebody.get("/permissions/me").data["system_settings"]["update"]
    assert (told["access"], told["fields"]) == ("full", sorted(names))
    answer = somebody.patch("/settings", {"project_descriptor": "ours"})
    assert answer.data["project_descriptor"] == "ours"
    for name, value in (("public_registration", True), ("custom_css", "x"), ("project_url", None)):
        assert somebody.patch("/settings", {name: value}).codes == ["FORBIDDEN"]


@pytest.mark.parametrize(
    "given",
    [
        {"fields": ["*"]},
        {"fields": ["project_name", "custom_css"]},
        {"fields": ["project_name"], "presets": {"public_registration": True}},
    ],
)
def test_settings_with_power_are_given_to_nobody(stage: Stage, given: dict[str, object]) -> None:
    body = {"role": new_role(stage), "collection": "system_settings", "action": "update"}
    answer = stage.admin.post("/permissions", {**body, **given})
    assert answer.codes == ["UNPROCESSABLE_CONTENT"]
    somebody = member(stage, {**may("system_settings", action="update"), **given})
    assert somebody.patch("/settings", {"project_name": "x"}).codes == ["FORBIDDEN"]
