"""The rows of one collection come back into a service that goes on."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from cms.backup import BackupError, DamagedArchive
from cms.backup.archives import ArchiveFile
from cms.backup.collection_restoring import CollectionRestoration
from cms.database.row_merging import Merged
from tests.backup.archives import Installation, Notes
from tests.backup.comparison import execute, rows_of


def restore(service: Installation, archive: Path, collection: str) -> Merged:
    return CollectionRestoration(service.dsn, ArchiveFile(archive), Notes(), collection).run()


def titles(living: Installation) -> dict[int, str]:
    with psycopg.connect(living.dsn) as connection:
        return dict(connection.execute("SELECT id, title FROM topics").fetchall())


def test_rows_are_made_again_or_replaced_and_others_stay(
    living: Installation, archive: Path
) -> None:
    execute(living.dsn, "DELETE FROM topics WHERE id <= 5")
    execute(living.dsn, "UPDATE topics SET title = 'changed' WHERE id = 6")
    execute(living.dsn, "INSERT INTO topics (title) VALUES ('after the backup')")
    before = rows_of(living.dsn)
    assert restore(living, archive, "topics") == Merged(created=5, replaced=15)
    expected = {number: f"Topic {number - 1}\n" for number in range(1, 21)}
    assert titles(living) == {**expected, 21: "after the backup"}
    after = rows_of(living.dsn)
    assert {name for name in after if after[name] != before[name]} == {"topics"}


def test_later_items_get_keys_behind_the_restored_ones(living: Installation, archive: Path) -> None:
    execute(living.dsn, "TRUNCATE topics RESTART IDENTITY")
    assert restore(living, archive, "topics") == Merged(created=20, replaced=0)
    execute(living.dsn, "INSERT INTO topics (title) VALUES ('new')")
    assert titles(living)[21] == "new"


def test_rows_that_name_each_other_and_generated_values_come_back(
    living: Installation, archive: Path
) -> None:
    before = rows_of(living.dsn)["hard"]
    execute(living.dsn, "DROP TRIGGER shouts ON hard; DELETE FROM hard; SELECT 1")
    assert restore(living, archive, "hard") == Merged(created=3, replaced=0)
    assert rows_of(living.dsn)["hard"] == before


@pytest.mark.release
def test_what_rows_name_and_is_not_there_is_reported_and_nothing_changes(
    living: Installation, archive: Path
) -> None:
    execute(
        living.dsn,
        "ALTER TABLE topics ADD group_id integer;"
        "CREATE TABLE groups (id integer PRIMARY KEY); INSERT INTO groups VALUES (1), (2);"
        "UPDATE topics SET group_id = 1 + id % 2;"
        "ALTER TABLE topics ADD FOREIGN KEY (group_id) REFERENCES groups",
    )
    archive.unlink()
    living.back_up(archive)
    execute(living.dsn, "DELETE FROM topics; DELETE FROM groups WHERE id = 2")
    with pytest.raises(BackupError, match=r"group_id names 1 rows of groups .*\(2, …\)"):
        restore(living, archive, "topics")
    assert titles(living) == {}
    assert restore(living, archive, "groups") == Merged(created=1, replaced=1)
    assert restore(living, archive, "topics") == Merged(created=20, replaced=0)


@pytest.mark.release
def test_texts_name_those_of_another_collation_as_their_foreign_key_does(
    living: Installation, archive: Path
) -> None:
    execute(
        living.dsn,
        "CREATE COLLATION \"Of codes\" (locale = 'C');"
        'CREATE TABLE groups (name text COLLATE "Of codes" PRIMARY KEY);'
        "INSERT INTO groups VALUES ('a');"
        "ALTER TABLE topics ADD group_name text COLLATE \"C\" DEFAULT 'a';"
        "ALTER TABLE topics ADD FOREIGN KEY (group_name) REFERENCES groups",
    )
    archive.unlink()
    living.back_up(archive)
    execute(living.dsn, "DELETE FROM topics")
    assert restore(living, archive, "topics") == Merged(created=20, replaced=0)
    execute(living.dsn, "DELETE FROM topics; DELETE FROM groups")
    with pytest.raises(BackupError, match=r"group_name names 1 rows of groups .*\(a, …\)"):
        restore(living, archive, "topics")


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("change", "collection", "message"),
    [
        ("DROP TABLE topics", "topics", "no collection topics here any more"),
        ("ALTER TABLE topics DROP title", "topics", "lacks fields that the archive has: title"),
        ("SELECT 1", "system_users", "belongs to the service itself"),
        ("SELECT 1", "nothing", "no table nothing"),
        ("SELECT 1", "parents", "no primary key"),
    ],
)
def test_what_cannot_be_restored_is_refused(
    living: Installation, archive: Path, change: str, collection: str, message: str
) -> None:
    execute(living.dsn, change)
    before = rows_of(living.dsn)
    with pytest.raises(BackupError, match=message):
        restore(living, archive, collection)
    assert rows_of(living.dsn) == before


def test_a_damaged_archive_changes_no_row(living: Installation, archive: Path) -> None:
    execute(living.dsn, "DELETE FROM topics")
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(DamagedArchive):
        restore(living, archive, "topics")
    assert titles(living) == {}
