"""Rules that cannot be read, as somebody may leave them in the database: they
never allow more than readable ones.
"""

from __future__ import annotations

import json

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, field, table

pytestmark = pytest.mark.release

UNREADABLE: tuple[object, ...] = ({"size": {"_nonsense": 1}}, "", [], 0)


def stored(value: object) -> str:
    return json.dumps(value)


@pytest.mark.quick(2)
@pytest.mark.parametrize("rule", UNREADABLE, ids=str)
@pytest.mark.parametrize("part", ["permissions", "validation"])
def test_a_permission_that_cannot_be_read_gives_nothing(
    stage: Stage, rule: object, part: str
) -> None:
    things = table(stage.admin, field("size", "integer"))
    (item,) = things.add({"size": 1})
    actions = ("read", "create", "update", "delete")
    caller = member(
        stage, *(may(things.name, action=action, **{part: stored(rule)}) for action in actions)
    )
    for answer in (
        caller.get(things.path),
        caller.get(f"{things.path}/{item['id']}"),
        caller.post(things.path, {"size": 2}),
        caller.patch(f"{things.path}/{item['id']}", {"size": 2}),
        caller.delete(f"{things.path}/{item['id']}"),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    (explanation,) = stage.admin.get(
        "/permissions/explain",
        user=caller.get("/users/me").data["id"],
        collection=things.name,
        action="read",
    ).data
    assert explanation["fault"]
    assert things.column("size") == [1]


@pytest.mark.quick(2)
@pytest.mark.parametrize("rule", UNREADABLE, ids=str)
def test_a_field_whose_validation_cannot_be_read_is_not_written(stage: Stage, rule: object) -> None:
    things = table(stage.admin, field("size", "integer"))
    stage.execute(
        f"UPDATE system_fields SET validation = '{stored(rule)}' WHERE collection = "
        f"'{things.name}' AND field = 'size'"
    )
    assert stage.admin.post(things.path, {"size": 1}).status == 400
    assert things.column("size") == []


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        ("validation", {"size": {"_nonsense": 1}}),
        ("conditions", [{"rule": {"size": {"_nonsense": 1}}}]),
    ],
)
def test_only_administrators_see_which_rule_of_a_field_cannot_be_read(
    stage: Stage, part: str, rule: object
) -> None:
    things = table(stage.admin, field("title", "string"), field("size", "integer"))
    (item,) = things.add({"title": "a"})
    path = f"{things.path}/{item['id']}"
    stage.execute(
        f"UPDATE system_fields SET {part} = '{stored(rule)}' WHERE collection = '{things.name}' "
        f"AND field = 'title'"
    )
    (problem,) = stage.admin.post(things.path, {"title": "b"}).errors
    assert (problem["collection"], problem["field"], problem["parameter"]) == (
        things.name,
        "title",
        part,
    )
    caller = member(
        stage,
        *(may(things.name, "title", action=action) for action in ("read", "create", "update")),
    )
    for answer in (
        caller.post(things.path, {"title": "b"}),
        caller.patch(path, {"title": "b"}),
        caller.send(
            "POST",
            f"/utils/import/{things.name}",
            raw=b"title\nb\n",
            **{"Content-Type": "text/csv"},
        ),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
        assert "size" not in answer.text, answer
    assert things.column("title") == ["a"]


@pytest.mark.parametrize("rule", ["", " ", [], 0], ids=str)
def test_rules_that_cannot_be_read_are_not_saved(stage: Stage, admin: Client, rule: object) -> None:
    things = table(admin, field("size", "integer"))
    permission = {"collection": things.name, "action": "read", "fields": ["*"]}
    for part in ("permissions", "validation"):
        answer = admin.post("/permissions", {**permission, part: rule})
        assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"]), answer
    answer = admin.patch(f"/fields/{things.name}/size", {"meta": {"validation": rule}})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert admin.patch("/settings", {"public_registration_email_filter": rule}).status == 422


@pytest.mark.parametrize("rule", ["", [], 0, {"email": {"_nonsense": 1}}], ids=str)
def test_a_filter_of_addresses_that_cannot_be_read_lets_nobody_register(
    stage: Stage, rule: object
) -> None:
    stage.execute(
        f"UPDATE system_settings SET public_registration = TRUE, "
        f"public_registration_email_filter = '{stored(rule)}'"
    )
    body = {"email": "somebody@example.com", "password": "a long enough password"}
    assert stage.anonymous.post("/users/register", body).status == 403
