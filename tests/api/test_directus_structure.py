"""Collections, fields and relations as clients of Directus 10 send them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.things import Stage

pytestmark = pytest.mark.release

Json = dict[str, Any]


@pytest.fixture
def things(stage: Stage) -> str:
    """The path of the fields of an empty collection."""
    return f"/fields/{stage.empty_table().name}"


@pytest.fixture
def api(stage: Stage) -> Client:
    return stage.admin


def made(api: Client, collection: str, *fields: Json) -> list[Json]:
    """Make a collection and return its fields."""
    payload = {"collection": collection, "schema": {}, "fields": list(fields)}
    answer = api.post("/collections", payload)
    assert answer.status == 200, answer
    records: list[Json] = api.get(f"/fields/{collection}").data
    assert api.delete(f"/collections/{collection}").status == 204
    return records


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("type_name", "length", "max_length"),
    [("uuid", 36, None), ("string", 40, 40), ("integer", 11, None), ("bigInteger", 20, None)],
)
def test_the_length_of_a_key_is_that_of_a_text_and_says_nothing_of_other_types(
    api: Client, type_name: str, length: int, max_length: int | None
) -> None:
    schema = {"is_primary_key": True, "length": length}
    (key,) = made(api, "keyed", {"field": "id", "type": type_name, "schema": schema})
    assert key["type"] == type_name
    assert key["schema"]["max_length"] == max_length


@pytest.mark.parametrize("type_name", ["integer", "bigInteger"])
def test_a_field_that_counts_up_is_the_key_where_no_other_field_is(
    api: Client, type_name: str
) -> None:
    counting = {"field": "number", "type": type_name, "schema": {"has_auto_increment": True}}
    records = made(api, "junction", {"field": "tag", "type": "integer"}, counting)
    keys = {record["field"]: record["schema"]["is_primary_key"] for record in records}
    assert keys == {"tag": False, "number": True}


def test_several_collections_are_made_at_once_or_none_of_them(api: Client) -> None:
    folder = {"collection": "folder", "schema": None}
    inner = {"collection": "inner", "schema": {}, "meta": {"group": "folder"}}
    refused = api.post("/collections", [folder, inner, {**inner, "collection": "1"}])
    assert (refused.status, refused.errors[0]["index"]) == (400, 2)
    assert api.get("/collections/folder").status == 404
    assert api.post("/collections", [folder, 1]).status == 400
    records = api.post("/collections", [folder, inner]).data
    assert [record["collection"] for record in records] == ["folder", "inner"]
    assert records[1]["meta"]["group"] == "folder"
    for name in ("inner", "folder"):
        assert api.delete(f"/collections/{name}").status == 204


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["divider-t92_hp", "notice-abc", "presentation-x-1"])
def test_the_name_of_an_alias_may_hold_hyphens(api: Client, things: str, name: str) -> None:
    special = ["alias", "no-data"]
    payload = {"field": name, "type": "alias", "meta": {"special": special}, "schema": None}
    assert api.post(things, payload).status == 200
    assert api.get(f"{things}/{name}").data["meta"]["special"] == special
    assert api.patch(f"{things}/{name}", {"field": f"{name}-2"}).data["field"] == f"{name}-2"
    assert api.post(things, {**payload, "field": "-x"}).status == 400
    assert api.post(things, {**payload, "type": "string"}).status == 400
    assert api.delete(f"{things}/{name}-2").status == 204


def test_a_list_may_have_a_hyphen_in_its_name(stage: Stage, api: Client) -> None:
    owner = stage.empty_table({"field": "parent", "type": "integer"}).name
    payload = {
        "collection": owner,
        "field": "parent",
        "related_collection": owner,
        "meta": {"one_field": "all-parts"},
    }
    assert api.post("/relations", payload).status == 200
    api.post(f"/items/{owner}", {"all-parts": [{}]})
    assert api.get(f"/items/{owner}/1", fields="all-parts").data == {"all-parts": [2]}


COLUMNS: list[tuple[Json, Json, Json]] = [
    (
        {"type": "integer", "schema": {"numeric_precision": 32, "numeric_scale": 0}},
        {"type": "integer"},
        {"numeric_precision": None},
    ),
    (
        {"type": "bigInteger", "schema": {"numeric_precision": 64, "numeric_scale": 0}},
        {"type": "bigInteger"},
        {"numeric_scale": None},
    ),
    ({"type": "dateTime", "schema": {}}, {"type": "datetime"}, {}),
    ({"type": "uuid", "schema": {"max_length": 36}}, {"type": "uuid"}, {"max_length": None}),
    ({"type": "string", "schema": {"length": 9}}, {"type": "string"}, {"max_length": 9}),
    ({"type": "text", "schema": {"length": 9}}, {"type": "text"}, {"max_length": None}),
    (
        {"type": "string", "schema": {"is_unique": True, "is_indexed": False}},
        {"type": "string"},
        {"is_unique": True, "is_indexed": True},
    ),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("sent", "record", "schema"), COLUMNS)
def test_settings_of_columns_are_taken_as_what_they_mean_and_change_nothing_when_sent_again(
    api: Client, things: str, sent: Json, record: Json, schema: Json
) -> None:
    answer = api.post(things, {"field": "value", **sent})
    assert answer.status == 200, answer
    again = api.patch(f"{things}/value", {"field": "value", **sent})
    assert (again.status, again.data) == (200, answer.data)
    assert {key: answer.data[key] for key in record} == record
    assert {key: answer.data["schema"][key] for key in schema} == schema
    assert api.delete(f"{things}/value").status == 204


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("type_name", "sent", "special"),
    [
        ("boolean", ["boolean"], ["cast-boolean"]),
        ("json", ["json"], ["cast-json"]),
        ("csv", ["csv"], ["cast-csv"]),
        ("uuid", ["json", "uuid"], ["uuid"]),
    ],
)
def test_former_names_of_markers_mean_the_present_ones(
    api: Client, things: str, type_name: str, sent: list[str], special: list[str]
) -> None:
    payload = {"field": "value", "type": type_name, "meta": {"special": sent}, "schema": {}}
    assert api.post(things, payload).data["meta"]["special"] == special
    changed = api.patch(f"{things}/value", {"meta": {"special": sent}})
    assert (changed.status, changed.data["meta"]["special"]) == (200, special)
    assert api.delete(f"{things}/value").status == 204


def test_a_key_that_counts_up_may_name_its_sequence(api: Client) -> None:
    schema = {
        "is_primary_key": True,
        "has_auto_increment": True,
        "default_value": "nextval('things_id_seq'::regclass)",
        "is_unique": False,
        "is_indexed": False,
    }
    payload = {
        "collection": "counted",
        "schema": {"name": "counted", "sql": "CREATE TABLE counted (id integer)"},
        "fields": [{"field": "id", "type": "integer", "schema": schema}],
    }
    assert api.post("/collections", payload).status == 200
    changed = api.patch("/fields/counted/id", {"schema": schema})
    assert (changed.status, changed.data["schema"]["default_value"]) == (200, None)
    assert api.post("/items/counted", {}).data == {"id": 1}
    assert api.delete("/collections/counted").status == 204
    other = {**schema, "default_value": 5}
    fields = [{"field": "id", "type": "integer", "schema": other}]
    assert api.post("/collections", {**payload, "fields": fields}).status == 400


def test_a_change_of_another_setting_leaves_the_length(api: Client, things: str) -> None:
    schema = {"max_length": 400}
    assert api.post(things, {"field": "value", "type": "string", "schema": schema}).status == 200
    changed = api.patch(f"{things}/value", {"schema": {"is_nullable": True}}).data
    assert changed["schema"]["max_length"] == 400
    assert api.delete(f"{things}/value").status == 204


def test_forms_know_how_to_show_each_field_of_a_system_collection(api: Client) -> None:
    fields = {
        (record["collection"], record["field"]): record
        for record in api.get("/fields").data
        if record["collection"].startswith("system_")
    }
    assert all(record["meta"]["interface"] for record in fields.values())
    assert "text" not in {record["type"] for record in fields.values()}
    interfaces = {
        ("system_users", "status"): "select-dropdown",
        ("system_users", "avatar"): "file",
        ("system_users", "description"): "input-multiline",
        ("system_users", "role"): "select-dropdown-m2o",
        ("system_roles", "users"): "list-o2m",
        ("system_activity", "user"): "user",
        ("system_settings", "project_color"): "select-color",
        ("system_flows", "options"): "input-code",
        ("system_roles", "admin_access"): "boolean",
    }
    assert {name: fields[name]["meta"]["interface"] for name in interfaces} == interfaces
    status = fields["system_users", "status"]["meta"]["options"]["choices"]
    assert {"text": "Active", "value": "active"} in status
    assert fields["system_users", "id"]["meta"]["hidden"] is True
    assert fields["system_users", "email"]["meta"]["hidden"] is False


def test_relations_of_system_collections_have_settings(api: Client) -> None:
    relations = [
        relation
        for relation in api.get("/relations").data
        if relation["collection"].startswith("system_")
    ]
    for relation in relations:
        meta = relation["meta"]
        assert (meta["many_collection"], meta["many_field"], meta["one_collection"]) == (
            relation["collection"],
            relation["field"],
            relation["related_collection"],
        )
    assert api.get("/relations/system_users/role").data["meta"]["one_field"] == "users"
