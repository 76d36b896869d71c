"""What was read can be sent back: values look the same at every depth, find their item, are its
key, and change nothing when they are written again.
"""

from __future__ import annotations

import itertools
import json
from urllib.parse import quote

import pytest

from tests.file_imports import post_file
from tests.things import Stage, Table

MICROSECONDS = "2024-01-02T03:04:05.828033Z"
SHOWN = [
    ("timestamptz", "2024-01-02 03:04:05.828033Z", MICROSECONDS),
    ("timestamptz", "2024-01-02 03:04:05.828Z", "2024-01-02T03:04:05.828Z"),
    ("timestamptz", "2024-01-02 03:04:05Z", "2024-01-02T03:04:05.000Z"),
    ("timestamptz", "0044-03-15 12:00:00Z BC", "-000043-03-15T12:00:00.000Z"),
    ("timestamptz", "0001-03-15 12:00:00.5Z BC", "+000000-03-15T12:00:00.500Z"),
    ("timestamptz", "0001-01-01 00:00:00Z", "0001-01-01T00:00:00.000Z"),
    ("timestamptz", "9999-12-31 23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ("timestamptz", "10000-01-01 00:00:00Z", "+010000-01-01T00:00:00.000Z"),
    ("timestamptz", "294276-12-31 23:59:59.999999Z", "+294276-12-31T23:59:59.999999Z"),
    ("timestamptz", "4714-11-24 00:00:00Z BC", "-004713-11-24T00:00:00.000Z"),
    ("timestamptz", "infinity", "infinity"),
    ("timestamptz", "-infinity", "-infinity"),
    ("timestamp", "2024-01-02 03:04:05", "2024-01-02T03:04:05"),
    ("timestamp", "2024-01-02 03:04:05.5", "2024-01-02T03:04:05.500"),
    ("timestamp", "2024-01-02 03:04:05.000001", "2024-01-02T03:04:05.000001"),
    ("timestamp", "0401-02-29 00:00:00 BC", "-000400-02-29T00:00:00"),
    ("timestamp", "12024-02-29 00:00:00.25", "+012024-02-29T00:00:00.250"),
    ("timestamp", "infinity", "infinity"),
    ("date", "2024-02-29", "2024-02-29"),
    ("date", "0044-03-15 BC", "-000043-03-15"),
    ("date", "0001-12-31 BC", "+000000-12-31"),
    ("date", "12024-01-01", "+012024-01-01"),
    ("date", "5874897-12-31", "+5874897-12-31"),
    ("date", "-infinity", "-infinity"),
    ("time", "13:45:00", "13:45:00"),
    ("time", "13:45:00.25", "13:45:00.250"),
    ("time", "13:45:00.000001", "13:45:00.000001"),
    ("time", "23:59:59.9999", "23:59:59.999900"),
    ("time", "24:00", "24:00:00"),
    ("double precision", "NaN", "NaN"),
    ("double precision", "Infinity", "Infinity"),
    ("real", "-Infinity", "-Infinity"),
    ("real", "NaN", "NaN"),
    ("numeric", "NaN", "NaN"),
    ("numeric", "Infinity", "Infinity"),
    ("numeric(6,2)", "NaN", "NaN"),
]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def tables() -> dict[str, tuple[Table, Table]]:
    """By the type of their key, the tables that `stored` has made: to make them takes longest."""
    return {}


@pytest.fixture
def stored(
    stage: Stage, tables: dict[str, tuple[Table, Table]], kind: str, value: str
) -> tuple[Table, Table]:
    """A table whose key and value are of the type, with one row, and one that points to it."""
    if kind not in tables:
        tables[kind] = new_tables(stage, kind)
    parents, children = tables[kind]
    run(
        stage,
        f"TRUNCATE {children.name}, {parents.name}; "
        f"DELETE FROM system_revisions WHERE collection = '{parents.name}'; "
        f"INSERT INTO {parents.name} VALUES ('{value}', '{value}', 1); "
        f"INSERT INTO {children.name} VALUES (1, '{value}')",
    )
    return parents, children


def new_tables(stage: Stage, kind: str) -> tuple[Table, Table]:
    number = next(_numbers)
    parents = Table(stage.admin, f"stored_{number}")
    children = Table(stage.admin, f"stored_{number}_children")
    stage.execute(
        f"CREATE TABLE {parents.name} (id {kind} PRIMARY KEY, value {kind}, n integer); "
        f"CREATE TABLE {children.name} (id integer PRIMARY KEY, parent {kind} "
        f"REFERENCES {parents.name})"
    )
    relation = f"/relations/{children.name}/parent"
    assert stage.admin.patch(relation, {"meta": {"one_field": "children"}}).status == 200
    return parents, children


def run(stage: Stage, sql: str) -> None:
    """Change rows past the service; their structure stays what it is."""
    with stage.side_door.connection() as connection:
        connection.execute(sql.encode())


@pytest.mark.quick(12)
@pytest.mark.parametrize(("kind", "value", "shown"), SHOWN)
def test_a_value_that_was_read_can_be_sent_back(
    stage: Stage, stored: tuple[Table, Table], value: str, shown: str
) -> None:
    api = stage.admin
    parents, children = stored
    item = {"id": shown, "value": shown, "n": 1}
    path = f"{parents.path}/{quote(shown, safe='')}"

    # At every depth.
    assert parents.column("value") == [shown]
    nested = api.get(f"{children.path}/1", fields="parent.value,parent.children.parent.value")
    listed = [{"parent": {"value": shown}}]
    assert nested.data == {"parent": {"value": shown, "children": listed}}
    assert parents.read("aggregate[max]=value").data == [{"max": {"value": shown}}]
    assert parents.read("groupBy[]=value").data == [{"value": shown}]

    # As an operand and as a key.
    for operator in ("_eq", "_in", "_gte", "_lte"):
        assert parents.get(filter=json.dumps({"value": {operator: shown}})).data, operator
    for operator in ("_neq", "_nin", "_gt", "_lt"):
        assert not parents.get(filter=json.dumps({"value": {operator: shown}})).data, operator
    assert children.get(filter=json.dumps({"parent": {"value": {"_eq": shown}}})).data
    assert api.get(path, fields="id,value,n").data == item

    # Sent back it changes nothing.
    assert api.patch(path, item).data == {**item, "children": [1]}
    assert api.patch(parents.path, [item]).status == 200
    assert api.patch(f"{children.path}/1", {"parent": item}).status == 200
    revisions = f"SELECT count(*) FROM system_revisions WHERE collection = '{parents.name}'"
    assert stage.value(revisions) == 0

    # As a value of other items, in the history, and in files.
    assert api.patch(path, {"value": None}).status == 200
    assert api.patch(path, {"value": shown}).data["value"] == shown
    assert stage.value(f"SELECT value = '{value}' FROM {parents.name}")
    revision = api.get("/revisions", fields="data", sort="-id", limit=1).data
    assert revision[0]["data"]["value"] == shown
    for form in ("json", "csv"):
        exported = parents.get(fields="id,value,n", export=form).content
        run(stage, f"DELETE FROM {children.name}; DELETE FROM {parents.name}")
        assert post_file(parents, exported, form=form).status == 200
        assert stage.value(f"SELECT value = '{value}' AND id = value FROM {parents.name}")


def test_values_of_generated_columns_are_ignored(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE people (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, first text, "
        "last text, whole text GENERATED ALWAYS AS (first || ' ' || last) STORED, "
        "n integer GENERATED ALWAYS AS IDENTITY)"
    )
    people = Table(stage.admin, "people")
    item = people.add({"first": "A", "last": "B"})[0]
    assert item == {"id": 1, "first": "A", "last": "B", "whole": "A B", "n": 1}
    answer = stage.admin.patch(f"{people.path}/1", item | {"last": "C"})
    assert answer.data == item | {"last": "C", "whole": "A C"}
    assert stage.admin.patch(people.path, [item]).data == [item]
    copies = [{**item, "id": 2, "n": 2}, {**item, "id": 3, "n": 3}]
    assert stage.admin.post(people.path, item).data == copies[0]
    assert people.add(item)[0] == copies[1]
    exported = people.get(export="csv").content
    assert post_file(people, exported).status == 200
    assert people.get().data == [item, *copies]


def test_values_of_identity_columns_are_ignored_in_related_items_too(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE shelves (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);"
        "CREATE TABLE volumes (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text, "
        "shelf integer REFERENCES shelves, n integer GENERATED ALWAYS AS IDENTITY)"
    )
    relation = {"meta": {"one_field": "volumes"}}
    assert stage.admin.patch("/relations/volumes/shelf", relation).status == 200
    path = "/items/shelves?fields=*,volumes.*"
    shelf = {"id": 7, "name": "a", "volumes": [{"id": 8, "n": 9, "title": "x"}]}
    made = stage.admin.post(path, shelf).data
    volume = {"id": 1, "title": "x", "shelf": 1, "n": 1}
    assert made == {"id": 1, "name": "a", "volumes": [volume]}
    again = {"volumes": [{**volume, "n": 50, "title": "y"}, {"n": 60, "title": "z"}]}
    changed = stage.admin.patch("/items/shelves/1?fields=volumes.*", again).data
    assert changed["volumes"] == [
        {**volume, "title": "y"},
        {"id": 2, "title": "z", "shelf": 1, "n": 2},
    ]
    body = {"keys": [1, 2], "data": {"n": 3, "title": "w"}}
    assert stage.admin.patch("/items/volumes", body).status == 200
    assert stage.value("SELECT array_agg(n ORDER BY id) FROM volumes") == [1, 2]


def test_a_column_that_a_trigger_fills_can_be_left_out(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE films (id serial PRIMARY KEY, a text, b text NOT NULL);"
        "CREATE FUNCTION fill_film() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.b := NEW.a; RETURN NEW; END';"
        "CREATE TRIGGER fill BEFORE INSERT ON films FOR EACH ROW EXECUTE FUNCTION fill_film()"
    )
    films = Table(stage.admin, "films")
    assert stage.admin.post(films.path, {"a": "x"}).codes == ["FAILED_VALIDATION"]
    answer = stage.admin.patch("/fields/films/b", {"meta": {"required": False}})
    assert answer.status == 200, answer
    assert stage.admin.post(films.path, {"a": "x"}).data == {"id": 1, "a": "x", "b": "x"}
    assert [film["b"] for film in films.add({"a": "y"}, {"a": "z"})] == ["y", "z"]
    answer = stage.admin.post(films.path, {})
    assert answer.codes == ["NOT_NULL_VIOLATION"], answer
    assert answer.errors[0]["field"] == "b"
