"""A database is brought to the newest tables once, whole, and by whoever comes first."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cms.database.migrate import MigrationError, check_server, migrate, missing_migrations, pending
from cms.database.statements import sql_folder

OWN_MIGRATIONS = sorted(path.stem for path in (sql_folder() / "migrations").glob("*.sql"))
QUEUE_MIGRATIONS = [migration.name for migration in missing_migrations(())]
EVERYTHING = [*OWN_MIGRATIONS, *QUEUE_MIGRATIONS]

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files of migrations, each under a line with its reason, and return their folder."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            (tmp_path / f"{name}.sql").write_text(f"-- For a test.\n{text}\n", encoding="utf-8")
        return tmp_path

    return write


def numbered(**files: str) -> dict[str, str]:
    """`one` becomes `0001_one` and so on: a Python name does not start with a digit."""
    return {
        f"{number:04}_{name}": text for number, (name, text) in enumerate(files.items(), start=1)
    }


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def tables(dsn: str, schema: str = "public") -> set[str]:
    names = rows(dsn, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    return {name for (name,) in names}


def test_a_fresh_database_gets_every_migration_and_remembers_them(empty_dsn: str) -> None:
    assert migrate(empty_dsn) == EVERYTHING
    assert "system_users" in tables(empty_dsn)
    remembered = rows(
        empty_dsn, "SELECT number, name, sha256 FROM system_migrations ORDER BY number"
    )
    assert remembered == [
        (
            number,
            name,
            hashlib.sha256((sql_folder() / "migrations" / f"{name}.sql").read_bytes()).hexdigest(),
        )
        for number, name in enumerate(OWN_MIGRATIONS, start=1)
    ]


def test_pending_names_what_is_missing_and_changes_nothing(empty_dsn: str) -> None:
    assert pending(empty_dsn) == EVERYTHING
    assert tables(empty_dsn) == set()
    migrate(empty_dsn)
    assert pending(empty_dsn) == []


def test_a_second_run_applies_nothing(empty_dsn: str) -> None:
    migrate(empty_dsn)
    assert migrate(empty_dsn) == []


def test_a_migration_that_came_later_is_applied_alone(empty_dsn: str, write: Write) -> None:
    migrate(empty_dsn, folder=write(**numbered(one="CREATE TABLE one ()")))
    folder = write(**numbered(one="CREATE TABLE one ()", two="CREATE TABLE two ()"))
    assert pending(empty_dsn, folder=folder) == ["0002_two"]
    assert migrate(empty_dsn, folder=folder) == ["0002_two"]
    assert tables(empty_dsn) == {"system_migrations", "one", "two"}


def test_a_migration_that_fails_leaves_nothing_of_itself_and_all_before_it(
    empty_dsn: str, write: Write
) -> None:
    folder = write(**numbered(one="CREATE TABLE one ()", two="CREATE TABLE two (); SELECT 1 / 0"))
    with pytest.raises(MigrationError, match="0002_two failed: division by zero"):
        migrate(empty_dsn, folder=folder)
    assert tables(empty_dsn) == {"system_migrations", "one"}
    assert pending(empty_dsn, folder=folder) == ["0002_two"]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_of_many_that_migrate_at_once_each_file_is_applied_by_one(
    empty_dsn: str, write: Write, isolation: str
) -> None:
    slow = {
        f"t{number}": f"SELECT pg_sleep(0.05); CREATE TABLE t{number} ()" for number in range(4)
    }
    folder = write(**numbered(**slow))
    escaped = isolation.replace(" ", r"\ ")
    dsn = make_conninfo(empty_dsn, options=f"-c default_transaction_isolation={escaped}")
    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(lambda _: migrate(dsn, folder=folder), range(4)))
    assert sorted(chain.from_iterable(runs)) == sorted(numbered(**slow))
    assert pending(empty_dsn, folder=folder) == []


def test_a_database_that_holds_tables_of_others_keeps_them(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("CREATE TABLE articles AS SELECT 7 AS id")
    migrate(empty_dsn)
    assert rows(empty_dsn, "SELECT id FROM articles") == [(7,)]


def test_the_tables_land_in_the_schema_that_is_current(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("CREATE SCHEMA cms")
    dsn_of_schema = make_conninfo(empty_dsn, options="-c search_path=cms,public")
    assert migrate(dsn_of_schema) == EVERYTHING
    assert tables(empty_dsn) == set()
    assert {"system_users", "system_activity_default", "system_migrations"} <= tables(
        empty_dsn, "cms"
    )


@pytest.mark.release
def test_two_schemas_of_one_database_are_migrated_apart(empty_dsn: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("CREATE SCHEMA cms")
    dsn_of_schema = make_conninfo(empty_dsn, options="-c search_path=cms,public")
    assert pending(dsn_of_schema) == EVERYTHING
    assert migrate(dsn_of_schema) == EVERYTHING
    assert tables(empty_dsn) == tables(empty_dsn, "cms")


def test_percent_signs_and_dollars_in_a_migration_are_plain_text(
    empty_dsn: str, write: Write
) -> None:
    migrate(
        empty_dsn, folder=write(**numbered(one="CREATE TABLE one AS SELECT '50% %s $1' AS text"))
    )
    assert rows(empty_dsn, "SELECT text FROM one") == [("50% %s $1",)]


def test_a_time_limit_on_statements_does_not_stop_a_long_migration(
    empty_dsn: str, write: Write
) -> None:
    dsn = make_conninfo(empty_dsn, options="-c statement_timeout=200")
    folder = write(**numbered(one="SELECT pg_sleep(0.4)"))
    assert migrate(dsn, folder=folder) == ["0001_one"]


# What is refused


def test_an_old_migration_that_was_changed_is_refused(empty_dsn: str, write: Write) -> None:
    migrate(empty_dsn, folder=write(**numbered(one="SELECT 1")))
    folder = write(**numbered(one="SELECT 2", two="CREATE TABLE two ()"))
    for run in (pending, migrate):
        with pytest.raises(MigrationError, match="0001_one was changed after it had been applied"):
            run(empty_dsn, folder=folder)
    assert tables(empty_dsn) == {"system_migrations"}


def test_an_old_migration_that_was_renamed_is_refused(empty_dsn: str, write: Write) -> None:
    folder = write(**numbered(one="SELECT 1", two="SELECT 2"))
    migrate(empty_dsn, folder=folder)
    (folder / "0001_one.sql").rename(folder / "0001_uno.sql")
    with pytest.raises(MigrationError, match="made with migration 0001_one, but 0001_uno is here"):
        migrate(empty_dsn, folder=folder)


def test_an_old_migration_that_is_missing_is_refused(empty_dsn: str, write: Write) -> None:
    folder = write(**numbered(one="SELECT 1", two="SELECT 2"))
    migrate(empty_dsn, folder=folder)
    (folder / "0001_one.sql").unlink()
    with pytest.raises(MigrationError, match=r"0002_two\.sql stands where migration 0001"):
        migrate(empty_dsn, folder=folder)


def test_a_migration_that_was_left_out_is_not_made_up_for(empty_dsn: str, write: Write) -> None:
    folder = write(**numbered(one="SELECT 1", two="SELECT 2", three="SELECT 3"))
    migrate(empty_dsn, folder=folder)
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("DELETE FROM system_migrations WHERE number = 2")
    with pytest.raises(
        MigrationError, match="made with migration 0003_three, but 0002_two is here"
    ):
        migrate(empty_dsn, folder=folder)


def test_a_database_that_a_newer_version_migrated_is_refused(empty_dsn: str, write: Write) -> None:
    folder = write(**numbered(one="SELECT 1", two="SELECT 2"))
    migrate(empty_dsn, folder=folder)
    (folder / "0002_two.sql").unlink()
    with pytest.raises(MigrationError, match=r"migrated by a newer version \(0002_two\)"):
        migrate(empty_dsn, folder=folder)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("1_one", "-- Why.\n", "1_one.sql is not named like a migration"),
        ("0001_One", "-- Why.\n", "0001_One.sql is not named like a migration"),
        ("0001_one", "SELECT 1;\n", "first line of 0001_one.sql must be a comment"),
        ("0002_two", "-- Why.\n", "0002_two.sql stands where migration 0001 should be"),
    ],
)
def test_a_file_that_is_no_migration_is_refused_before_anything_is_done(
    empty_dsn: str, tmp_path: Path, name: str, text: str, fault: str
) -> None:
    (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    with pytest.raises(MigrationError, match=fault):
        migrate(empty_dsn, folder=tmp_path)
    assert tables(empty_dsn) == set()


def test_an_installation_without_migrations_is_refused(empty_dsn: str, tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="no migrations"):
        migrate(empty_dsn, folder=tmp_path)


def test_a_server_that_is_too_old_is_refused_and_reported() -> None:
    check_server(140000)
    with pytest.raises(MigrationError, match="PostgreSQL 14 or newer is needed; this server is 13"):
        check_server(130022)


def test_a_database_that_is_not_there_is_reported_as_such(empty_dsn: str) -> None:
    with pytest.raises(MigrationError, match="cannot be reached"):
        migrate(make_conninfo(empty_dsn, dbname="no_such_database"))


def test_an_address_that_is_not_well_formed_does_not_show_its_password() -> None:
    with pytest.raises(MigrationError, match="not well-formed") as refusal:
        migrate("postgresql:/cms:s3cret@host/cms")
    assert "s3cret" not in str(refusal.value)


# The queue


@pytest.mark.release
def test_what_a_newer_version_of_the_queue_added_is_applied_later(empty_dsn: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("DROP FUNCTION procrastinate_fetch_job_v2")
        connection.execute("DELETE FROM system_queue WHERE name LIKE '03.03.00_01%'")
    added = ["procrastinate 03.03.00_01_pre_priority_lock_fetch_job"]
    assert pending(empty_dsn) == added
    assert migrate(empty_dsn) == added
    assert rows(
        empty_dsn, "SELECT count(*) FROM pg_proc WHERE proname = 'procrastinate_fetch_job_v2'"
    ) == [(1,)]
    assert migrate(empty_dsn) == []


@pytest.mark.release
def test_what_the_service_changes_in_the_queue_is_changed_again_after_a_newer_version(
    empty_dsn: str,
) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        # As if all of that had been done before the last migration of the package.
        connection.execute(
            "UPDATE system_queue "
            "SET name = '03.00.00_01_pre_cancel_notification ' || split_part(name, ' ', 2) "
            "WHERE name LIKE '% %'"
        )
        last = connection.execute(
            "SELECT max(name) FROM system_queue WHERE name NOT LIKE '% %'"
        ).fetchone()
    assert last
    assert migrate(empty_dsn) == QUEUE_MIGRATIONS[1:]
    assert QUEUE_MIGRATIONS[1:] == [
        f"procrastinate {last[0]} flows_without_notifications",
        f"procrastinate {last[0]} notifications_of_one_schema",
        f"procrastinate {last[0]} plans_for_full_queues",
    ]
    assert migrate(empty_dsn) == []


def test_a_queue_of_a_newer_version_is_refused(empty_dsn: str) -> None:
    migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("INSERT INTO system_queue (name) VALUES ('99.00.00_01_pre_words')")
    with pytest.raises(
        MigrationError, match=r"newer version of procrastinate \(99\.00\.00_01_pre_words\)"
    ):
        migrate(empty_dsn)


def test_the_queue_of_another_program_is_left_alone(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        connection.execute("CREATE TABLE procrastinate_jobs AS SELECT 7 AS id")
    with pytest.raises(MigrationError, match=r"holds the queue .* of another program"):
        migrate(empty_dsn)
    assert rows(empty_dsn, "SELECT id FROM procrastinate_jobs") == [(7,)]


# Extensions


@pytest.fixture
def owner(empty_dsn: str) -> Iterator[str]:
    """A role that may make tables and nothing else."""
    role = sql.Identifier(name := f"owner_{uuid.uuid4().hex}")
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(role))
        connection.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(role))
        yield name
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.mark.release
def test_an_owner_who_may_not_create_extensions_is_warned_and_served(
    empty_dsn: str, owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    available = rows(
        empty_dsn, "SELECT name FROM pg_available_extensions WHERE name IN ('pg_trgm', 'unaccent')"
    )
    assert migrate(make_conninfo(empty_dsn, options=f"-c role={owner}")) == EVERYTHING
    migrating = [record for record in caplog.records if record.name == "cms.database.migrate"]
    warnings = [record.message for record in migrating if record.levelname == "WARNING"]
    assert len(warnings) == len(available)
    assert all("was not created: permission denied" in warning for warning in warnings)


def test_the_extensions_for_search_are_created_where_they_are_available(empty_dsn: str) -> None:
    migrate(empty_dsn)
    missing = rows(
        empty_dsn,
        """
        SELECT name
          FROM pg_available_extensions
         WHERE name IN ('pg_trgm', 'unaccent')
           AND installed_version IS NULL
        """,
    )
    assert missing == []
