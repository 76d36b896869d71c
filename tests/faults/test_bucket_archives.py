"""Archives and files in a bucket that fails in the middle of a backup or a restoration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from cms.backup import BackupError
from cms.backup.archive_format import packed
from cms.backup.archives import Archive, archive_at
from cms.backup.restoring import Restoration
from cms.backup.writing import Backup
from cms.config import Config
from cms.config.locations import Location
from cms.errors import Refused
from cms.files.storage import Storage
from tests.backup.archives import Installation, Notes, find_dump
from tests.backup.comparison import rows_of
from tests.databases import drop_database
from tests.faults.faulty_bucket import DENIED, HALF, INTERNAL, FaultyBucket, faulty_bucket
from tests.files.forms import file_service

pytestmark = pytest.mark.slow

BIG = os.urandom(2_000_000)
ARCHIVE = "s3://files/backups/service.tar.gz"


@dataclass(frozen=True)
class Backed:
    """A service with its files in a bucket, in which its archive is as well."""

    bucket: FaultyBucket
    installation: Installation
    archive: Archive
    stored: Storage
    """The bucket past all faults."""

    def back_up(self) -> None:
        backup = Backup(
            self.installation.dsn,
            self.installation.storages,
            find_program=find_dump,
            watcher=Notes(),
        )
        self.archive.write(packed(backup.members()))

    def paths(self, folder: str = "") -> set[str]:
        return {content.path for content in self.stored.list(folder)}


def location_of(address: str, folder: str) -> Location:
    return Location(
        "s3", "s3", bucket="files", endpoint=address, key="k", secret="hunter2", root=folder
    )


@pytest.fixture(scope="module")
def backed(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[Backed]:
    with faulty_bucket() as bucket:
        location = location_of(bucket.address, "first")
        changes = {"locations": (location,), "files_max_upload_size": 2 * len(BIG)}
        folder = tmp_path_factory.mktemp("files")
        with file_service(settings, folder, make_database, template, **changes) as files:
            for number in range(3):
                files.add(BIG, f"{number}.bin")
            archive = archive_at(ARCHIVE, replace(settings, locations=(location,)))
            stored = Storage(location_of(bucket.server, ""))
            yield Backed(bucket, Installation(files.stage.dsn, (location,)), archive, stored)


@pytest.fixture
def archived(backed: Backed) -> Iterator[Backed]:
    backed.back_up()
    yield backed
    backed.stored.delete(["backups/service.tar.gz"])


@pytest.fixture
def target(backed: Backed, make_database: Callable[..., str]) -> Iterator[Installation]:
    """An empty database whose files go to another folder of the bucket."""
    dsn = make_database()
    yield Installation(dsn, (location_of(backed.bucket.address, "second"),))
    drop_database(dsn)


def restore(backed: Backed, target: Installation) -> None:
    Restoration(target.dsn, target.storages, archive=backed.archive, watcher=Notes()).run(
        replaces=False
    )


@pytest.mark.parametrize(
    ("kind", "method", "words"),
    [
        (HALF, "GET", "first/"),
        (DENIED, "GET", "first/"),
        (INTERNAL, "HEAD", "first/"),
        (INTERNAL, "PUT", "backups/"),
        (DENIED, "POST", "backups/"),
    ],
)
def test_a_backup_that_the_bucket_interrupts_leaves_no_archive(
    backed: Backed, kind: str, method: str, words: str
) -> None:
    before = backed.paths()
    with (
        backed.bucket.failing(kind, method, words),
        pytest.raises((BackupError, Refused)) as caught,
    ):
        backed.back_up()
    assert "hunter2" not in str(caught.value)
    if words == "first/":
        assert ".bin) cannot be read: s3/" in str(caught.value)
    assert backed.paths() == before


@pytest.mark.parametrize(
    ("kind", "method", "words"),
    [(HALF, "GET", "backups/"), (DENIED, "GET", "backups/"), (DENIED, "PUT", "second/")],
)
def test_a_restoration_that_the_bucket_interrupts_leaves_nothing(
    archived: Backed, target: Installation, kind: str, method: str, words: str
) -> None:
    before = archived.paths()
    with (
        archived.bucket.failing(kind, method, words),
        pytest.raises((BackupError, Refused)) as caught,
    ):
        restore(archived, target)
    assert "hunter2" not in str(caught.value)
    assert rows_of(target.dsn) == {}
    assert archived.paths() == before
    # Once the bucket answers again, all of it comes back.
    restore(archived, target)
    assert rows_of(target.dsn) == rows_of(archived.installation.dsn)
    contents = archived.paths("second")
    assert len(contents) == 3
    assert {b"".join(archived.stored.get(path)) for path in contents} == {BIG}
    archived.stored.delete(contents)


def test_an_error_that_passes_is_no_reason_to_end(archived: Backed, target: Installation) -> None:
    with archived.bucket.failing(INTERNAL, "GET", "backups/", times=1):
        restore(archived, target)
    assert len(archived.paths("second")) == 3
    archived.stored.delete(archived.paths("second"))
