"""PATCH /fields: types, lengths, constraints and names change, and no value is ever lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from cms.structure import indexes
from tests.client import Client
from tests.index_building import is_indexed
from tests.things import Table, add_field, field, filled_template, table
from tests.waiting import eventually

TYPES = (
    "string text uuid integer bigInteger float decimal boolean date time datetime timestamp "
    "json csv hash binary"
)


def make_things(admin: Client) -> None:
    admin.post("/collections", {"collection": "things", "schema": {}})


template = filled_template(make_things)


@dataclass(frozen=True)
class SpareFields:
    """Fields of one collection, made at once: for each test one of the type that it wants."""

    table: Table
    names: Mapping[str, list[str]]

    def take(self, type_name: str) -> str:
        """Return the name of a field that no other test has had."""
        return self.names[type_name].pop()

    def path(self, name: str) -> str:
        return f"/fields/{self.table.name}/{name}"


@pytest.fixture(scope="module")
def spare(admin: Client) -> SpareFields:
    types = [*(row[0] for row in SURVIVING), *(row[0] for row in LOSING)]
    counts = Counter(types) + Counter(string=len(WRONG_NAMES))
    names = {kind: [f"{kind}_{number}" for number in range(counts[kind])] for kind in counts}
    fields = [field(name, kind) for kind, kinds_names in names.items() for name in kinds_names]
    return SpareFields(table(admin, *fields), names)


def change(api: Client, name: str, /, **changes: object) -> Any:
    return api.patch(f"/fields/things/{name}", changes).data


@pytest.mark.release
def test_the_record_that_was_read_may_be_sent_back_whole_and_changes_nothing(
    api: Client, dsn: str
) -> None:
    for type_name in TYPES.split():
        add_field(api, f"plain_{type_name}", type_name)
    add_field(
        api,
        "a",
        "string",
        schema={"max_length": 9, "default_value": "it's", "is_unique": True, "comment": "c"},
    )
    numbers = {"numeric_precision": 5, "numeric_scale": 2, "default_value": 1.50}
    add_field(api, "b", "decimal", schema=numbers)
    add_field(
        api,
        "c",
        "timestamp",
        schema={"default_value": "now()", "is_nullable": False, "is_indexed": True},
    )
    add_field(api, "d", "alias", meta={"special": ["alias", "no-data"], "options": {"a": 1}})
    add_field(
        api,
        "e",
        "json",
        schema={"default_value": [1.5]},
        meta={"conditions": [{"rule": {"a": {"_eq": 1}}}]},
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "ALTER TABLE things ADD COLUMN f inet, ADD COLUMN g char(3) DEFAULT 'x', "
            "ADD COLUMN h varchar,"
            " ADD COLUMN i int GENERATED ALWAYS AS (1 + 1) STORED, ADD COLUMN j text DEFAULT "
            "lower('A'),"
            " ADD COLUMN k int[], ADD COLUMN l smallint DEFAULT 1 + 2, ADD COLUMN m serial,"
            " ADD COLUMN n float8 DEFAULT 'NaN', ADD COLUMN o timestamptz DEFAULT 'infinity'"
        )
    api.post("/utils/cache/clear")
    records = api.get("/fields/things").data
    for record in records:
        assert api.patch(f"/fields/things/{record['field']}", record).data == record
    assert api.patch("/fields/things", records).data == records
    assert api.get("/fields/things").data == records


def test_settings_change_and_what_is_not_sent_stays(api: Client) -> None:
    add_field(api, "a", "string", meta={"note": "first", "interface": "input"})
    meta = change(api, "a", meta={"note": "second", "required": True})["meta"]
    assert (meta["note"], meta["interface"], meta["required"]) == ("second", "input", True)


def test_several_fields_change_together_or_not_at_all(api: Client) -> None:
    add_field(api, "a", "string"), add_field(api, "b", "string")
    changed = [
        {"field": "b", "meta": {"sort": 1}},
        {"field": "a", "meta": {"sort": 2}, "schema": {"max_length": 9}},
    ]
    assert [record["field"] for record in api.patch("/fields/things", changed).data] == [
        "b",
        "a",
    ]
    changed = [{"field": "a", "schema": {"max_length": 5}}, {"field": "nowhere", "meta": {}}]
    assert api.patch("/fields/things", changed).status == 404
    assert api.get("/fields/things/a").data["schema"]["max_length"] == 9
    assert api.patch("/fields/things", [changed[0], changed[0]]).codes == ["INVALID_PAYLOAD"]


SURVIVING: list[tuple[str, Any, str, Any]] = [
    ("integer", 5, "bigInteger", 5),
    ("bigInteger", 5, "integer", 5),
    ("integer", 5, "string", "5"),
    ("integer", 5, "decimal", 5),
    ("integer", 5, "float", 5),
    ("float", 5.0, "integer", 5),
    ("decimal", 1.5, "float", 1.5),
    ("string", "007", "text", "007"),
    ("text", "short", "string", "short"),
    ("string", "7", "integer", 7),
    ("string", "2024-02-29", "date", "2024-02-29"),
    (
        "text",
        "0f0e0d0c-0b0a-4909-8807-060504030201",
        "uuid",
        "0f0e0d0c-0b0a-4909-8807-060504030201",
    ),
    ("date", "2024-02-29", "datetime", "2024-02-29T00:00:00"),
    ("timestamp", "2024-02-29T10:00:00Z", "datetime", "2024-02-29T10:00:00"),
    ("json", {"a": 1}, "text", '{"a":1}'),
    ("boolean", True, "string", "true"),
    ("boolean", True, "integer", 1),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize(("before", "value", "after", "expected"), SURVIVING)
def test_a_type_changes_when_every_value_survives(
    spare: SpareFields, before: str, value: Any, after: str, expected: Any
) -> None:
    name = spare.take(before)
    items = spare.table.add({name: value}, {name: None})
    assert spare.table.api.patch(spare.path(name), {"type": after}).data["type"] == after
    changed = [spare.table.api.get(f"{spare.table.path}/{item['id']}").data[name] for item in items]
    assert changed == [expected, None]


LOSING: list[tuple[str, Any, dict[str, Any]]] = [
    ("bigInteger", 2**40, {"type": "integer"}),
    ("float", 1.5, {"type": "integer"}),
    ("decimal", 1.25, {"schema": {"numeric_precision": 5, "numeric_scale": 1}}),
    ("decimal", 1000, {"schema": {"numeric_precision": 3, "numeric_scale": 0}}),
    ("string", "four", {"schema": {"max_length": 3}}),
    ("text", "x" * 300, {"type": "string"}),
    ("string", "007", {"type": "integer"}),
    ("string", "x", {"type": "integer"}),
    ("string", "x", {"type": "json"}),
    ("timestamp", "2024-02-29T10:00:00Z", {"type": "date"}),
    ("datetime", "2024-02-29T10:00:00", {"type": "time"}),
    ("string", "x", {"type": "csv"}),
    ("string", "x", {"type": "hash"}),
    ("hash", "x", {"type": "string"}),
    ("string", "x", {"type": "geometry"}),
    ("string", "x", {"type": "alias"}),
    ("string", "x", {"type": "unknown"}),
    ("string", "x", {"type": None}),
    ("string", None, {"schema": {"is_nullable": False}}),
    ("string", "x", {"schema": {"is_primary_key": True}}),
    ("string", "x", {"schema": {"has_auto_increment": True}}),
    ("string", "x", {"schema": {"max_length": 0}}),
    ("integer", 1, {"schema": {"max_length": 5}}),
    ("integer", 1, {"schema": {"default_value": "x"}}),
    ("integer", 1, {"schema": {"nonsense": 1}}),
    ("string", "x", {"schema": {"default_value": "y" * 256}}),
    ("date", "2024-02-29", {"type": "boolean"}),
    ("uuid", "0f0e0d0c-0b0a-4909-8807-060504030201", {"type": "integer"}),
]


@pytest.mark.quick(8)
@pytest.mark.parametrize(("before", "value", "body"), LOSING)
def test_a_change_that_would_lose_or_break_a_value_is_refused_whole(
    admin: Client, spare: SpareFields, before: str, value: Any, body: dict[str, Any]
) -> None:
    name = spare.take(before)
    (item,) = spare.table.add({name: value})
    path = spare.path(name)
    record = admin.get(path).data
    answer = admin.patch(path, {"meta": {"note": "half done"}, **body})
    assert answer.status == 400, answer
    assert admin.get(path).data == record
    assert admin.get(f"{spare.table.path}/{item['id']}").data == item


@pytest.mark.release
def test_a_default_follows_a_change_of_type(api: Client) -> None:
    add_field(api, "a", "integer", schema={"default_value": 5})
    assert change(api, "a", type="string")["schema"]["default_value"] == "5"
    schema = change(api, "a", type="integer", schema={"default_value": 6})["schema"]
    assert schema["default_value"] == 6
    add_field(api, "b", "date", schema={"default_value": "now()"})
    assert change(api, "b", type="timestamp")["schema"]["default_value"] == "now()"
    add_field(api, "c", "string", schema={"default_value": "x", "max_length": 5})
    schema = change(api, "c", schema={"max_length": 9})["schema"]
    assert (schema["default_value"], schema["max_length"]) == ("x", 9)
    assert api.patch("/fields/things/c", {"type": "integer"}).status == 400


@pytest.mark.release
def test_an_expression_of_the_databases_is_never_taken_for_a_value(api: Client, dsn: str) -> None:
    add_field(api, "a", "string")
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE things ALTER COLUMN a SET DEFAULT 'x'::text || 'y'::text")
    api.post("/utils/cache/clear")
    assert api.get("/fields/things/a").data["schema"]["default_value"] == "('x'::text || 'y'::text)"
    assert api.patch("/fields/things/a", {"type": "text"}).status == 400
    change(api, "a", schema={"max_length": 20})
    assert api.post("/items/things", {}).data["a"] == "xy"
    schema = change(api, "a", type="text", schema={"default_value": None})["schema"]
    assert schema["default_value"] is None


def test_constraints_come_and_go(api: Client) -> None:
    add_field(api, "a", "string")
    for key, value in (
        ("is_nullable", False),
        ("is_nullable", True),
        ("is_unique", True),
        ("is_unique", False),
        ("is_indexed", True),
        ("is_indexed", False),
        ("default_value", "x"),
        ("default_value", None),
        ("comment", "it's 100 %"),
        ("comment", None),
    ):
        assert change(api, "a", schema={key: value})["schema"][key] == value
        assert api.get("/fields/things/a").data["schema"][key] == value


def test_a_field_with_equal_values_does_not_become_unique(api: Client) -> None:
    add_field(api, "a", "string")
    api.post("/items/things", [{"a": "x"}, {"a": "x"}])
    answer = api.patch("/fields/things/a", {"schema": {"is_unique": True}})
    assert (answer.status, answer.codes) == (400, ["RECORD_NOT_UNIQUE"])


def test_a_key_may_grow_and_still_counts_up(api: Client) -> None:
    api.post("/items/things", {})
    assert change(api, "id", type="bigInteger")["schema"]["has_auto_increment"]
    assert api.post("/items/things", {}).data["id"] == 2
    for body in (
        {"type": "string"},
        {"schema": {"is_nullable": True}},
        {"schema": {"default_value": 5}},
        {"schema": {"is_unique": False}},
        {"schema": {"is_primary_key": False}},
    ):
        answer = api.patch("/fields/things/id", body)
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), body


def test_what_the_database_generates_is_not_set_otherwise(api: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "ALTER TABLE things ADD COLUMN twice int GENERATED ALWAYS AS (id * 2) STORED"
        )
    api.post("/utils/cache/clear")
    assert api.get("/fields/things/twice").data["schema"]["is_generated"]
    for body in ({"type": "string"}, {"schema": {"default_value": 5}}):
        assert api.patch("/fields/things/twice", body).codes == ["INVALID_PAYLOAD"]


@pytest.mark.release
def test_a_large_table_gets_its_index_without_holding_up_writers(
    api: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", 0)
    add_field(api, "a", "string")
    api.post("/items/things", {"a": "x"})
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE statements (query text)")
        connection.execute(
            "CREATE FUNCTION seen() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO statements VALUES (current_query()); END $$"
        )
        connection.execute("CREATE EVENT TRIGGER seen ON ddl_command_end EXECUTE FUNCTION seen()")
    change(api, "a", schema={"is_indexed": True})
    add_field(api, "b", "string", schema={"is_indexed": True})
    eventually(lambda: is_indexed(api, "things", "a", "b"))
    with psycopg.connect(dsn) as connection:
        queries = [query for (query,) in connection.execute("SELECT query FROM statements")]
    assert sum(query.startswith("CREATE INDEX CONCURRENTLY") for query in queries) == 2
    assert not any(query.startswith("CREATE INDEX ON") for query in queries)


# Renaming


def test_a_renamed_field_keeps_its_data_and_everything_that_names_it_follows(
    api: Client,
) -> None:
    add_field(api, "a", "string", meta={"note": "kept"})
    add_field(api, "b", "string", meta={"group": "a"})
    api.post("/items/things", {"a": "x"})
    body = {
        "sort_field": "a",
        "archive_field": "a",
        "display_template": "{{a}} {{ b }} {{aa}}",
        "item_duplication_fields": ["a", "b"],
        "preview_url": "https://example.com/{{a}}/{{b}}",
    }
    api.patch("/collections/things", {"meta": body})
    record = change(api, "a", field="title")
    assert (record["field"], record["meta"]["note"]) == ("title", "kept")
    assert api.get("/items/things/1").data == {"id": 1, "title": "x", "b": None}
    assert api.get("/fields/things/a").status == 404
    assert api.get("/fields/things/b").data["meta"]["group"] == "title"
    meta = api.get("/collections/things").data["meta"]
    assert {key: meta[key] for key in body} == {
        "sort_field": "title",
        "archive_field": "title",
        "display_template": "{{title}} {{ b }} {{aa}}",
        "item_duplication_fields": ["title", "b"],
        "preview_url": "https://example.com/{{title}}/{{b}}",
    }


def test_the_primary_key_may_be_renamed(api: Client) -> None:
    api.post("/items/things", {})
    change(api, "id", field="number")
    assert api.get("/items/things/1").data == {"number": 1}


@pytest.mark.release
def test_a_rename_and_another_change_happen_together(api: Client) -> None:
    add_field(api, "a", "integer")
    record = change(
        api, "a", field="b", type="string", meta={"note": "n"}, schema={"is_indexed": True}
    )
    assert (record["field"], record["type"], record["meta"]["note"]) == ("b", "string", "n")
    assert record["schema"]["is_indexed"]


WRONG_NAMES = ["id", "1st", "", None, "a b", "x" * 64, "ctid"]


@pytest.mark.parametrize("wrong", WRONG_NAMES)
def test_a_name_that_is_taken_or_is_none_is_refused(
    admin: Client, spare: SpareFields, wrong: object
) -> None:
    path = spare.path(spare.take("string"))
    answer = admin.patch(path, {"field": wrong, "meta": {"note": "half done"}})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert admin.get(path).data["meta"]["note"] is None


@pytest.fixture
def library(api: Client) -> Client:
    """things.author → authors, listed there as `things`; both have a field `name`."""
    api.post(
        "/collections",
        {"collection": "authors", "schema": {}, "fields": [{"field": "name", "type": "string"}]},
    )
    add_field(api, "name", "string")
    add_field(api, "author", "integer")
    relation = {"collection": "things", "field": "author", "related_collection": "authors"}
    assert api.post("/relations", {**relation, "meta": {"one_field": "things"}}).status == 200
    return api


RULE = {
    "_and": [
        {"name": {"_eq": "name"}},
        {
            "_or": [
                {"author": {"name": {"_in": ["a"]}}},
                {"author": {"things": {"_some": {"name": {"_null": True}}}}},
            ]
        },
        {"count(author)": {"_gt": 1}},
    ]
}


def rule_of(relation: str, author: str, own: str) -> dict[str, Any]:
    return {
        "_and": [
            {own: {"_eq": "name"}},
            {
                "_or": [
                    {author: {relation: {"_in": ["a"]}}},
                    {author: {"things": {"_some": {own: {"_null": True}}}}},
                ]
            },
            {f"count({author})": {"_gt": 1}},
        ]
    }


@pytest.mark.release
def test_rules_follow_a_rename_through_relations_at_the_right_collection_only(
    library: Client, dsn: str
) -> None:
    condition = [{"name": "one", "rule": {"author": {"name": {"_eq": "x"}}}, "hidden": True}]
    library.patch("/fields/things/name", {"meta": {"conditions": condition, "validation": RULE}})
    library.patch(
        "/collections/things", {"meta": {"display_template": "{{name}} by {{author.name}}"}}
    )
    preset = {"name": "x", "author": {"name": "y"}, "extra": {"name": 1}}
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO system_permissions (collection, action, fields, permissions, validation, "
            "presets)"
            " VALUES ('things', 'read', '[\"name\", \"author\"]', %s, %s, %s)",
            (json.dumps(RULE), json.dumps(RULE), json.dumps(preset)),
        )
    for path, name in (("/fields/authors/name", "pen_name"), ("/fields/things/name", "title")):
        assert library.patch(path, {"field": name}).status == 200
    assert library.patch("/fields/things/author", {"field": "writer"}).status == 200
    expected = rule_of("pen_name", "writer", "title")
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT fields, permissions, validation, presets FROM system_permissions"
        ).fetchone()
    assert rows == (
        ["title", "writer"],
        expected,
        expected,
        {"title": "x", "writer": {"pen_name": "y"}, "extra": {"name": 1}},
    )
    meta = library.get("/fields/things/title").data["meta"]
    assert meta["validation"] == expected
    assert meta["conditions"][0]["rule"] == {"writer": {"pen_name": {"_eq": "x"}}}
    assert (
        library.get("/collections/things").data["meta"]["display_template"]
        == "{{title}} by {{writer.pen_name}}"
    )
    relation = library.get("/relations/things/writer").data
    assert (relation["schema"]["column"], relation["meta"]["one_field"]) == ("writer", "things")


@pytest.mark.release
def test_a_rule_that_names_a_dropped_field_stays_so_that_it_allows_no_more_than_before(
    library: Client, dsn: str
) -> None:
    preset = {"name": "x", "author": {"name": "y"}}
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO system_permissions (collection, action, fields, permissions, presets)"
            " VALUES ('things', 'read', '[\"name\"]', %s, %s)",
            (json.dumps(RULE), json.dumps(preset)),
        )
    assert library.delete("/fields/things/name").status == 204
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT fields, permissions, presets FROM system_permissions"
        ).fetchone()
    assert rows == ([], RULE, {"author": {"name": "y"}})
