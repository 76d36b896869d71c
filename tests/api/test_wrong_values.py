"""What is wrong with accounts, files, structure and calls is reported with
its value, and all of it together.
"""

from __future__ import annotations

from typing import Any

import pytest

from cms.hashing.passwords import Passwords
from tests.api.test_refused_values import error_of
from tests.client import Client
from tests.counted_calls import counted_calls
from tests.things import Table, field, table

pytestmark = pytest.mark.release

THINGS = (
    field("name", "string"),
    field("stars", "integer"),
)


def test_users_and_roles_that_are_nowhere(admin: Client) -> None:
    nowhere = "9b7f1c1e-0000-4000-8000-000000000000"
    admin.post("/users", {"email": "taken@example.com"})
    policy = "/^.{12,}$/"
    admin.patch("/settings", {"auth_password_policy": policy})
    people = [
        {"email": "Taken@Example.com", "password": "short"},
        {"email": "none"},
        {"status": "up", "role": nowhere},
    ]
    errors = admin.post("/users", people).errors
    assert [(error["code"], error["field"], error["index"]) for error in errors] == [
        ("FAILED_VALIDATION", "password", 0),
        ("RECORD_NOT_UNIQUE", "email", 0),
        ("FAILED_VALIDATION", "email", 1),
        ("FAILED_VALIDATION", "status", 2),
        ("INVALID_FOREIGN_KEY", "role", 2),
    ]
    assert (errors[0]["type"], errors[0]["valid"]) == ("regex", policy)
    assert "short" not in str(errors)
    own = admin.patch("/users/me", {"password": "short", "email": "none"}).errors
    assert {error["field"] for error in own} == {"password", "email"}
    admin.patch("/settings", {"auth_password_policy": None})
    assert admin.post("/users", {"email": "short@example.com", "password": "short"}).status == 200
    role = admin.post("/roles", {"name": None, "parent": nowhere}).errors
    assert [(error["field"], error.get("value")) for error in role] == [
        ("name", None),
        ("parent", nowhere),
    ]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("path", "body", "name", "value"),
    [
        (
            "/fields/{}",
            {"field": "x", "type": "integer", "schema": {"default_value": "y"}},
            "schema.default_value",
            "y",
        ),
        ("/files", {"data": "aGk=", "filename_download": 7}, "filename_download", 7),
        (
            "/files",
            {"data": "aGk=", "filename_download": "x", "storage": "moon"},
            "storage",
            "moon",
        ),
        ("/files/import", {"url": "ftp://example.com/x"}, "url", "ftp://example.com/x"),
        ("/folders", {"name": ""}, "name", ""),
        ("/users/invite", {"email": "x@example.com", "role": "boss"}, "role", "boss"),
        (
            "/auth/login",
            {"email": "x@example.com", "password": "y", "mode": "secret in the wrong place"},
            "mode",
            None,
        ),
        ("/utils/sort/{}", {"item": [], "to": 1}, "item", []),
        ("/comments", {"collection": "x", "item": 1, "comment": 7}, "comment", 7),
    ],
)
def test_what_else_is_wrong_is_reported_with_its_value(
    admin: Client, things: Table, path: str, body: dict[str, Any], name: str, value: object
) -> None:
    if "sort" in path:
        admin.patch(f"/collections/{things.name}", {"meta": {"sort_field": "stars"}})
    assert error_of(admin.post(path.format(things.name), body), "field", "value") == {
        "code": "INVALID_PAYLOAD",
        "field": name,
        "value": value,
    }


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("/flows", {"name": "f", "trigger": "operation"}),
        ("/dashboards", {"name": "d"}),
        ("/presets", {"collection": "system_users"}),
    ],
)
def test_a_colour_is_a_hex_code(admin: Client, path: str, payload: dict[str, Any]) -> None:
    for color in ("red", "#12", "#6644FG"):
        answer = admin.post(path, {**payload, "color": color})
        assert answer.status == 422, answer
        assert [error["path"] for error in answer.errors] == [["color"]]
    row = admin.post(path, {**payload, "color": "#6644FF"}).data
    assert row["color"] == "#6644FF"
    assert admin.patch(f"{path}/{row['id']}", {"color": "red"}).status == 422
    assert admin.patch(f"{path}/{row['id']}", {"color": None}).status == 200
    admin.delete(f"{path}/{row['id']}")


def test_past_a_hundred_problems_nothing_more_of_a_body_is_looked_at(admin: Client) -> None:
    things = table(admin, field("size", "integer"), field("up", "integer"))
    relation = {"collection": things.name, "field": "up", "related_collection": things.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "downs"}}).status == 200
    bodies: list[object] = [
        [{"size": "x"}] * 20_000,
        {"downs": [{"size": "x"}] * 20_000},
        {"downs": [{"nothing": 1}] * 20_000},
        {"downs": [None] * 20_000},
        {"downs": {"delete": ["x"] * 20_000}},
    ]
    for body in bodies:
        with counted_calls() as calls:
            answer = admin.post(things.path, body)
        assert len(answer.errors) == 100, answer
        assert answer.body["more"] is True
        assert calls.total < 150_000, answer


@pytest.mark.parametrize("path", ["/roles", "/items/{}", "/folders", "/dashboards", "/permissions"])
def test_empty_items_without_what_they_need_are_refused_at_the_first_hundred(
    admin: Client, path: str
) -> None:
    things = table(admin, field("size", "integer", is_nullable=False))
    with counted_calls() as calls:
        answer = admin.post(path.format(things.name), [{}] * 20_000)
    assert (len(answer.errors), answer.body["more"]) == (100, True)
    assert calls.total < 200_000, answer


@pytest.mark.parametrize("section", ["collections", "fields", "relations"])
@pytest.mark.parametrize("record", [{}, 1, {"collection": "x", "zz": 1}])
def test_a_snapshot_is_refused_at_its_first_hundred_problems(
    admin: Client, section: str, record: object
) -> None:
    document = {**admin.get("/schema/snapshot").data, section: [record] * 20_000}
    with counted_calls() as calls:
        answer = admin.post("/schema/diff", document)
    assert (answer.status, answer.body.get("more", True)) == (400, True)
    assert calls.total < 150_000, answer


@pytest.mark.parametrize("row", [{}, 1, {"size": "x"}, {"nothing": 1}])
def test_an_import_ends_at_the_batch_with_a_hundred_problems(admin: Client, row: object) -> None:
    things = table(admin, field("size", "integer", is_nullable=False))
    path = f"/utils/import/{things.name}"
    with counted_calls() as calls:
        admin.post(path, [row] * 6_000)
    with counted_calls() as more_calls:
        answer = admin.post(path, [row] * 24_000)
    assert len(answer.errors) == 101
    assert answer.errors[100]["total"] >= 100
    assert more_calls.total < 3 * calls.total


def test_a_few_problems_say_nothing_of_others(admin: Client) -> None:
    things = table(admin, field("size", "integer"))
    assert admin.post(things.path, [{"size": "x"}] * 99).body.keys() == {"errors"}


def test_what_is_refused_has_no_password_hashed(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    hash_of = Passwords.hashed

    def counted(passwords: Passwords, password: str) -> str:
        hashed.append(password)
        return hash_of(passwords, password)

    monkeypatch.setattr(Passwords, "hashed", counted)
    people = [{"email": f"many{n}@example.com", "password": f"secret {n}"} for n in range(3)]
    for last in ({"email": "none"}, {"status": "up"}, {"nothing": 1}, {"email": 5}):
        assert 400 <= admin.post("/users", [*people, last]).status < 500
        assert 400 <= admin.patch("/users/me", {"password": "other", **last}).status < 500
    assert hashed == []
    assert admin.post("/users", people).status == 200
    assert hashed == ["secret 0", "secret 1", "secret 2"]
    login = {"email": "many1@example.com", "password": "secret 1"}
    assert admin.post("/auth/login", login).status == 200
