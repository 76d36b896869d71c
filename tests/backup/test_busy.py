"""Backups and restorations while others use the tables, and wait for them in any order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from cms.backup.archive_format import packed
from cms.backup.archives import ArchiveFile
from cms.backup.collection_restoring import CollectionRestoration
from cms.backup.writing import Backup, is_locked
from cms.database.bulk import TableInSchema, bulk_transaction
from cms.database.row_merging import Merged
from tests.backup.archives import Installation, Notes, find_dump, members_of
from tests.backup.comparison import execute, rows_of
from tests.waiting import eventually

pytestmark = pytest.mark.release

TIMEOUT_SECONDS = 60

# In another order than that of the alphabet.
WRITES = (
    "INSERT INTO topics (title) VALUES ('busy')",
    "INSERT INTO no_rows (title) VALUES ('busy')",
    "UPDATE hard SET words = words WHERE id = 1",
    "SELECT words FROM loud",
)


@contextmanager
def busy(dsn: str, statements: tuple[str, ...]) -> Iterator[list[psycopg.Error]]:
    """Run these in transactions, again and again; yields the errors of those that were ended."""
    ends = threading.Event()
    errors: list[psycopg.Error] = []

    def use() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not ends.is_set():
                try:
                    with connection.transaction():
                        for statement in statements:
                            connection.execute(statement.encode())
                except psycopg.Error as error:
                    errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def test_a_busy_service_is_replaced(living: Installation, archive: Path) -> None:
    with busy(living.dsn, WRITES) as errors:
        for _ in range(3):
            living.restore(archive, replaces=True)
    # Which the service repeats.
    assert {type(error) for error in errors} <= {psycopg.errors.DeadlockDetected}
    titles = [row for row in rows_of(living.dsn)["topics"] if "Topic" in row]
    assert len(titles) == 20


def test_rows_of_one_collection_come_back_between_writes_in_another_order(
    living: Installation, archive: Path
) -> None:
    writes = (
        "UPDATE topics SET title = 'busy' WHERE id = 20",
        "UPDATE topics SET title = 'busy' WHERE id = 1",
    )
    with busy(living.dsn, writes) as errors:
        for _ in range(5):
            restoration = CollectionRestoration(living.dsn, ArchiveFile(archive), Notes(), "topics")
            assert restoration.run() == Merged(created=0, replaced=20)
    assert {type(error) for error in errors} <= {psycopg.errors.DeadlockDetected}


@pytest.mark.parametrize("change", ["ALTER TABLE topics ADD late integer", "DROP TABLE no_rows"])
def test_a_change_of_structure_that_waits_for_a_backup_does_not_stop_it_for_ever(
    living: Installation, archive: Path, change: str
) -> None:
    """It comes between the locks of the backup and those of pg_dump, which wait for it."""
    changing: list[threading.Thread] = []

    def find_dump_late(major: int) -> Path:
        if not changing:
            changing.append(threading.Thread(target=execute, args=(living.dsn, change)))
            changing[0].start()
            await_waiting(living.dsn)
        return find_dump(major)

    archive.unlink()
    backup = Backup(living.dsn, living.storages, find_program=find_dump_late, watcher=Notes())
    ArchiveFile(archive).write(packed(backup.members()))
    changing[0].join()
    # The change came first in the end, and the structure is that of the moment of the rows.
    members = members_of(archive)
    structure = members["structure/before.sql"]
    if "late" in change:
        assert b"late integer" in structure
        assert b'"late"' in members["backup.json"]
    else:
        assert b"TABLE public.no_rows " not in structure
        assert b'"no_rows"' not in members["backup.json"]


def test_a_deadlock_between_a_backup_and_a_change_of_structure_is_a_reason_to_begin_anew(
    living: Installation,
) -> None:
    has_locked = threading.Event()

    def change() -> None:
        with psycopg.connect(living.dsn) as connection:
            # Only the backup looks for cycles.
            connection.execute("SET deadlock_timeout = '1h'")
            connection.execute("LOCK TABLE topics")
            has_locked.set()
            await_waiting(living.dsn)
            connection.execute("LOCK TABLE hard")

    thread = threading.Thread(target=change)
    thread.start()
    has_locked.wait(TIMEOUT_SECONDS)
    with bulk_transaction(living.dsn, reads_only=True) as transaction:
        names = [TableInSchema("public", name) for name in ("hard", "topics")]
        assert not is_locked(transaction, names)
    thread.join()


def await_waiting(dsn: str) -> None:
    """Wait until somebody waits for the lock of a table of this database."""
    query = """
        SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE NOT granted AND datname = current_database()
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        eventually(lambda: connection.execute(query).rowcount)
