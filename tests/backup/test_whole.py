"""A backup holds everything, and a restoration brings everything back."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.app import create_app
from cms.backup import BackupError
from cms.config import Config
from cms.database.bulk import BulkError
from tests.backup.archives import Installation, members_of
from tests.backup.comparison import execute, rows_of, structure_of
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.files.forms import FileService


def value(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row and row[0]


def test_an_empty_installation_gets_every_table_row_by_row_and_every_file_byte_by_byte(
    service: Installation, empty: Installation, archive: Path
) -> None:
    assert service.back_up(archive).sentences == []
    assert empty.restore(archive).sentences == []
    assert structure_of(empty.dsn) == structure_of(service.dsn)
    rows = rows_of(service.dsn)
    assert len(rows["hard"]) == 3
    assert len(rows["system_files"]) == 3
    assert rows_of(empty.dsn) == rows
    assert len(service.contents()) == 3
    assert empty.contents() == service.contents()


def test_a_restored_service_works(empty: Installation, archived: Path, settings: Config) -> None:
    empty.restore(archived)
    config = replace(settings, database_url=empty.dsn, locations=empty.locations)
    client = Client(create_app(config))
    login = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    token = client.post("/auth/login", login).data["access_token"]
    admin = client.bearing(token)
    assert admin.get("/items/topics?limit=1&sort=id").data[0]["title"] == "Topic 0\n"
    # The sequence goes on behind the restored rows.
    assert admin.post("/items/topics", {"title": "new"}).data["id"] == 21
    (file,) = admin.get("/files?filter[filename_download][_starts_with]=gr").data
    assert admin.get(f"/assets/{file['id']}").text == "Grüße"
    client.close()


def test_the_archive_is_a_tar_file_that_other_programs_read(
    service: Installation, archived: Path
) -> None:
    members = members_of(archived)
    head = json.loads(members["backup.json"])
    assert (head["format"], head["schema"]) == (1, "public")
    names = [table["name"] for table in head["tables"]]
    number = names.index("topics") + 1
    assert members[f"tables/{number:05}/0000001"].startswith(b"1\tTopic 0\\n\n2\t")
    for path, content in service.contents().items():
        assert members[f"files/{Path(path).stem}"] == content


def test_only_its_owner_may_read_an_archive_and_nothing_is_overwritten(
    service: Installation, archive: Path
) -> None:
    service.back_up(archive)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    content = archive.read_bytes()
    with pytest.raises(BackupError, match="is there already"):
        service.back_up(archive)
    assert archive.read_bytes() == content
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.release
def test_a_bootstrapped_installation_is_replaced_and_one_with_content_is_refused(
    service: Installation, empty: Installation, dsn: str, archived: Path, tmp_path: Path
) -> None:
    bootstrapped = replace(empty, dsn=dsn)
    bootstrapped.restore(archived)
    assert rows_of(dsn)["topics"] == rows_of(service.dsn)["topics"]
    execute(dsn, "DELETE FROM topics; CREATE TABLE unknown (); CREATE VIEW mine AS SELECT 1")
    before = rows_of(dsn)
    with pytest.raises(BackupError, match=r"not empty: it has the table .* With --force"):
        bootstrapped.restore(archived)
    assert rows_of(dsn) == before
    bootstrapped.restore(archived, replaces=True)
    rows = rows_of(dsn)
    expected = rows_of(service.dsn)
    # The counters of freshness differ on purpose.
    assert rows.pop("system_version") != expected.pop("system_version")
    assert rows == expected
    assert structure_of(dsn) == structure_of(service.dsn)


@pytest.mark.release
def test_running_processes_see_what_was_restored_under_them(
    files: FileService, service: Installation, dsn: str, archived: Path, settings: Config
) -> None:
    config = replace(settings, database_url=dsn, locations=service.locations)
    client = Client(create_app(config))
    assert client.get("/items/topics").status == 403
    Installation(dsn, service.locations).restore(archived)
    login = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    admin = client.bearing(client.post("/auth/login", login).data["access_token"])
    assert admin.get("/items/topics?limit=1&sort=id").data[0]["title"] == "Topic 0\n"
    client.close()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE VIEW other.seen AS SELECT id FROM system_users", "other.seen"),
        ("CREATE TABLE other.t (id uuid REFERENCES system_users)", "t_id_fkey of other.t"),
        ("CREATE TABLE other.t (mood public.mood)", "the column mood of other.t"),
        ("CREATE TABLE other.t (number integer DEFAULT public.one())", "the default of number"),
        (
            "CREATE TABLE other.t (); CREATE TRIGGER shouts BEFORE INSERT ON other.t"
            " FOR EACH ROW EXECUTE FUNCTION public.shout()",
            "the trigger shouts of other.t",
        ),
        (
            "CREATE TABLE other.t ();"
            "CREATE POLICY own ON other.t USING (EXISTS (SELECT FROM topics))",
            "the policy own of other.t",
        ),
        (
            "CREATE FUNCTION other.f() RETURNS bigint"
            " BEGIN ATOMIC SELECT count(*) FROM topics; END",
            "the function other.f",
        ),
        ("CREATE PUBLICATION published FOR TABLE topics", "the publication published of topics"),
    ],
)
def test_what_depends_on_the_tables_from_outside_is_not_removed(
    living: Installation, archived: Path, statement: str, named: str
) -> None:
    one = "CREATE FUNCTION one() RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    execute(living.dsn, f"{one}; CREATE SCHEMA other; {statement}")
    before = rows_of(living.dsn)
    with pytest.raises(BackupError, match=f"depend on what would be replaced: .*{named}"):
        living.restore(archived, replaces=True)
    assert rows_of(living.dsn) == before


OWN_OBJECTS = """
    CREATE COLLATION plain FROM "C";
    CREATE TEXT SEARCH DICTIONARY words (template = simple);
    CREATE TEXT SEARCH CONFIGURATION search (copy = simple);
    CREATE FUNCTION plus(integer, integer) RETURNS integer
        LANGUAGE sql IMMUTABLE AS 'SELECT $1 + $2';
    CREATE OPERATOR <+> (leftarg = integer, rightarg = integer, function = plus);
    CREATE OPERATOR FAMILY relatives USING btree;
    CREATE AGGREGATE total(integer) (sfunc = plus, stype = integer, initcond = '0');
    CREATE TYPE pair AS (a integer, b text);
    CREATE TYPE span AS RANGE (subtype = float8);
    CREATE PROCEDURE nothing() LANGUAGE sql AS 'SELECT 1';
    CREATE UNLOGGED TABLE own (name text COLLATE plain PRIMARY KEY, pair pair, span span);
    CREATE STATISTICS related ON name, pair FROM own;
    CREATE RULE kept AS ON DELETE TO own DO INSTEAD NOTHING;
    ALTER TABLE own ENABLE ROW LEVEL SECURITY;
    CREATE POLICY all_rows ON own USING (true);
    CREATE TABLE parted (number integer) PARTITION BY LIST (number);
    INSERT INTO own VALUES ('a', '(1, b)', '[1.5,2)');
"""


@pytest.mark.release
def test_all_kinds_of_objects_of_others_are_replaced(
    service: Installation, empty: Installation, archive: Path
) -> None:
    service.back_up(archive)
    empty.restore(archive)
    execute(empty.dsn, OWN_OBJECTS)
    archive.unlink()
    empty.back_up(archive)
    before = structure_of(empty.dsn)
    rows = rows_of(empty.dsn)
    empty.restore(archive, replaces=True)
    after = structure_of(empty.dsn)
    # There the collation is a number.
    assert len(after.pop("columns")) == len(before.pop("columns"))
    assert after == before
    assert rows_of(empty.dsn)["own"] == rows["own"]
    assert value(empty.dsn, "SELECT 2 <+> 3") == 5
    assert value(empty.dsn, "SELECT to_tsvector('search', 'found')::text") == "'found':1"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE VIEW mine AS SELECT 1", "the view mine"),
        ("CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'", "the function mine"),
        ("CREATE TYPE mine AS ENUM ('a')", "the type mine"),
        ("CREATE SEQUENCE mine", "the sequence mine"),
        ("CREATE TABLE mine (a integer) PARTITION BY LIST (a)", "the table mine"),
    ],
)
def test_what_somebody_has_made_beside_tables_is_content_too(
    service: Installation, dsn: str, archived: Path, statement: str, named: str
) -> None:
    execute(dsn, statement)
    with pytest.raises(BackupError, match=named):
        Installation(dsn, service.locations).restore(archived)


@pytest.mark.release
def test_a_user_of_the_database_without_rights_on_it_may_restore(
    service: Installation, empty: Installation, archive: Path
) -> None:
    """An administrator has made the extensions; the service has a schema, and nothing else."""
    service.back_up(archive)
    execute(empty.dsn, "CREATE ROLE ordinary LOGIN")
    try:
        for name in json.loads(members_of(archive)["backup.json"])["extensions"]:
            execute(empty.dsn, f"CREATE EXTENSION {name}")
        execute(empty.dsn, "ALTER SCHEMA public OWNER TO ordinary")
        dsn = make_conninfo(empty.dsn, user="ordinary")
        replace(empty, dsn=dsn).restore(archive)
        assert rows_of(dsn) == rows_of(service.dsn)
        replace(empty, dsn=dsn).restore(archive, replaces=True)
        archive.unlink()
        replace(empty, dsn=dsn).back_up(archive)
    finally:
        execute(empty.dsn, "REASSIGN OWNED BY ordinary TO postgres; DROP ROLE ordinary")


def test_a_table_that_the_service_may_not_read_is_named(
    living: Installation, archive: Path
) -> None:
    """It belongs to somebody else, and a backup without it would not be whole."""
    archive.unlink()
    execute(living.dsn, "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA public TO reader")
    try:
        execute(living.dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        execute(living.dsn, "REVOKE SELECT ON topics FROM reader")
        with pytest.raises(BulkError, match="permission denied for table topics"):
            replace(living, dsn=make_conninfo(living.dsn, user="reader")).back_up(archive)
        assert not archive.exists()
    finally:
        execute(living.dsn, "DROP OWNED BY reader; DROP ROLE reader")


@pytest.mark.release
def test_a_backup_sees_one_moment(
    files: FileService, service: Installation, empty: Installation, archive: Path
) -> None:
    """Rows that come while the tables are copied are in none of them."""

    class Meddling:
        """Writes into two tables as soon as the first rows are copied."""

        done = False

        def begin(self, stage: str, total: int | None) -> None:
            return

        def advance(self, count: int) -> None:
            if not self.done:
                self.done = True
                execute(service.dsn, "INSERT INTO days VALUES ('2026-06-06', 'too late')")
                execute(service.dsn, "UPDATE topics SET title = 'too late' WHERE id = 1")

        def report(self, sentence: str) -> None:
            return

    before = rows_of(service.dsn)
    try:
        service.back_up(archive, watcher=Meddling())
    finally:
        execute(service.dsn, "DELETE FROM days WHERE note = 'too late'")
        execute(service.dsn, r"UPDATE topics SET title = E'Topic 0\n' WHERE id = 1")
    empty.restore(archive)
    assert rows_of(empty.dsn) == before


@pytest.mark.release
def test_a_newer_archive_and_an_unknown_location_are_refused_before_anything_is_read(
    service: Installation, empty: Installation, archive: Path
) -> None:
    execute(service.dsn, "INSERT INTO system_migrations VALUES (99, '0099_later', 'x')")
    try:
        service.back_up(archive)
    finally:
        execute(service.dsn, "DELETE FROM system_migrations WHERE number = 99")
    with pytest.raises(BackupError, match="0099_later"):
        empty.restore(archive)
    archive.unlink()
    service.back_up(archive)
    with pytest.raises(BackupError, match="not set up here: other"):
        replace(empty, locations=empty.locations[:1]).restore(archive)
    assert rows_of(empty.dsn) == {}
