"""Items that are made without a word about archiving are active."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table

STATES = {"archive_field": "status", "archive_value": "archived", "unarchive_value": "draft"}


@pytest.fixture(scope="module")
def notes(admin: Client) -> Table:
    return table(admin, field("text", "string"), field("status", "string"), **STATES)


def test_a_new_item_is_active_by_default(notes: Table) -> None:
    assert notes.api.post(notes.path, {"text": "a"}).data["status"] == "draft"
    items = notes.add({"text": "b"}, {"status": "archived"}, {"status": None}, {})
    assert [item["status"] for item in items] == ["draft", "archived", None, "draft"]
    assert notes.api.patch(f"{notes.path}/{items[2]['id']}", {"text": "c"}).data["status"] is None


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("kind", "values", "active"),
    [
        ("boolean", ("true", "false"), False),
        ("integer", ("1", "0"), 0),
        ("decimal", ("1.5", "-2.50"), -2.50),
        ("text", ("x", ""), ""),
        (
            "uuid",
            (None, "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        ("date", ("2020-01-01", "2030-01-01"), "2030-01-01"),
    ],
)
def test_the_setting_is_turned_into_the_type_of_the_field(
    admin: Client, kind: str, values: tuple[str, str], active: object
) -> None:
    meta = dict(zip(("archive_value", "unarchive_value"), values, strict=True))
    things = table(admin, field("state", kind), archive_field="state", **meta)
    assert things.add({}, {"state": None}) == [{"id": 1, "state": active}, {"id": 2, "state": None}]


def test_a_default_and_a_value_that_a_field_makes_itself_come_first(admin: Client) -> None:
    status = field("status", "string", default_value="new")
    assert table(admin, status, **STATES).add({})[0]["status"] == "new"
    owner = field("owner", "uuid", special="user-created")
    key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    things = table(admin, owner, archive_field="owner", unarchive_value=key)
    assert things.add({})[0]["owner"] == admin.get("/users/me").data["id"]


def test_a_default_of_null_is_none(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE drawers (id serial PRIMARY KEY, "
        "status varchar(9) DEFAULT NULL::character varying)"
    )
    assert stage.admin.patch("/collections/drawers", {"meta": STATES}).status == 200
    assert stage.admin.post("/items/drawers", {}).data["status"] == "draft"


@pytest.mark.release
def test_it_holds_wherever_items_are_made(admin: Client, notes: Table) -> None:
    book = table(
        admin, field("title", "string"), field("note", "integer"), field("above", "integer")
    )
    for name, target, meta in (
        ("note", notes.name, {"one_field": "books"}),
        ("above", book.name, {"one_field": "all"}),
    ):
        body = {"collection": book.name, "field": name, "related_collection": target, "meta": meta}
        assert admin.post("/relations", body).status == 200
    assert (
        admin.patch(
            f"/collections/{book.name}", {"meta": STATES | {"archive_field": "title"}}
        ).status
        == 200
    )
    item = admin.post(
        f"{book.path}?fields=title,note.status,all.title", {"note": {"text": "n"}, "all": [{}, {}]}
    ).data
    assert item == {"title": "draft", "note": {"status": "draft"}, "all": [{"title": "draft"}] * 2}
    create = {
        "method": "create",
        "collection": notes.name,
        "data": [{}, {"text": "t"}],
        "fields": "status",
    }
    assert admin.post("/batch", {"operations": [create]}).data == [[{"status": "draft"}] * 2]
    before = len(notes.column("id", "filter[status]=draft&limit=-1"))
    rows = "text\na\nb\n"
    answer = post_file(notes, rows, api=admin)
    assert answer.data == {"created": 2, "updated": 0}
    assert len(notes.column("id", "filter[status]=draft&limit=-1")) == before + 2
    only = table(admin, field("status", "string"), field("a", "string"), singleton=True, **STATES)
    assert admin.patch(only.path, {"a": "x"}).data == {"id": 1, "status": "draft", "a": "x"}


def test_it_is_the_services_and_takes_no_right(stage: Stage, notes: Table) -> None:
    reads = may(notes.name, permissions={"status": {"_eq": "draft"}})
    writer = member(
        stage,
        may(notes.name, "text", action="create", permissions={"status": {"_eq": "draft"}}),
        reads,
    )
    assert writer.post(notes.path, {"text": "mine"}).data["status"] == "draft"
    assert writer.post(notes.path, {"status": "draft"}).codes == ["FORBIDDEN"]
    preset = member(
        stage,
        may(notes.name, "text", action="create", presets={"status": "archived"}),
        may(notes.name),
    )
    assert preset.post(notes.path, {"text": "filed"}).data["status"] == "archived"
    null = member(
        stage, may(notes.name, "text", action="create", presets={"status": None}), may(notes.name)
    )
    assert null.post(notes.path, {"text": "nowhere"}).data["status"] is None


def test_rules_of_fields_and_the_history_see_it(admin: Client) -> None:
    reason = field("reason", "string")
    reason["meta"] = {"conditions": [{"rule": {"on": {"_eq": True}}, "required": True}]}
    values = {"archive_field": "on", "archive_value": "false", "unarchive_value": "true"}
    things = table(admin, field("on", "boolean"), reason, **values)
    assert [fault["field"] for fault in admin.post(things.path, {}).errors] == ["reason"]
    assert admin.post(things.path, {"on": False}).status == 200
    item = admin.post(things.path, {"reason": "x"}).data
    revision = admin.get(f"{things.path}/{item['id']}/revisions").data[0]
    assert revision["data"] == item == {"id": item["id"], "on": True, "reason": "x"}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "meta", "path"),
    [
        (
            "boolean",
            {"archive_value": "archived", "unarchive_value": "true"},
            ["meta.archive_value"],
        ),
        (
            "integer",
            {"archive_value": "x", "unarchive_value": "y"},
            ["meta.archive_value", "meta.unarchive_value"],
        ),
        ("string", {"unarchive_value": "x" * 256}, ["meta.unarchive_value"]),
        ("integer", {"unarchive_value": str(2**31)}, ["meta.unarchive_value"]),
        ("hash", {"unarchive_value": "x"}, ["meta.archive_field"]),
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_place(
    admin: Client, kind: str, meta: Json, path: list[str]
) -> None:
    body: Json = {"collection": "misfits", "schema": {}, "fields": [field("a", kind)]}
    answer = admin.post("/collections", {**body, "meta": {"archive_field": "a", **meta}})
    assert (answer.status, [fault["field"] for fault in answer.errors]) == (400, path)
    things = table(admin, field("a", kind), **meta)
    answer = admin.patch(f"/collections/{things.name}", {"meta": {"archive_field": "a"}})
    assert (answer.status, [fault["field"] for fault in answer.errors]) == (400, path)
    assert admin.get(f"/collections/{things.name}").data["meta"]["archive_field"] is None


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "change",
    [{"type": "integer"}, {"schema": {"max_length": 4}}, {"meta": {"special": ["conceal"]}}],
)
def test_a_field_does_not_change_away_from_its_archive_values(
    admin: Client, change: dict[str, Any]
) -> None:
    things = table(admin, field("status", "string", max_length=20), **STATES)
    answer = admin.patch(f"/fields/{things.name}/status", change)
    assert (answer.status, answer.codes[0], answer.errors[0]["collection"]) == (
        400,
        "INVALID_PAYLOAD",
        things.name,
    )
    assert answer.errors[0]["field"].startswith("meta.")
    assert things.add({})[0]["status"] == "draft"
    assert (
        admin.patch(
            f"/fields/{things.name}/status", {"field": "state", "schema": {"max_length": 8}}
        ).status
        == 200
    )
    assert things.add({})[0]["state"] == "draft"
    cleared = {"meta": {"archive_value": None, "unarchive_value": None}}
    assert admin.patch(f"/collections/{things.name}", cleared).status == 200
    assert things.add({})[0]["state"] is None


@pytest.mark.release
def test_what_was_made_unfit_elsewhere_fills_nothing_and_keeps_nobody_from_other_changes(
    stage: Stage,
) -> None:
    admin = stage.admin
    things = table(admin, field("status", "string"), **STATES)
    stage.execute(f"ALTER TABLE {things.name} ALTER status TYPE integer USING NULL")
    assert things.add({})[0]["status"] is None
    record = admin.get(f"/collections/{things.name}").data
    assert (
        admin.patch(f"/collections/{things.name}", {"meta": record["meta"] | {"note": "n"}}).status
        == 200
    )
    assert admin.patch(f"/fields/{things.name}/status", {"meta": {"note": "n"}}).status == 200
    assert admin.post(f"/fields/{things.name}", field("other", "string")).status == 200
    assert (
        admin.patch(f"/collections/{things.name}", {"meta": {"unarchive_value": "live"}}).status
        == 400
    )
