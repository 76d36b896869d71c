"""What only the database minds is told with the field and the value that was sent (decisions, section 2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, table

GRADE = "CHECK (((VALUE >= 1) AND (VALUE <= 6)))"


@pytest.fixture
def things(stage: Stage, admin: Client) -> Table:
    made = table(admin, field("name", "string"), field("stars", "integer"), field("price", "decimal"))
    number = made.name.rpartition("_")[2]
    stage.execute(
        f"CREATE TYPE mood_{number} AS ENUM ('sad', 'happy');"
        f"CREATE DOMAIN grade_{number} AS integer CHECK (VALUE BETWEEN 1 AND 6);"
        f"ALTER TABLE {made.name} ADD mood mood_{number}, ADD grade grade_{number}, ADD net inet,"
        f" ADD CONSTRAINT {made.name}_stars CHECK (stars BETWEEN 1 AND 5),"
        f" ADD CONSTRAINT {made.name}_both CHECK (stars < price)"
    )
    return made


def error_of(answer: Answer, *names: str) -> dict[str, Any]:
    assert (answer.status, len(answer.errors)) == (400, 1), answer.text
    return {name: answer.errors[0].get(name) for name in ("code", *names)}


@pytest.mark.parametrize(
    ("item", "name", "rule"),
    [
        ({"name": "x", "stars": 9}, "stars", "CHECK (((stars >= 1) AND (stars <= 5)))"),
        ({"name": "x", "grade": 9}, "grade", GRADE),
        ({"name": "x", "mood": "angry"}, "mood", None),
        ({"name": "x", "net": "10.0.0.999"}, "net", None),
    ],
)
def test_a_new_and_a_changed_item(things: Table, item: dict[str, Any], name: str, rule: str | None) -> None:
    expected = {
        "code": "INVALID_PAYLOAD",
        "collection": things.name,
        "field": name,
        "value": item[name],
        "path": [name],
        "rule": rule,
    }
    places = ("collection", "field", "value", "path", "rule")
    assert error_of(things.api.post(things.path, item), *places) == expected
    key = things.add({"name": "y", "stars": 3})[0]["id"]
    assert error_of(things.api.patch(f"{things.path}/{key}", item), *places) == expected


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([{"stars": 1}, {"stars": 9}, {"stars": 2}], "stars"),
        ([{"stars": 1, "name": "a, b"}, {"stars": 9, "name": "c"}], "stars"),
        ([{"grade": 1}, {"grade": 9}], "grade"),
        ([{"mood": "sad"}, {"mood": "angry"}], "mood"),
    ],
)
def test_several_items(things: Table, items: list[dict[str, Any]], name: str) -> None:
    answer = things.api.post(things.path, items)
    found = error_of(answer, "field", "value", "index", "path")
    if name == "grade":  # of several values of one domain PostgreSQL tells none
        assert found["field"] == "grade"
    else:
        assert found == {
            "code": "INVALID_PAYLOAD",
            "field": name,
            "value": items[1][name],
            "index": 1,
            "path": [name],
        }


def test_a_rule_of_two_fields_names_both(things: Table) -> None:
    answer = things.api.post(things.path, {"stars": 3, "price": 1})
    assert error_of(answer, "fields", "rule", "field") == {
        "code": "INVALID_PAYLOAD",
        "fields": ["stars", "price"],
        "rule": "CHECK (((stars)::numeric < price))",
        "field": None,
    }


def test_nobody_is_told_of_a_rule_on_hidden_fields(stage: Stage, things: Table) -> None:
    create = may(things.name, "name", action="create", presets={"stars": 9})
    blind = member(stage, create, may(things.name, "id", "name"))
    error = blind.post(things.path, {"name": "x"}).errors[0]
    assert "stars" not in str(error)
    assert not {"field", "fields", "rule", "constraint", "value"} & error.keys()
    both = member(stage, may(things.name, "stars", action="create", presets={"price": 1}), may(things.name, "stars"))
    error = both.post(things.path, {"stars": 3}).errors[0]
    assert "price" not in str(error)
    sighted = member(stage, may(things.name, "stars", action="create"))
    assert error_of(sighted.post(things.path, {"stars": 9}), "field", "value", "constraint") == {
        "code": "INVALID_PAYLOAD",
        "field": "stars",
        "value": 9,
        "constraint": None,
    }


def test_a_preset_is_nobodys_word(stage: Stage, things: Table) -> None:
    caller = member(stage, may(things.name, action="create", presets={"stars": 9}))
    error = caller.post(things.path, {"name": "x"}).errors[0]
    assert (error["field"], "value" in error) == ("stars", False)


def test_an_import_tells_line_field_and_value(things: Table) -> None:
    path = f"/utils/import/{things.name}"
    for file, told in (
        ("name,stars\r\na,1\r\nb,9\r\n", (3, "stars", 9)),
        ("name,grade\r\na,1\r\nb,9\r\n", (3, "grade", 9)),
        ("name,mood\r\na,sad\r\nb,angry\r\n", (3, "mood", "angry")),
        ("name,stars\r\na,x\r\nb,1\r\n", (2, "stars", "x")),
    ):
        answer = things.api.send("POST", path, raw=file, **{"Content-Type": "text/csv"})
        assert [(error["line"], error["field"], error["value"]) for error in answer.errors] == [told]


def test_the_address_of_another_user(admin: Client) -> None:
    admin.post("/users", {"email": "taken@example.com"})
    answer = admin.post("/users", {"email": "Taken@Example.com"})
    assert error_of(answer, "field", "value", "collection", "path") == {
        "code": "RECORD_NOT_UNIQUE",
        "field": "email",
        "value": "Taken@Example.com",
        "collection": "system_users",
        "path": ["email"],
    }


@pytest.mark.parametrize("name", ["focal_point_x", "focal_point_y"])
def test_the_focal_point_of_a_file_is_told_with_its_range(admin: Client, name: str) -> None:
    body = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="x.txt"\r\n\r\nhi\r\n--edge--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=edge"}
    key = admin.send("POST", "/files", raw=body, **kind).data["id"]
    error = admin.patch(f"/files/{key}", {name: 1.5}).errors[0]
    assert (error["field"], error["value"]) == (name, 1.5)
    assert "from 0 to 1" in error["message"]
