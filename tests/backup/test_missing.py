"""What a backup does not find is named, in the archive too, and does not end it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from cms.backup import BackupError
from cms.backup.writing import Backup
from cms.config.locations import Location
from cms.database.connections import standalone_transaction
from cms.files.contents import sweep
from cms.files.storage import Storage
from cms.files.stored_content import find_content
from tests.backup.archives import Installation, Notes, find_dump, members_of, rewrite
from tests.backup.comparison import execute, rows_of
from tests.databases import run_sql
from tests.files.forms import FileService


@pytest.fixture
def lost(files: FileService, service: Installation) -> Iterator[dict[str, str]]:
    """A file whose content somebody has removed from its folder."""
    row = files.add(b"soon gone", "gone.txt")
    (files.folder / "local" / row["filename_disk"]).unlink()
    yield row
    assert files.admin.delete(f"/files/{row['id']}").status == 204


def test_a_file_without_content_is_named_and_all_others_are_restored(
    service: Installation, empty: Installation, archive: Path, lost: dict[str, str]
) -> None:
    (sentence,) = service.back_up(archive).sentences
    assert lost["id"] in sentence
    assert "gone.txt" in sentence
    members = members_of(archive)
    entries = json.loads(members["lists/0000001.json"])
    assert [entry["id"] for entry in entries if entry.get("missing")] == [lost["id"]]
    assert json.loads(members["summary.json"])["missing"] == 1
    (sentence,) = empty.restore(archive).sentences
    assert lost["id"] in sentence
    assert rows_of(empty.dsn) == rows_of(service.dsn)
    assert empty.contents() == service.contents()
    assert len(empty.contents()) == 3


@pytest.mark.release
def test_contents_that_a_running_backup_needs_are_removed_after_it_only(
    files: FileService, service: Installation, archive: Path
) -> None:
    deleted = files.add(b"deleted", "deleted.txt")
    replaced = files.add(b"before", "replaced.txt")
    stray = files.folder / "local" / f"{uuid4()}.txt"
    stray.write_bytes(b"of a file that was deleted while an earlier backup ran")

    def sweep_all() -> tuple[str, ...]:
        with standalone_transaction(service.dsn) as transaction:
            return sweep(transaction, service.storages, age=timedelta(0)).removed

    class Changing(Notes):
        """Changes files between the rows and the contents."""

        def begin(self, stage: str, total: int | None) -> None:
            super().begin(stage, total)
            if stage == "files":
                assert files.admin.delete(f"/files/{deleted['id']}").status == 204
                path = f"/files/{replaced['id']}"
                answer = files.send("PATCH", path, ("file", b"after", "replaced.txt"))
                assert answer.status == 200
                assert sweep_all() == ()

    notes = Changing()
    service.back_up(archive, watcher=notes)
    assert notes.sentences == []
    members = members_of(archive)
    assert members[f"files/{deleted['id']}"] == b"deleted"
    assert members[f"files/{replaced['id']}"] == b"before"
    assert len(sweep_all()) == 3
    assert files.admin.delete(f"/files/{replaced['id']}").status == 204
    assert sweep_all() == ()


@pytest.mark.release
def test_a_file_that_is_deleted_just_before_it_is_read_is_whole(
    files: FileService, service: Installation
) -> None:
    content = bytes(range(256)) * 2_000
    row = files.add(b"", "large.bin")
    # Larger than uploads of the tests may be: small ones are read at once.
    (files.folder / "local" / row["filename_disk"]).write_bytes(content)
    backup = Backup(service.dsn, service.storages, find_program=find_dump, watcher=Notes())
    for member in backup.members():
        if member.name == f"files/{row['id']}":
            assert files.admin.delete(f"/files/{row['id']}").status == 204
            assert b"".join(member.pieces) == content
        else:
            for _piece in member.pieces:
                continue
    assert backup.missing == 0


@pytest.mark.release
def test_an_extension_that_the_server_lacks_is_named(
    service: Installation, empty: Installation, archived: Path
) -> None:
    rewrite(archived, {b'"extensions": {': b'"extensions": {"no_such_extension": "public",'})
    (sentence,) = empty.restore(archived).sentences
    assert "no_such_extension" in sentence
    assert rows_of(empty.dsn) == rows_of(service.dsn)


@pytest.mark.release
@pytest.mark.parametrize("path", ["", ".", "/etc/hostname", "a//b", "../a", "a/"])
def test_a_file_with_a_path_that_no_content_can_have_is_named(
    living: Installation, service: Installation, archive: Path, path: str
) -> None:
    """Another program may have written it."""
    files = "UPDATE system_files SET filename_disk = '{}' WHERE filename_download = 'empty.txt'"
    execute(living.dsn, files.format(path))
    archive.unlink()
    (sentence,) = living.back_up(archive).sentences
    assert "empty.txt" in sentence
    in_bucket = Storage(Location("s3", "s3", bucket="b", endpoint="http://127.0.0.1:1"))
    with pytest.raises(FileNotFoundError):
        find_content(in_bucket, path)


@pytest.mark.release
def test_a_location_that_is_not_set_up_is_named_before_anything_is_read(
    living: Installation, archive: Path
) -> None:
    execute(living.dsn, "UPDATE system_files SET storage = 'former' WHERE filesize = 0")
    archive.unlink()
    notes = Notes()
    with pytest.raises(BackupError, match="not set up here: former"):
        living.back_up(archive, watcher=notes)
    assert notes.stages == {}
    assert not archive.exists()


@pytest.mark.release
def test_a_content_that_cannot_be_read_is_named_and_ends_the_backup(
    living: Installation, archive: Path, tmp_path: Path
) -> None:
    """It is not lost, and the next backup may have it."""
    ((path,),) = run_sql(living.dsn, "SELECT filename_disk FROM system_files WHERE filesize = 0")
    (tmp_path / "broken" / path).mkdir(parents=True)
    local, other = living.locations
    broken = replace(living, locations=(replace(local, root=str(tmp_path / "broken")), other))
    archive.unlink()
    with pytest.raises(BackupError, match=rf"empty\.txt\) cannot be read: local/{path}"):
        broken.back_up(archive)
    assert not archive.exists()
