"""/fields: columns and aliases made, read and dropped."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest

from tests.client import Client
from tests.things import Json, Table, add_field, field, filled_template, table

_numbers = itertools.count()

GEOMETRIES = ["Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon"]

DEFAULTS: list[tuple[str, Any, Any]] = [
    ("string", 'it\'s 100 % "so" \\ 🦊', 'it\'s 100 % "so" \\ 🦊'),
    ("string", "", ""),
    ("string", "now()", "now()"),
    ("text", "a\nb::text", "a\nb::text"),
    ("uuid", "0F0E0D0C-0B0A-4909-8807-060504030201", "0f0e0d0c-0b0a-4909-8807-060504030201"),
    ("integer", -5, -5),
    ("bigInteger", 2**63 - 1, 2**63 - 1),
    ("float", 1.5, 1.5),
    ("decimal", 0, 0),
    ("decimal", -12.25, -12.25),
    ("boolean", True, True),
    ("boolean", False, False),
    ("date", "2024-02-29", "2024-02-29"),
    ("time", "23:59:59", "23:59:59"),
    ("datetime", "2024-02-29T10:00:00", "2024-02-29T10:00:00"),
    ("dateTime", "2024-02-29T10:00:00", "2024-02-29T10:00:00"),
    ("timestamp", "2024-02-29T10:00:00+02:00", "2024-02-29T08:00:00.000Z"),
    ("json", {"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
    ("json", "text", "text"),
    ("csv", ["a", "b"], ["a", "b"]),
    ("csv", [], []),
    ("binary", "3q2+7w==", "3q2+7w=="),
]
COMPUTED = [
    ("uuid", "gen_random_uuid()", "gen_random_uuid()"),
    ("date", "now()", "now()"),
    ("time", "now()", "now()"),
    ("datetime", "now()", "now()"),
    ("timestamp", "now()", "now()"),
    ("timestamp", "CURRENT_TIMESTAMP", "now()"),
]

TYPES = [*dict.fromkeys(name for name, _, _ in DEFAULTS if name != "dateTime"), "hash"]


def make_things(admin: Client) -> None:
    admin.post("/collections", {"collection": "things", "schema": {}})
    admin.post("/items/things", {})


template = filled_template(make_things)


@pytest.fixture(scope="module")
def types(admin: Client) -> Table:
    """A collection with a field of each type, called like it, and one item."""
    collection = table(admin, *(field(kind, kind) for kind in TYPES))
    collection.add({})
    return collection


@pytest.fixture(scope="module")
def new_item(admin: Client) -> Json:
    """An item that got nothing but its defaults."""
    defaults = DEFAULTS + COMPUTED
    fields = [field(default_name(*row), row[0], default_value=row[1]) for row in defaults]
    return table(admin, *fields).add({})[0]


def default_name(type_name: str, sent: object, read: object) -> str:
    """Return the name of the field of `new_item` with one of the defaults."""
    return f"f_{(DEFAULTS + COMPUTED).index((type_name, sent, read))}"


@pytest.fixture
def name() -> str:
    """The name of a field that no other test has: they may share the collection."""
    return f"f_{next(_numbers)}"


def test_a_field_is_a_column_from_the_next_request_on(api: Client) -> None:
    record = add_field(api, "title", "string", meta={"interface": "input", "width": "half"})
    assert record["schema"]["data_type"] == "character varying(255)"
    assert record["schema"]["is_nullable"]
    assert (record["meta"]["interface"], record["meta"]["width"]) == ("input", "half")
    assert api.get("/fields/things/title").data == record
    assert api.patch("/items/things/1", {"title": "x"}).data == {"id": 1, "title": "x"}


def test_every_documented_key_is_answered(api: Client) -> None:
    record = add_field(api, "title", "string")
    assert record.keys() == {"collection", "field", "type", "meta", "schema"}
    meta = """id collection field special interface options display display_options readonly hidden
    required sort width
        group translations note conditions validation validation_message searchable
        search_weight"""
    assert record["meta"].keys() == set(meta.split())
    schema = """name table data_type default_value max_length numeric_precision numeric_scale
    is_nullable is_unique
        is_indexed is_primary_key is_generated has_auto_increment foreign_key_table
        foreign_key_column comment"""
    assert record["schema"].keys() == set(schema.split())


@pytest.mark.parametrize("type_name", TYPES)
def test_each_type_reads_back_as_itself(types: Table, type_name: str) -> None:
    assert types.api.get(f"/fields/{types.name}/{type_name}").data["type"] == type_name
    item = types.api.get(f"{types.path}/1", fields=f"id,{type_name}").data
    assert item == {"id": 1, type_name: None}


@pytest.mark.quick(2)
@pytest.mark.parametrize(("type_name", "sent", "read"), DEFAULTS + COMPUTED)
def test_a_default_reads_back_as_a_value_of_its_type(
    admin: Client, name: str, type_name: str, sent: Any, read: Any
) -> None:
    record = add_field(admin, name, type_name, schema={"default_value": sent})
    assert record["type"] == ("datetime" if type_name == "dateTime" else type_name)
    assert record["schema"]["default_value"] == read
    again = admin.patch(f"/fields/things/{name}", {"schema": {"default_value": read}}).data
    assert again["schema"]["default_value"] == read


@pytest.mark.parametrize(("type_name", "sent", "read"), DEFAULTS)
def test_a_default_is_what_an_item_gets(
    new_item: Json, type_name: str, sent: object, read: object
) -> None:
    assert new_item[default_name(type_name, sent, read)] == read


@pytest.mark.parametrize(("type_name", "sent", "read"), COMPUTED)
def test_a_computed_default_is_computed_for_each_item(
    new_item: Json, type_name: str, sent: object, read: object
) -> None:
    value = new_item[default_name(type_name, sent, read)]
    assert value
    assert value not in (sent, read)


@pytest.mark.parametrize(
    ("type_name", "schema"),
    [
        ("integer", {"default_value": "x"}),
        ("integer", {"default_value": 1.5}),
        ("integer", {"default_value": 2**40}),
        ("uuid", {"default_value": "now()"}),
        ("date", {"default_value": "gen_random_uuid()"}),
        ("date", {"default_value": "2023-02-29"}),
        ("boolean", {"default_value": "maybe"}),
        ("string", {"default_value": {}}),
        ("string", {"default_value": "x" * 256}),
        ("string", {"default_value": "four", "max_length": 3}),
        ("hash", {"default_value": "secret"}),
        ("string", {"max_length": 0}),
        ("string", {"max_length": -1}),
        ("string", {"max_length": 10**9}),
        ("text", {"max_length": 5}),
        ("decimal", {"numeric_precision": 0}),
        ("decimal", {"numeric_precision": 1001}),
        ("decimal", {"numeric_precision": 3, "numeric_scale": 4}),
        ("decimal", {"numeric_scale": 4}),
        ("date", {"numeric_precision": 4}),
        ("string", {"has_auto_increment": True}),
        ("integer", {"is_primary_key": True}),
        ("string", {"is_nullable": False}),
        ("json", {"is_indexed": True}),
        ("json", {"is_unique": True}),
        ("string", {"nonsense": True}),
        ("string", []),
        ("alias", {"is_nullable": True}),
    ],
)
def test_what_does_not_fit_a_type_is_refused_and_adds_nothing(
    admin: Client, type_name: str, schema: object
) -> None:
    before = admin.get("/fields/things").data
    answer = admin.post("/fields/things", {"field": "a", "type": type_name, "schema": schema})
    assert answer.status == 400, answer.text
    assert admin.get("/fields/things").data == before


def test_lengths_precisions_and_constraints_are_kept(api: Client) -> None:
    schema = add_field(
        api, "a", "string", schema={"max_length": 3, "is_unique": True, "comment": "50 %"}
    )["schema"]
    assert (schema["max_length"], schema["is_unique"], schema["comment"]) == (3, True, "50 %")
    schema = add_field(api, "b", "decimal", schema={"numeric_precision": 5, "numeric_scale": 2})[
        "schema"
    ]
    assert (schema["numeric_precision"], schema["numeric_scale"]) == (5, 2)
    schema = add_field(
        api,
        "c",
        "integer",
        schema={"default_value": 1, "is_nullable": False, "is_indexed": True},
    )["schema"]
    assert (schema["is_nullable"], schema["is_indexed"], schema["is_unique"]) == (
        False,
        True,
        False,
    )
    assert api.post("/items/things", {"a": "four"}).codes == ["VALUE_TOO_LONG"]
    assert api.post("/items/things", {"a": "one", "b": 999.99}).data["c"] == 1
    assert api.post("/items/things", {"a": "one"}).codes == ["RECORD_NOT_UNIQUE"]


@pytest.mark.parametrize("type_name", ["geometry", *(f"geometry.{shape}" for shape in GEOMETRIES)])
def test_a_geometry_without_postgis_is_refused_with_the_reason(
    admin: Client, type_name: str
) -> None:
    answer = admin.post("/fields/things", {"field": "place", "type": type_name})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert "PostGIS" in answer.errors[0]["reason"]


def test_an_alias_has_no_column(api: Client) -> None:
    record = add_field(api, "divider", "alias", meta={"interface": "divider"})
    assert record["schema"] is None
    assert record["meta"]["special"] == ["alias", "no-data"]
    assert api.get("/items/things/1").data == {"id": 1}
    assert api.post("/items/things", {"divider": 1}).status == 400
    assert api.delete("/fields/things/divider").status == 204
    assert api.get("/fields/things/divider").status == 404


def test_an_alias_stays_one(api: Client) -> None:
    add_field(api, "divider", "alias")
    for special in (None, [], ["cast-json"]):
        answer = api.patch("/fields/things/divider", {"meta": {"special": special}})
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
    assert api.patch("/fields/things/divider", {"schema": {"is_nullable": False}}).status == 400
    assert api.patch("/fields/things/divider", {"type": "string"}).status == 400


@pytest.mark.parametrize(
    "name", ["", "1st", "_x", "a" * 64, "a b", 'a"b', "a%b", "a;b", "🦊", "a\u0000", 5, None]
)
def test_names_that_are_no_names_are_refused(admin: Client, name: object) -> None:
    answer = admin.post("/fields/things", {"field": name, "type": "string"})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["select", "order", "User", "from", "a" * 63])
def test_names_that_sql_reserves_work(admin: Client, name: str) -> None:
    add_field(
        admin, name, "string", schema={"is_indexed": True, "comment": "x", "default_value": "y"}
    )
    assert admin.patch(f"/fields/things/{name}", {"schema": {"default_value": "z"}}).status == 200
    assert admin.post("/items/things", {}).data[name] == "z"
    assert admin.delete(f"/fields/things/{name}").status == 204


@pytest.mark.parametrize("type_name", ["unknown", "varchar", "", None, 3, "geometry.Circle"])
def test_types_that_are_none_are_refused(admin: Client, type_name: object) -> None:
    answer = admin.post("/fields/things", {"field": "a", "type": type_name})
    assert (answer.status, answer.errors[0]["field"]) == (400, "type")


def test_a_field_that_is_there_is_not_added_again(api: Client) -> None:
    add_field(api, "a", "string")
    assert api.post("/fields/things", {"field": "a", "type": "text"}).codes == ["INVALID_PAYLOAD"]
    assert api.get("/fields/things/a").data["type"] == "string"


def test_a_required_field_that_has_rows_without_it_is_refused(api: Client) -> None:
    refused = api.post(
        "/fields/things", {"field": "a", "type": "string", "schema": {"is_nullable": False}}
    )
    assert (refused.status, refused.codes) == (400, ["CONTAINS_NULL_VALUES"])
    assert (refused.errors[0]["collection"], refused.errors[0]["field"]) == ("things", "a")


def test_a_field_that_holds_nulls_does_not_become_required(api: Client) -> None:
    add_field(api, "a", "string")
    refused = api.patch("/fields/things/a", {"schema": {"is_nullable": False}})
    assert (refused.status, refused.codes) == (400, ["CONTAINS_NULL_VALUES"])
    assert (refused.errors[0]["collection"], refused.errors[0]["field"]) == ("things", "a")
    api.patch("/items/things/1", {"a": "x"})
    assert api.patch("/fields/things/a", {"schema": {"is_nullable": False}}).status == 200


def test_a_refusal_of_the_databases_is_reported_in_its_first_line_only(api: Client) -> None:
    refused = api.post(
        "/fields/things", {"field": "a", "type": "json", "schema": {"is_indexed": True}}
    )
    assert refused.codes == ["INVALID_PAYLOAD"]
    assert "operator class" in refused.errors[0]["reason"]
    assert "HINT" not in refused.text
    assert "\\n" not in refused.text


def test_a_dropped_field_takes_its_data_and_its_name_along(api: Client, dsn: str) -> None:
    add_field(api, "a", "string")
    add_field(api, "b", "string")
    api.patch("/collections/things", {"meta": {"sort_field": "a", "archive_field": "a"}})
    add_field(api, "group", "alias", meta={"special": ["alias", "no-data", "group"]})
    api.patch("/fields/things/b", {"meta": {"group": "group"}})
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO system_permissions (collection, action, fields) "
            "VALUES ('things', 'read', '[\"a\", \"b\"]'), ('others', 'read', '[\"a\"]')"
        )
    assert api.delete("/fields/things/a").status == 204
    assert api.delete("/fields/things/group").status == 204
    assert api.get("/items/things/1").data == {"id": 1, "b": None}
    meta = api.get("/collections/things").data["meta"]
    assert (meta["sort_field"], meta["archive_field"]) == (None, None)
    assert api.get("/fields/things/b").data["meta"]["group"] is None
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT fields FROM system_permissions ORDER BY id").fetchall()
    assert rows == [(["b"],), (["a"],)]


def test_the_primary_key_is_not_dropped(admin: Client) -> None:
    assert admin.delete("/fields/things/id").codes == ["INVALID_PAYLOAD"]


def test_unknown_fields_are_not_found(admin: Client) -> None:
    for answer in (
        admin.get("/fields/things/nowhere"),
        admin.get("/fields/nowhere"),
        admin.get("/fields/nowhere/id"),
        admin.patch("/fields/things/nowhere", {"meta": {}}),
        admin.delete("/fields/things/a%00b"),
        admin.post("/fields/nowhere", {"field": "a", "type": "string"}),
    ):
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), answer


def test_all_fields_of_all_collections_are_listed(admin: Client) -> None:
    names = [(record["collection"], record["field"]) for record in admin.get("/fields").data]
    assert ("things", "id") in names
    assert ("system_users", "email") in names
    assert not any(collection == "system_sessions" for collection, _ in names)


def test_fields_of_system_collections_are_described_and_never_change(admin: Client) -> None:
    record = admin.get("/fields/system_users/password").data
    assert record["type"] == "hash"
    assert (record["meta"]["system"], record["meta"]["special"]) == (True, ["hash", "conceal"])
    for answer in (
        admin.post("/fields/system_users", {"field": "nick", "type": "string"}),
        admin.post("/fields/system_users", {"field": "nick", "type": "alias"}),
        admin.patch("/fields/system_users/email", {"meta": {"note": "x"}}),
        admin.patch("/fields/system_users", [{"field": "email", "meta": {"note": "x"}}]),
        admin.delete("/fields/system_users/email"),
        admin.patch("/collections/system_users", {"meta": {"note": "x"}}),
        admin.delete("/collections/system_users"),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
        assert (answer.errors[0]["collection"], "is fixed" in answer.errors[0]["reason"]) == (
            "system_users",
            True,
        ), answer
