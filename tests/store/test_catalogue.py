"""The catalogue finds what is in the database, whoever made it, and
what the service keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from cms.store.snapshot import Snapshots
from tests.client import Client

Run = Callable[[str], None]


@pytest.fixture
def behind(api: Client, dsn: str) -> Run:
    """Run SQL behind the service's back, and have it look again."""

    def run(statements: str) -> None:
        with psycopg.connect(dsn) as connection:
            connection.execute(statements.encode())
        assert api.post("/utils/cache/clear").status == 204

    return run


def fields(api: Client, collection: str) -> dict[str, Any]:
    return {record["field"]: record for record in api.get(f"/fields/{quote(collection)}").data}


def test_a_table_made_elsewhere_appears_without_meta_and_is_fully_usable(
    api: Client, behind: Run
) -> None:
    behind("CREATE TABLE notes (id serial PRIMARY KEY, body text NOT NULL DEFAULT 'empty')")
    behind("COMMENT ON TABLE notes IS 'by hand'")
    record = api.get("/collections/notes").data
    assert record == {
        "collection": "notes",
        "meta": None,
        "schema": {"name": "notes", "comment": "by hand"},
    }
    assert all(field["meta"] is None for field in fields(api, "notes").values())
    assert fields(api, "notes")["id"]["schema"]["has_auto_increment"]
    assert api.post("/items/notes", {}).data == {"id": 1, "body": "empty"}
    assert api.post("/fields/notes", {"field": "more", "type": "integer"}).status == 200
    assert api.patch("/items/notes/1", {"more": 1}).data == {"id": 1, "body": "empty", "more": 1}
    assert (
        api.patch("/collections/notes", {"meta": {"icon": "note"}}).data["meta"]["icon"] == "note"
    )
    assert api.delete("/collections/notes").status == 204
    assert api.get("/collections/notes").status == 404


@pytest.mark.quick(1)
@pytest.mark.parametrize("made", ["VIEW", "MATERIALIZED VIEW"])
def test_a_view_is_a_collection_that_can_only_be_read(api: Client, behind: Run, made: str) -> None:
    behind(
        f"CREATE {made} seen AS SELECT n AS id, 'x' || n AS word FROM generate_series(1, 3) AS n"
    )
    assert api.get("/items/seen?sort=-id&limit=1").data == [{"id": 3, "word": "x3"}]
    assert api.get("/items/seen/2").data == {"id": 2, "word": "x2"}
    assert api.patch("/collections/seen", {"meta": {"icon": "eye"}}).data["meta"]["icon"] == "eye"
    assert api.patch("/fields/seen/word", {"meta": {"note": "n"}}).data["meta"]["note"] == "n"
    assert api.post("/fields/seen", {"field": "line", "type": "alias"}).status == 200
    for answer in (
        api.post("/items/seen", {"word": "y"}),
        api.patch("/items/seen/1", {"word": "y"}),
        api.delete("/items/seen/1"),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    for answer in (
        api.delete("/collections/seen"),
        api.patch("/collections/seen", {"schema": {"comment": "c"}}),
        api.post("/fields/seen", {"field": "more", "type": "string"}),
        api.patch("/fields/seen/word", {"field": "term"}),
        api.patch("/fields/seen/word", {"type": "integer"}),
        api.patch("/fields/seen/word", {"schema": {"is_nullable": False}}),
        api.delete("/fields/seen/word"),
        api.post("/relations", {"collection": "seen", "field": "id", "related_collection": "seen"}),
    ):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer


def test_a_partitioned_table_is_one_collection_and_its_partitions_are_none(
    api: Client, behind: Run
) -> None:
    behind(
        """CREATE TABLE events (id int PRIMARY KEY, word text) PARTITION BY RANGE (id);
        CREATE TABLE events_low PARTITION OF events FOR VALUES FROM (0) TO (10);
        CREATE TABLE events_high PARTITION OF events FOR VALUES FROM (10) TO (20);
        CREATE TABLE remarks (id int PRIMARY KEY, event int REFERENCES events)"""
    )
    names = {record["collection"] for record in api.get("/collections").data}
    assert "events" in names
    assert not names & {"events_low", "events_high"}
    assert [relation["related_collection"] for relation in api.get("/relations/remarks").data] == [
        "events"
    ]
    assert api.post("/items/events", [{"id": 1}, {"id": 11}]).data[1] == {"id": 11, "word": None}
    assert (
        api.post(
            "/fields/events", {"field": "size", "type": "integer", "schema": {"is_indexed": True}}
        ).status
        == 200
    )
    assert api.get("/items/events/1").data == {"id": 1, "word": None, "size": None}
    assert api.delete("/collections/events").status == 204
    assert api.get("/collections/events_low").status == 404


@pytest.mark.release
@pytest.mark.parametrize(
    "name",
    ["select", "Order", 'say "hi"', "100 % %s $1", "a;b--", "it's", "🦊 fox", "a.b", "x" * 63],
)
def test_a_table_of_any_name_appears_and_works(api: Client, behind: Run, name: str) -> None:
    word = (
        name[:50].replace(".", "-") + "?"
    )  # a dot in the name of a column would be a path in a query
    table = sql.Identifier(name).as_string()
    column = sql.Identifier(word).as_string()
    behind(
        f"CREATE TABLE {table} (id serial PRIMARY KEY, {column} text, "
        f"parent int REFERENCES {table})"
    )
    path = quote(name, safe="")
    assert api.get(f"/collections/{path}").data["collection"] == name
    assert list(fields(api, name)) == ["id", word, "parent"]
    assert api.post(f"/items/{path}", {word: "%s"}).data == {"id": 1, word: "%s", "parent": None}
    assert api.patch(f"/items/{path}/1", {word: "$1", "parent": 1}).data == {
        "id": 1,
        word: "$1",
        "parent": 1,
    }
    answer = api.search(
        f"/items/{path}", {"filter": {word: {"_eq": "$1"}}, "sort": [word], "fields": [word, "id"]}
    )
    assert answer.data == [{word: "$1", "id": 1}]
    assert (
        api.patch(f"/collections/{path}", {"schema": {"comment": name}}).data["schema"]["comment"]
        == name
    )
    at = quote(word, safe="")
    changed = api.patch(
        f"/fields/{path}/{at}",
        {"type": "string", "schema": {"is_unique": True, "default_value": name}},
    )
    assert changed.data["schema"]["default_value"] == name
    relation = {
        "collection": name,
        "field": "parent",
        "related_collection": name,
        "meta": {"one_field": "children"},
    }
    assert api.post("/relations", relation).data["related_collection"] == name
    assert api.get(f"/items/{path}/1").data["children"] == [1]
    assert api.patch(f"/fields/{path}/{at}", {"field": "plain"}).status == 200
    assert api.delete(f"/fields/{path}/plain").status == 204
    assert api.delete(f"/collections/{path}").status == 204


def test_columns_of_types_that_the_service_does_not_know_are_read_as_text(
    api: Client, behind: Run
) -> None:
    behind("CREATE TYPE mood AS ENUM ('good', 'bad')")
    behind(
        "CREATE TABLE odd (id int PRIMARY KEY, a inet, b mood, c int[], d interval, e jsonb, "
        "f varchar, g char(3))"
    )
    types = {name: field["type"] for name, field in fields(api, "odd").items()}
    assert types == {
        "id": "integer",
        "a": "unknown",
        "b": "string",
        "c": "json",
        "d": "unknown",
        "e": "json",
        "f": "string",
        "g": "string",
    }
    item = {
        "id": 1,
        "a": "10.0.0.1/8",
        "b": "good",
        "c": [1, 2],
        "d": "P1D",
        "e": {"x": 1},
        "f": "y",
        "g": "z  ",
    }
    assert api.post("/items/odd", item).data == {**item, "g": "z"}


def test_a_table_dropped_elsewhere_is_gone_at_the_next_request(api: Client, dsn: str) -> None:
    api.post("/collections", {"collection": "a", "schema": {}})
    assert api.get("/items/a").data == []
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE a")
    assert (api.get("/items/a").status, api.post("/items/a", {}).status) == (404, 404)
    api.post("/utils/cache/clear")
    assert api.get("/collections/a").data["schema"] is None
    assert api.delete("/collections/a").status == 204
    assert api.get("/collections/a").status == 404


@pytest.mark.release
def test_a_request_that_fails_on_an_altered_column_reloads_the_structure(
    api: Client, dsn: str
) -> None:
    api.post(
        "/collections",
        {"collection": "a", "schema": {}, "fields": [{"field": "n", "type": "integer"}]},
    )
    api.post("/items/a", {"n": 1})
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE a RENAME COLUMN n TO m")
    assert api.get("/items/a").data == [{"id": 1, "m": 1}]
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE a DROP COLUMN m, ADD COLUMN k text DEFAULT 'x'")
    assert api.get("/items/a?filter[m]=1").status == 400
    assert api.patch("/items/a/1", {"k": "y"}).data == {"id": 1, "k": "y"}
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "ALTER TABLE a ALTER COLUMN k DROP DEFAULT, ALTER COLUMN k TYPE bytea USING '\\x00'"
        )
    assert api.get("/items/a?filter[k][_eq]=y").status == 400
    api.post("/utils/cache/clear")
    assert fields(api, "a")["k"]["type"] == "binary"


@pytest.mark.release
def test_the_settings_of_a_thing_dropped_elsewhere_does_not_come_back_with_its_name(
    api: Client, behind: Run
) -> None:
    behind("CREATE TABLE a (id int PRIMARY KEY, secret text)")
    api.patch("/fields/a/secret", {"meta": {"hidden": True, "special": ["conceal"]}})
    api.post("/fields/a", {"field": "line", "type": "alias"})
    behind("ALTER TABLE a DROP COLUMN secret")
    assert (
        api.post("/fields/a", {"field": "secret", "type": "string"}).data["meta"]["hidden"] is False
    )
    api.patch("/fields/a/secret", {"meta": {"hidden": True}})
    behind("DROP TABLE a")
    assert api.get("/collections/a").status == 404
    api.post("/collections", {"collection": "a", "schema": {}})
    assert list(fields(api, "a")) == ["id"]
    behind("CREATE TABLE b (id int PRIMARY KEY, x int)")
    api.patch("/fields/b/x", {"meta": {"note": "x"}})
    behind("ALTER TABLE b RENAME COLUMN x TO y")
    assert api.patch("/fields/b/y", {"field": "x"}).data["meta"] is None


def test_no_column_can_point_to_a_key_of_two(api: Client, behind: Run) -> None:
    behind(
        "CREATE TABLE pairs (a int, b int, word text, PRIMARY KEY (a, b)); "
        "INSERT INTO pairs VALUES (1, 2, 'x')"
    )
    assert api.get("/items/pairs?filter[b]=2").data == [{"a": 1, "b": 2, "word": "x"}]
    columns = fields(api, "pairs")
    assert [name for name in columns if columns[name]["schema"]["is_primary_key"]] == ["a", "b"]
    assert api.get("/items/pairs/1").status == 404
    refused = api.post(
        "/relations", {"collection": "pairs", "field": "a", "related_collection": "pairs"}
    )
    assert refused.codes == ["INVALID_PAYLOAD"]
    assert api.post("/fields/pairs", {"field": "more", "type": "string"}).status == 200
    assert api.delete("/collections/pairs").status == 204


def test_a_table_without_a_key_may_get_one(api: Client, behind: Run) -> None:
    behind("CREATE TABLE log (word text); INSERT INTO log VALUES ('x')")
    assert api.post("/items/log", {"word": "y"}).status == 403
    key = {
        "field": "id",
        "type": "integer",
        "schema": {"is_primary_key": True, "has_auto_increment": True},
    }
    assert api.post("/fields/log", key).data["schema"]["is_primary_key"]
    assert api.get("/items/log/1").data == {"id": 1, "word": "x"}
    assert api.post("/items/log", {"word": "y"}).data["id"] == 2


def test_a_foreign_key_made_elsewhere_is_a_relation(api: Client, behind: Run) -> None:
    behind(
        """CREATE TABLE authors (id serial PRIMARY KEY);
        CREATE TABLE pairs (a int, b int, PRIMARY KEY (a, b));
        CREATE TABLE articles (id serial PRIMARY KEY,
            author int REFERENCES authors ON DELETE CASCADE,
            a int, b int, FOREIGN KEY (a, b) REFERENCES pairs)"""
    )
    names = [record["field"] for record in api.get("/relations/articles").data]
    assert names == ["pairs", "author"]
    record = api.get("/relations/articles/author").data
    assert (record["related_collection"], record["meta"]) == ("authors", None)
    assert record["schema"]["on_delete"] == "CASCADE"
    api.post("/items/authors", {})
    api.post("/items/articles", {"author": 1})
    assert api.get("/items/articles?fields=author.id").data == [{"author": {"id": 1}}]
    relation = {"collection": "articles", "field": "author", "related_collection": "authors"}
    relation_record = api.post("/relations", {**relation, "meta": {"one_field": "articles"}}).data
    assert relation_record["schema"] == record["schema"]
    assert fields(api, "articles")["author"]["schema"]["is_indexed"]
    assert api.get("/items/authors").data == [{"id": 1, "articles": [1]}]
    assert api.delete("/relations/articles/author").status == 204
    assert [record["field"] for record in api.get("/relations/articles").data] == ["pairs"]


@pytest.mark.release
def test_system_collections_are_listed_and_readable_and_stay_as_they_are(api: Client) -> None:
    documented = """activity collections fields files folders permissions roles users settings flows
    operations
        dashboards panels"""
    listed = {record["collection"]: record for record in api.get("/collections").data}
    for name in (f"system_{word}" for word in documented.split()):
        assert listed[name]["meta"]["system"] is True
        assert listed[name]["meta"]["singleton"] is (name == "system_settings")
        assert api.get(f"/items/{name}").status == 403
        assert api.get(f"/fields/{name}").data
        for answer in (
            api.patch(f"/collections/{name}", {"meta": {"note": "x"}}),
            api.patch("/collections", [{"collection": name, "meta": {"note": "x"}}]),
            api.delete(f"/collections/{name}"),
            api.post(f"/fields/{name}", {"field": "more", "type": "string"}),
            api.delete(f"/fields/{name}/id"),
        ):
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), name
    assert {record["collection"]: record for record in api.get("/collections").data} == listed


def test_tables_that_the_service_keeps_for_itself_are_never_seen(api: Client) -> None:
    for name in (
        "system_sessions",
        "system_version",
        "system_migrations",
        "system_activity_default",
    ):
        assert api.get(f"/collections/{name}").status == 404
        assert api.get(f"/items/{name}").status == 403
        assert api.delete(f"/collections/{name}").status == 404
    assert "failed_logins" not in fields(api, "system_users")


LASTING = """
    CREATE TABLE a (id serial PRIMARY KEY);
    CREATE FUNCTION wrong() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO nowhere VALUES (1); RETURN NEW;
    END $$;
    CREATE TRIGGER wrong BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION wrong();
    CREATE FUNCTION broken() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RETURN missing(); END $$;
    CREATE VIEW seen AS SELECT 1 AS id, broken() AS n
"""


def test_a_broken_function_of_the_database_is_an_error_in_the_log_and_loads_nothing_again(
    api: Client, behind: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    behind(LASTING)
    loads: list[Any] = []
    refresh = Snapshots.refresh

    def counted(snapshots: Snapshots, stale: Any) -> Any:
        loads.append(stale)
        return refresh(snapshots, stale)

    monkeypatch.setattr(Snapshots, "refresh", counted)
    for method, path, expected in (
        ("POST", "/items/a", 'relation "nowhere" does not exist'),
        ("GET", "/items/seen", "function missing() does not exist"),
    ):
        api.get("/items/a")
        loads.clear()
        answer = api.send(method, path, {} if method == "POST" else None)
        assert (answer.status, answer.codes) == (500, ["INTERNAL_SERVER_ERROR"]), answer
        assert expected in caplog.text
        assert loads == [], path


def test_a_foreign_key_from_or_to_another_schema_is_no_relation(
    api: Client, behind: Run, dsn: str
) -> None:
    behind(
        """CREATE SCHEMA other; CREATE TABLE other.a (id int PRIMARY KEY);
            CREATE TABLE a (id int PRIMARY KEY);
        CREATE TABLE b (id int PRIMARY KEY, x int CONSTRAINT same REFERENCES other.a);
        CREATE TABLE other.c (id int PRIMARY KEY, x int CONSTRAINT same REFERENCES a);
        CREATE TABLE c (id int PRIMARY KEY, x int CONSTRAINT same CHECK (x > 0))"""
    )
    assert api.get("/relations/b").data == []
    assert fields(api, "b")["x"]["schema"]["foreign_key_table"] is None
    refused = api.delete("/collections/a")
    assert (refused.status, refused.codes) == (400, ["INVALID_PAYLOAD"])
    with psycopg.connect(dsn) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_constraint WHERE conname = 'same'"
        ).fetchone() == (3,)
