"""What other programs do to the tables is there within a minute, in every process, without a
call.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import psycopg
import pytest

from cms.store import foreign_changes, store
from tests.client import Client


@pytest.fixture
def checking_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look with every request, not once a minute."""
    monkeypatch.setattr(foreign_changes, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(foreign_changes, "RETRY_SECONDS", 0.0)


@pytest.fixture
def processes(make_client: Callable[..., Client], admin_token: str) -> tuple[Client, Client]:
    """The administrator's clients of two processes."""
    return make_client().bearing(admin_token), make_client().bearing(admin_token)


def run(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for part in sql.split(";"):
            connection.execute(part.encode())


def counter(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT structure FROM system_version").fetchone()
        assert row
        return int(row[0])


APPEARS = [
    ("CREATE TABLE notes (id serial PRIMARY KEY)", "/collections/notes"),
    ("CREATE VIEW notes AS SELECT 1 AS id", "/collections/notes"),
    ("ALTER TABLE made ADD COLUMN more integer", "/fields/made/more"),
    ("ALTER TABLE made RENAME COLUMN word TO more", "/fields/made/more"),
    ("ALTER TABLE made RENAME TO notes", "/collections/notes"),
    ("ALTER TABLE made ADD FOREIGN KEY (parent) REFERENCES made", "/relations/made/parent"),
]
GOES = [
    ("ALTER TABLE made DROP COLUMN word", "/fields/made/word"),
    ("DROP TABLE made", "/collections/made"),
]


@pytest.mark.quick(2)
@pytest.mark.usefixtures("checking_always")
@pytest.mark.parametrize(("change", "path"), [*APPEARS, *GOES])
def test_a_change_is_there_for_every_process_with_one_load(
    processes: tuple[Client, Client], dsn: str, change: str, path: str
) -> None:
    run(dsn, "CREATE TABLE made (id serial PRIMARY KEY, word text, parent integer)")
    assert [client.get("/collections/made").status for client in processes] == [200, 200]
    before, after = (404, 200) if (change, path) in APPEARS else (200, 404)
    assert {client.get(path).status for client in processes} == {before}
    moved = counter(dsn)
    run(dsn, change)
    assert {client.get(path).status for client in (*processes, *processes)} == {after}
    assert counter(dsn) == moved + 1


@pytest.mark.quick(1)
@pytest.mark.usefixtures("checking_always")
@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("ALTER TABLE made ALTER word SET DEFAULT 'x'", "default_value", "x"),
        ("ALTER TABLE made ALTER word SET NOT NULL", "is_nullable", False),
        ("ALTER TABLE made ADD UNIQUE (word)", "is_unique", True),
        ("CREATE INDEX ON made (word)", "is_indexed", True),
        ("COMMENT ON COLUMN made.word IS 'w'", "comment", "w"),
        ("ALTER TABLE made ALTER word TYPE varchar(9)", "max_length", 9),
        ("ALTER DOMAIN phrase SET DEFAULT 'y'", "default_value", "y"),
    ],
)
def test_a_change_of_a_column_is_there(
    api: Client, dsn: str, change: str, path: str, value: object
) -> None:
    run(dsn, "CREATE DOMAIN phrase AS text; CREATE TABLE made (id serial PRIMARY KEY, word phrase)")
    assert api.get("/fields/made/word").data["schema"][path] != value
    run(dsn, change)
    assert api.get("/fields/made/word").data["schema"][path] == value


@pytest.mark.release
@pytest.mark.usefixtures("checking_always")
def test_a_process_that_reads_from_a_replica_finds_them_too(
    make_client: Callable[..., Client], dsn: str, admin_token: str
) -> None:
    api = make_client(database_read_url=dsn).bearing(admin_token)
    for number in range(2):  # before the first write it knows the replica only
        before = counter(dsn)
        assert api.get(f"/collections/made_{number}").status == 404
        run(dsn, f"CREATE TABLE made_{number} (id serial PRIMARY KEY)")
        assert api.get(f"/items/made_{number}").data == []
        assert api.post(f"/items/made_{number}", {}).data == {"id": 1}
        assert counter(dsn) == before + 1


def test_a_change_of_structure_begins_with_what_they_have_left(api: Client, dsn: str) -> None:
    assert api.get("/collections/made").status == 404
    run(dsn, "CREATE TABLE made (id serial PRIMARY KEY, word text)")
    assert api.post("/fields/made", {"field": "more", "type": "string"}).status == 200
    run(dsn, "ALTER TABLE made DROP COLUMN more")
    assert api.post("/fields/made", {"field": "more", "type": "string"}).status == 200


@pytest.mark.release
@pytest.mark.usefixtures("checking_always")
def test_what_changes_no_structure_moves_no_counter(api: Client, dsn: str) -> None:
    run(dsn, "CREATE TABLE made (id serial PRIMARY KEY, word text)")
    assert api.get("/collections/made").status == 200
    before = counter(dsn)
    for statement in (
        "INSERT INTO made (word) VALUES ('a')", "VACUUM FREEZE made", "ANALYZE made",
        "VACUUM FULL made",
        "TRUNCATE made", "REINDEX TABLE made", "GRANT SELECT ON made TO PUBLIC",
        "CREATE TEMPORARY TABLE other (a int)",
        "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.made (a int)",
        "SELECT system_make_partitions(5)",
    ):  # fmt: skip
        run(dsn, statement)
        assert api.get("/items/made").status == 200
        assert counter(dsn) == before, statement


@pytest.mark.usefixtures("checking_always")
def test_changes_that_the_service_makes_are_loaded_once(
    processes: tuple[Client, Client], dsn: str
) -> None:
    api, other = processes
    before = counter(dsn)
    assert other.post("/collections", {"collection": "made", "schema": {}}).status == 200
    assert api.post("/fields/made", {"field": "word", "type": "string"}).status == 200
    assert api.patch("/fields/made/word", {"schema": {"is_indexed": True}}).status == 200
    moved = counter(dsn)
    assert moved > before
    for client in (api, other, api, other):
        assert client.get("/fields/made/word").data["schema"]["is_indexed"]
        assert client.post("/items/made", {"word": "a"}).status == 200
    assert counter(dsn) == moved


@pytest.mark.usefixtures("checking_always")
def test_a_look_waits_for_nobody_who_changes_the_structure(api: Client, dsn: str) -> None:
    assert api.get("/collections/made").status == 404
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE system_version SET structure = structure + 1")
        run(dsn, "CREATE TABLE made (id serial PRIMARY KEY)")
        assert api.get("/collections").status == 200
        connection.rollback()
    assert api.get("/collections/made").status == 200


def test_nobody_looks_more_than_once_a_minute(
    api: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.get("/collections/made").status == 404
    run(dsn, "CREATE TABLE made (id serial PRIMARY KEY)")
    assert api.get("/collections/made").status == 404
    later = monotonic() + foreign_changes.CHECK_SECONDS
    monkeypatch.setattr(foreign_changes, "monotonic", lambda: later)
    monkeypatch.setattr(store, "monotonic", lambda: later)
    assert api.get("/collections/made").status == 200
    run(dsn, "DROP TABLE made")
    assert api.get("/collections/made").status == 200


@pytest.mark.release
@pytest.mark.usefixtures("checking_always")
def test_foreign_keys_of_tables_that_are_no_collections_are_seen(api: Client, dsn: str) -> None:
    run(
        dsn,
        "CREATE TABLE above (id integer PRIMARY KEY); CREATE TABLE goes (id integer PRIMARY KEY, "
        "up integer);"
        "CREATE TABLE parted (id integer PRIMARY KEY, up integer) PARTITION BY RANGE (id);"
        "CREATE TABLE parted_all PARTITION OF parted DEFAULT; CREATE SCHEMA elsewhere;"
        "CREATE TABLE elsewhere.middle (code integer UNIQUE, up integer)",
    )
    assert api.get("/collections/parted").status == 200
    for statement in (
        "ALTER TABLE parted_all ADD FOREIGN KEY (up) REFERENCES above ON DELETE CASCADE",
        "ALTER TABLE elsewhere.middle ADD FOREIGN KEY (up) REFERENCES above ON DELETE CASCADE",
        "ALTER TABLE goes ADD FOREIGN KEY (up) REFERENCES elsewhere.middle (code) ON DELETE "
        "CASCADE",
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (goes)",
        "ALTER TABLE heir NO INHERIT goes",
    ):
        before = counter(dsn)
        run(dsn, statement)
        assert api.get("/items/parted").status == 200
        assert counter(dsn) == before + 1, statement
    before = counter(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE one (id int PRIMARY KEY)")
        connection.execute("CREATE TEMPORARY TABLE two (up int REFERENCES one ON DELETE CASCADE)")
        assert api.get("/items/parted").status == 200
    assert counter(dsn) == before
