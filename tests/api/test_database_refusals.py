"""What the project's own views, row policies and inherited tables refuse, or show in a way of their
own: it is nobody's fault, and no lost database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.cli.structure_findings import structure_findings
from cms.config import Config
from cms.structure import indexes
from tests.client import Client
from tests.things import Stage, Table, admin_token, field, table


def change(stage: Stage, sql: str) -> None:
    """Change the database behind the back of the service, which keeps all that it knows."""
    with stage.side_door.connection() as connection:
        connection.execute(sql.encode())


def test_a_view_in_the_place_of_a_table_is_read_only_at_once(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string"))
    things.add({"name": "a"})
    change(
        stage, f"DROP TABLE {things.name}; CREATE VIEW {things.name} AS SELECT 1 AS id, '' AS name"
    )
    answer = stage.admin.post(things.path, {"name": "b"})
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer


def test_a_new_trigger_that_turns_an_item_away_is_reported_at_once(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string"))
    things.add({"name": "a"})
    change(
        stage,
        "CREATE FUNCTION turn_away() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        f"CREATE TRIGGER turns_away BEFORE INSERT ON {things.name} FOR EACH ROW "
        "EXECUTE FUNCTION turn_away()",
    )
    for body in ({"name": "b"}, [{"name": "b"}, {"name": "c"}]):
        answer = stage.admin.post(things.path, body)
        assert (answer.status, answer.codes) == (422, ["NOT_WRITTEN"]), answer
    assert stage.value(f"SELECT count(*) FROM {things.name}") == 1


@pytest.mark.parametrize("accountability", ["all", None])
def test_a_new_trigger_that_turns_some_items_away_leaves_none(
    stage: Stage, accountability: str | None
) -> None:
    things = table(stage.admin, field("name", "string"), accountability=accountability)
    things.add({"name": "a"}, {"name": "b"})
    things.add({}, {})
    change(
        stage,
        "CREATE OR REPLACE FUNCTION turn_every_second_away() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END';"
        f"CREATE TRIGGER turns_away BEFORE INSERT ON {things.name} FOR EACH ROW "
        "EXECUTE FUNCTION turn_every_second_away()",
    )
    written = (
        f"SELECT (SELECT count(*) FROM {things.name}) + (SELECT count(*) FROM system_activity)"
    )
    before = stage.value(written)
    bodies: tuple[list[dict[str, str]], ...] = ([{"name": "c"}, {"name": "d"}], [{}, {}, {}])
    for body in bodies:
        answer = stage.admin.post(things.path, body)
        assert (answer.status, answer.codes) == (422, ["NOT_WRITTEN"]), answer
        assert answer.errors[0]["collection"] == things.name
    assert stage.value(written) == before


def test_a_view_whose_sub_select_has_several_rows_is_refused_in_words(stage: Stage) -> None:
    stage.execute("CREATE VIEW doubled AS SELECT 1 AS id, (SELECT generate_series(1, 2)) AS two")
    answer = stage.admin.get("/items/doubled")
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
    assert "more than one row" in answer.errors[0]["message"]


def test_rows_of_one_key_are_changed_and_deleted_by_query_together(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE parents (id integer PRIMARY KEY, name text);"
        "CREATE TABLE heirs () INHERITS (parents);"
        "INSERT INTO parents VALUES (1, 'a'), (2, 'a'); INSERT INTO heirs VALUES (1, 'a')"
    )
    body = {"query": {"filter": {"name": "a"}}, "data": {"name": "b"}}
    assert stage.admin.patch("/items/parents", body).status == 200
    assert stage.value("SELECT array_agg(name) FROM parents") == ["b", "b", "b"]
    assert stage.admin.delete("/items/parents", {"query": {}}).status == 204
    assert stage.value("SELECT count(*) FROM parents") == 0


@pytest.mark.release
def test_a_value_that_takes_more_memory_than_postgresql_allows_is_refused(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string"))
    check = "regexp_replace(repeat(name, 134217728), 'b', '') > ''"
    stage.execute(f"ALTER TABLE {things.name} ADD CHECK ({check})")
    answer = stage.admin.post(things.path, {"name": "aa"})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
    assert "refuses its size" in answer.errors[0]["message"]


@pytest.fixture
def ordinary(dsn: str, config: Config, make_client: Callable[..., Client]) -> Iterator[Client]:
    """The administrator's client of a service whose account obeys row policies."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS ordinary_account")
        connection.execute("CREATE ROLE ordinary_account LOGIN")
        connection.execute("CREATE TABLE things (id serial PRIMARY KEY, name text)")
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
            connection.execute(
                f"GRANT ALL ON ALL {kind} IN SCHEMA public TO ordinary_account".encode()
            )
    client = make_client(database_url=make_conninfo(dsn, user="ordinary_account"))
    yield client.bearing(admin_token(config, dsn))
    client.close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP OWNED BY ordinary_account")
        connection.execute("DROP ROLE ordinary_account")


@pytest.mark.release
def test_a_row_policy_counts_at_once_and_refuses_rows_as_a_check_does(
    ordinary: Client, dsn: str
) -> None:
    things = Table(ordinary, "things")
    # The statements are prepared before there is a policy.
    things.add({"name": "a"})
    things.add({"name": "a"}, {"name": "b"})
    assert ordinary.patch("/items/things/1", {"name": "c"}).status == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE things ENABLE ROW LEVEL SECURITY")
        connection.execute("CREATE POLICY odd ON things USING (id <> 2) WITH CHECK (name <> 'no')")
    assert [item["id"] for item in things.read("fields=id").data] == [1, 3]
    for answer in (
        ordinary.post("/items/things", {"name": "no"}),
        ordinary.post("/items/things", [{"name": "yes"}, {"name": "no"}]),
        ordinary.patch("/items/things/1", {"name": "no"}),
        ordinary.patch("/items/things", {"keys": [1, 3], "data": {"name": "no"}}),
    ):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
        assert "row-level security" in answer.errors[0]["message"]
    for answer in (
        ordinary.patch("/items/things/2", {"name": "yes"}),
        ordinary.delete("/items/things/2"),
    ):
        assert answer.status == 404, answer
    assert things.read("aggregate[count]=*").data == [{"count": 2}]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("REVOKE INSERT ON things FROM ordinary_account")
    assert ordinary.post("/items/things", {"name": "yes"}).codes == ["DATABASE_RIGHTS"]


@pytest.mark.release
@pytest.mark.parametrize("large_bytes", [-1, indexes.LARGE_BYTES])
@pytest.mark.parametrize("setting", ["is_indexed", "is_unique"])
def test_an_index_of_a_table_of_somebody_else_is_refused_at_once(
    ordinary: Client, dsn: str, monkeypatch: pytest.MonkeyPatch, large_bytes: int, setting: str
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", large_bytes)
    answer = ordinary.patch("/fields/things/name", {"schema": {setting: True}})
    assert (answer.status, answer.codes) == (500, ["DATABASE_RIGHTS"])
    with psycopg.connect(dsn) as connection:
        jobs = "SELECT FROM procrastinate_jobs WHERE task_name = 'build'"
        assert connection.execute(jobs.encode()).fetchall() == []


def test_a_materialized_view_without_data_is_refused_until_it_is_filled(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string"))
    things.add({"name": "a"})
    source = f"SELECT id, name FROM {things.name}"
    stage.execute(f"CREATE MATERIALIZED VIEW unfilled AS {source} WITH NO DATA")
    for _ in range(2):
        answer = stage.admin.get("/items/unfilled")
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
        assert "retry-after" not in answer.headers
    change(stage, "REFRESH MATERIALIZED VIEW unfilled")
    assert stage.admin.get("/items/unfilled").data == [{"id": 1, "name": "a"}]


@pytest.mark.release
def test_a_missing_right_names_table_and_privilege_to_administrators_only(
    ordinary: Client, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    change = "REVOKE {} FROM ordinary_account"
    permission = {"role": None, "collection": "things", "action": "create", "fields": ["*"]}
    assert ordinary.post("/permissions", permission).status == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(change.format("INSERT, DELETE ON things").encode())
    answer = ordinary.post("/items/things", {"name": "a"})
    assert (answer.status, answer.codes) == (500, ["DATABASE_RIGHTS"]), answer
    assert "things; the account lacks INSERT, DELETE" in answer.errors[0]["reason"]
    assert "Retry-After" not in answer.headers
    assert "things; the account lacks INSERT, DELETE" in caplog.text
    account = make_conninfo(dsn, user="ordinary_account")
    (finding,) = [each for each in structure_findings(account) if each.text.startswith("rights:")]
    assert "lacks INSERT, DELETE on things" in finding.text
    public = ordinary.bearing("").post("/items/things", {"name": "a"})
    assert (public.status, public.codes) == (500, ["DATABASE_RIGHTS"]), public
    assert "things" not in public.text

    # A table that cannot be read is no collection.
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(change.format("SELECT ON things").encode())
        connection.execute(b"UPDATE system_version SET structure = structure + 1")
    names = [collection["collection"] for collection in ordinary.get("/collections").data]
    assert "things" not in names


@pytest.mark.release
def test_changes_of_the_structure_name_the_right_that_they_lack(ordinary: Client, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            b"GRANT CREATE ON SCHEMA public TO ordinary_account;"
            b"REVOKE REFERENCES ON things FROM ordinary_account"
        )
    assert ordinary.post("/collections", {"collection": "notes", "schema": {}}).status == 200
    thing = {"field": "thing", "type": "integer"}
    assert ordinary.post("/fields/notes", thing).status == 200
    relation = {"collection": "notes", "field": "thing", "related_collection": "things"}
    for answer, reason in (
        (ordinary.post("/relations", relation), "table things; the account lacks REFERENCES"),
        (ordinary.post("/fields/things", thing), "must be owner of table things"),
        (
            ordinary.patch("/fields/things/name", {"schema": {"is_nullable": False}}),
            "must be owner of table things",
        ),
    ):
        assert (answer.status, answer.codes) == (500, ["DATABASE_RIGHTS"]), answer
        assert answer.errors[0]["reason"].endswith(reason)
    findings = structure_findings(make_conninfo(dsn, user="ordinary_account"))
    assert any("lacks REFERENCES on things" in finding.text for finding in findings)


@pytest.mark.release
def test_missing_rights_on_a_view_and_within_its_trigger_are_named_too(
    ordinary: Client, dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            b"CREATE VIEW seen AS SELECT id, name FROM things;"
            b"CREATE TABLE hidden (id serial PRIMARY KEY);"
            b"REVOKE ALL ON hidden FROM ordinary_account;"
            b"CREATE FUNCTION write_seen() RETURNS trigger LANGUAGE plpgsql AS "
            b"$$BEGIN INSERT INTO hidden DEFAULT VALUES RETURNING id INTO new.id; RETURN new; "
            b"END$$;"
            b"CREATE TRIGGER w INSTEAD OF INSERT ON seen "
            b"FOR EACH ROW EXECUTE FUNCTION write_seen();"
            b"GRANT SELECT ON seen TO ordinary_account;"
            b"UPDATE system_version SET structure = structure + 1"
        )
    account = make_conninfo(dsn, user="ordinary_account")
    # Without a right on the view itself, and then on what its trigger writes.
    for name, lacking in (
        ("seen", "INSERT"),
        ("hidden", "SELECT, INSERT, UPDATE, DELETE, REFERENCES"),
    ):
        answer = ordinary.post("/items/seen", {"name": "a"})
        assert (answer.status, answer.codes) == (500, ["DATABASE_RIGHTS"]), answer
        assert f"{name}; the account lacks {lacking}" in answer.errors[0]["reason"]
        texts = [finding.text for finding in structure_findings(account)]
        assert any(f"lacks {lacking} on {name};" in text for text in texts), texts
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(b"GRANT INSERT ON seen TO ordinary_account")
