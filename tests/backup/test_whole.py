"""A backup holds everything, and a restoration brings everything back."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from cms.app import create_app
from cms.backup.error import BackupError
from cms.config import Config
from tests.backup.archives import Installation, members_of
from tests.backup.comparison import rows_of, structure_of
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.files.forms import FileService


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


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


def test_a_restored_service_works(
    service: Installation, empty: Installation, archive: Path, settings: Config
) -> None:
    service.back_up(archive)
    empty.restore(archive)
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
    service: Installation, archive: Path
) -> None:
    service.back_up(archive)
    members = members_of(archive)
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


def test_a_bootstrapped_installation_is_replaced_and_one_with_content_is_refused(
    service: Installation, empty: Installation, dsn: str, archive: Path, tmp_path: Path
) -> None:
    service.back_up(archive)
    bootstrapped = replace(empty, dsn=dsn)
    bootstrapped.restore(archive)
    assert rows_of(dsn)["topics"] == rows_of(service.dsn)["topics"]
    execute(dsn, "DELETE FROM topics; CREATE TABLE unknown (); CREATE VIEW mine AS SELECT 1")
    before = rows_of(dsn)
    with pytest.raises(BackupError, match=r"not empty: it has the table .* With --force"):
        bootstrapped.restore(archive)
    assert rows_of(dsn) == before
    bootstrapped.restore(archive, replaces=True)
    rows = rows_of(dsn)
    expected = rows_of(service.dsn)
    # The counters of freshness differ on purpose.
    assert rows.pop("system_version") != expected.pop("system_version")
    assert rows == expected
    assert structure_of(dsn) == structure_of(service.dsn)


def test_a_view_that_somebody_has_made_is_content_too(
    service: Installation, dsn: str, archive: Path
) -> None:
    service.back_up(archive)
    execute(dsn, "CREATE VIEW mine AS SELECT 1")
    with pytest.raises(BackupError, match="the view mine"):
        Installation(dsn, service.locations).restore(archive)


def test_running_processes_see_what_was_restored_under_them(
    files: FileService, service: Installation, dsn: str, archive: Path, settings: Config
) -> None:
    service.back_up(archive)
    config = replace(settings, database_url=dsn, locations=service.locations)
    client = Client(create_app(config))
    assert client.get("/items/topics").status == 403
    Installation(dsn, service.locations).restore(archive)
    login = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    admin = client.bearing(client.post("/auth/login", login).data["access_token"])
    assert admin.get("/items/topics?limit=1&sort=id").data[0]["title"] == "Topic 0\n"
    client.close()


def test_what_depends_on_the_tables_from_another_schema_is_not_removed(
    service: Installation, dsn: str, archive: Path
) -> None:
    service.back_up(archive)
    execute(dsn, "CREATE SCHEMA other; CREATE VIEW other.seen AS SELECT id FROM system_users")
    before = rows_of(dsn)
    with pytest.raises(BackupError, match=r"other\.seen"):
        Installation(dsn, service.locations).restore(archive)
    assert rows_of(dsn) == before
    assert value(dsn, "SELECT count(*) FROM other.seen") == 1


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

        def tell(self, sentence: str) -> None:
            return

    before = rows_of(service.dsn)
    try:
        service.back_up(archive, watcher=Meddling())
    finally:
        execute(service.dsn, "DELETE FROM days WHERE note = 'too late'")
        execute(service.dsn, r"UPDATE topics SET title = E'Topic 0\n' WHERE id = 1")
    empty.restore(archive)
    assert rows_of(empty.dsn) == before


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
