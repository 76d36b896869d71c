"""Tables of every kind that others have made are read, and written
where each row has a key of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from cms.cli.structure_findings import dangling_settings
from cms.database.connections import standalone_transaction
from cms.store.snapshot import load_snapshot
from tests.client import Answer, Client
from tests.things import Stage, field, table

TABLES = {
    "keyless": "CREATE TABLE keyless (a integer, v text, j json)",
    "paired": "CREATE TABLE paired (id integer, v text, PRIMARY KEY (id, v))",
    "by_month": "CREATE TABLE by_month (id integer, at date, v text, PRIMARY KEY (id, "
    "at)) PARTITION BY RANGE (at); "
    "CREATE TABLE by_month_1 PARTITION OF by_month DEFAULT",
    "by_hash": "CREATE TABLE by_hash (id serial PRIMARY KEY, v text) PARTITION BY HASH (id); "
    "CREATE TABLE by_hash_0 PARTITION OF by_hash FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    "above": "CREATE TABLE above (id serial PRIMARY KEY, v text)",
    "below": "CREATE TABLE below (extra integer, PRIMARY KEY (id)) INHERITS (above); "
    "INSERT INTO below (v, extra) VALUES ('c', 1)",
    "seen": "CREATE VIEW seen AS SELECT id, v FROM above",
    "seen_without_key": "CREATE VIEW seen_without_key AS SELECT v, ARRAY[id] AS ids, "
    "above AS whole FROM above",
    "seen_with_json": "CREATE VIEW seen_with_json AS SELECT json_build_object('id', id) AS id, "
    "v FROM above",
    "seen_with_bytes": "CREATE VIEW seen_with_bytes AS SELECT v::bytea AS id, v FROM above",
    "seen_with_list": "CREATE VIEW seen_with_list AS SELECT ARRAY[id] AS id, v FROM above",
    "kept": "CREATE MATERIALIZED VIEW kept AS SELECT id, v FROM above",
    "far": "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw; "
    "CREATE FOREIGN TABLE far (id integer, v text) SERVER files OPTIONS (filename '/dev/null')",
    "made": "CREATE TABLE made (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text, "
    "twice text GENERATED ALWAYS AS (v || v) STORED)",
    "bare": "CREATE TABLE bare ()",
    "a.b": 'CREATE TABLE "a.b" (id serial PRIMARY KEY, v text)',
    'Say "x"': 'CREATE TABLE "Say ""x""" (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), v text)',
    "x" * 63: f"CREATE TABLE {'x' * 63} (id serial PRIMARY KEY, v text, {'y' * 63} text)",
    "keyed_by_json": "CREATE TABLE keyed_by_json (id jsonb PRIMARY KEY, v text)",
    "keyed_by_list": "CREATE TABLE keyed_by_list (id integer[] PRIMARY KEY DEFAULT '{1,2}', "
    "v text)",
    "keyed_by_bytes": "CREATE TABLE keyed_by_bytes (id bytea PRIMARY KEY DEFAULT '\\x00', v text)",
    "points_to_bytes": "CREATE TABLE points_to_bytes "
    "(id serial PRIMARY KEY, v text, key bytea REFERENCES keyed_by_bytes)",
    "keyed_by_row": "CREATE TYPE pair AS (a integer, b text); "
    "CREATE TABLE keyed_by_row (id pair PRIMARY KEY DEFAULT '(1,x)', v text)",
    "ruled": "CREATE TABLE ruled (id serial PRIMARY KEY, v text); "
    "CREATE RULE nothing AS ON INSERT TO ruled DO INSTEAD NOTHING",
}
WRITABLE = {
    "by_hash",
    "above",
    "below",
    "made",
    "a.b",
    "points_to_bytes",
    'Say "x"',
    "x" * 63,
    "keyed_by_row",
}
QUERIES = (
    "", "fields=*.*", "limit=-1&meta=*", "search=a", "aggregate[count]=*", "groupBy=v", "sort=-v",
    "filter[v]=a",
    "export=csv", "export=json", "export=xml", "export=yaml",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def tables(stage: Stage) -> None:
    for definition in TABLES.values():
        stage.execute(definition)


@pytest.mark.release
@pytest.mark.parametrize("name", TABLES)
def test_no_table_is_a_fault_of_the_service(stage: Stage, name: str) -> None:
    answers = dict(_answers(stage.admin, name))
    assert {path: answer.text for path, answer in answers.items() if answer.status >= 500} == {}
    reads = [answer.status for path, answer in answers.items() if path.startswith("GET ?")]
    assert set(reads) <= {200, 400 if name == "bare" else 200}
    assert (answers["POST"].status == 200) == (name in WRITABLE), answers["POST"].text
    for action in ("PATCH", "DELETE"):
        assert (answers[action].status < 300) == (name in WRITABLE), answers[action].text


@pytest.mark.release
def test_a_table_whose_key_becomes_a_hash_is_read_only(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE keyed_by_hash (id text PRIMARY KEY, v text); "
        "INSERT INTO keyed_by_hash VALUES ('a')"
    )
    assert (
        stage.admin.patch("/fields/keyed_by_hash/id", {"meta": {"special": ["hash"]}}).status == 200
    )
    assert stage.admin.get("/items/keyed_by_hash").data == [{"id": "**********", "v": None}]
    assert stage.admin.get("/items/keyed_by_hash/a").status == 404
    assert stage.admin.post("/items/keyed_by_hash", {"id": "b"}).status == 403


def test_an_item_whose_key_an_inheriting_table_has_too_is_one_of_both(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE parent (id integer PRIMARY KEY, v text); INSERT INTO parent VALUES (1, 'a'); "
        "CREATE TABLE heir () INHERITS (parent); INSERT INTO heir VALUES (1, 'b')"
    )
    things = table(stage.admin, field("owner", "integer"))
    things.add({"owner": 1})
    relation = {"collection": things.name, "field": "owner", "related_collection": "parent"}
    assert stage.admin.post("/relations", relation).status == 200
    (item,) = things.read("fields=owner.*").data
    assert item["owner"] in ({"id": 1, "v": "a"}, {"id": 1, "v": "b"})
    assert stage.admin.get("/items/parent/1").data == item["owner"]
    for sort in ("owner.v", "-owner.id"):
        page = things.read(f"sort={sort}&limit=1&meta=*")
        assert [each["owner"] for each in page.data] == [1]
        assert page.body["meta"]["total_count"] == 1


def test_a_relation_to_a_view_that_repeats_a_key_sorts_by_one_of_its_items(stage: Stage) -> None:
    stage.execute("CREATE TABLE twice (id integer PRIMARY KEY, v text)")
    things = table(stage.admin, field("seen", "integer"))
    relation = {"collection": things.name, "field": "seen", "related_collection": "twice"}
    assert stage.admin.post("/relations", relation).status == 200
    stage.execute(
        "DROP TABLE twice CASCADE; CREATE VIEW twice AS "
        "SELECT * FROM (VALUES (1, 'a'), (1, 'b'), (2, 'c'), (2, 'd')) AS rows (id, v)"
    )
    path = f"/fields/{things.name}/seen"
    assert stage.admin.patch(path, {"meta": {"note": "now to a view"}}).status == 200
    things.add({"seen": 2}, {"seen": 1}, {"seen": None})
    assert [item["seen"] for item in things.read("sort=seen.v").data] == [1, 2, None]
    assert [item["seen"] for item in things.read("sort=-seen.v").data] == [None, 2, 1]


def _answers(api: Client, name: str) -> Iterator[tuple[str, Answer]]:
    quoted = quote(name, safe="")
    path = f"/items/{quoted}"
    for kind in ("collections", "fields", "relations"):
        yield f"GET /{kind}", api.get(f"/{kind}/{quoted}")
    for query in QUERIES:
        yield f"GET ?{query}", api.get(f"{path}?{query}")
    created = api.post(path, {"v": "x"})
    yield "POST", created
    key = created.body["data"]["id"] if created.status == 200 else 1
    written = quote(key if isinstance(key, str) else json.dumps(key), safe="")
    yield "GET", api.get(f"{path}/{written}")
    yield "PATCH", api.patch(f"{path}/{written}", {"v": "y"})
    yield "PATCH keys", api.patch(path, {"keys": [key], "data": {"v": "z"}})
    yield "PATCH query", api.patch(path, {"query": {"filter": {"v": "z"}}, "data": {"v": "w"}})
    yield "PATCH array", api.patch(path, [{"id": key, "v": "v"}])
    yield "GET nothing", api.get(f"{path}/nothing")
    yield "DELETE nothing", api.delete(f"{path}/nothing")
    yield "GET rights", api.get(f"/permissions/me/{quoted}/{written}")
    yield "GET history", api.get(f"/revisions?filter[collection]={quoted}")
    yield "DELETE", api.delete(f"{path}/{written}")
    yield "DELETE query", api.delete(path, {"query": {"filter": {"v": "none"}}})
    yield "POST field", api.post(f"/fields/{quoted}", {"field": "more", "type": "string"})
    yield "PATCH field", api.patch(f"/fields/{quoted}/v", {"meta": {"note": "n"}})
    yield "PATCH collection", api.patch(f"/collections/{quoted}", {"meta": {"searchable": True}})


def test_what_names_nothing_is_reported_in_sentences(stage: Stage) -> None:
    things = table(
        stage.admin, field("owner", "integer"), field("place", "integer"), sort_field="place"
    )
    relation = {"collection": things.name, "field": "owner", "related_collection": "above"}
    meta = {"one_field": "things", "sort_field": "later", "junction_field": "other"}
    assert stage.admin.post("/relations", {**relation, "meta": meta}).status == 200
    stage.execute(
        f"ALTER TABLE {things.name} DROP COLUMN place; CREATE TABLE system_shop (id integer)"
    )
    rest = "is not there; make it, or take the setting back"
    with standalone_transaction(stage.dsn) as transaction:
        assert list(dangling_settings(load_snapshot(transaction).catalogue)) == [
            "table system_shop: no collection, because its name is kept for the service's own "
            "tables; rename it",
            f"relation {things.name}.owner: its junction_field other {rest}",
            f"relation {things.name}.owner: its sort_field later {rest}",
            f"collection {things.name}: its sort_field place {rest}",
        ]
    assert things.get().status == 200
    assert stage.admin.get("/items/above?fields=*.*").status == 200


@pytest.mark.release
def test_a_column_keeps_its_collation_with_another_type(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string", schema={"max_length": 5}))
    stage.execute(f'ALTER TABLE {things.name} ALTER name TYPE varchar(5) COLLATE "C"')
    collation = (
        "SELECT collname FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation "
        f"WHERE attrelid = '{things.name}'::regclass AND attname = 'name'"
    )
    path = f"/fields/{things.name}/name"
    for changed in ({"schema": {"max_length": 9}}, {"type": "text"}):
        assert stage.admin.patch(path, changed).status == 200
        assert stage.value(collation) == "C"
    assert stage.admin.patch(path, {"type": "integer"}).status == 200
    assert stage.value(collation) is None


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("told_keyless", "no primary key"),
        ("told_paired", '"v"'),
        ("told_view", "a view"),
        ("told_bytes", '"id"'),
    ],
)
def test_a_write_is_told_why_items_can_only_be_read(stage: Stage, name: str, reason: str) -> None:
    stage.execute(
        "CREATE TABLE IF NOT EXISTS told_bytes (id bytea PRIMARY KEY, v text);"
        "CREATE TABLE IF NOT EXISTS told_keyless (v text);"
        "CREATE TABLE IF NOT EXISTS told_paired (a text, v bytea, PRIMARY KEY (a, v));"
        "CREATE OR REPLACE VIEW told_view AS SELECT 1 AS id, 'a' AS v"
    )
    refused = stage.admin.post(f"/items/{name}", {"v": "a"}).errors[0]
    assert refused["code"] == "FORBIDDEN"
    assert "can only be read here" in refused["message"]
    assert reason in refused["message"]
