"""An archive may lie in a bucket, reached with the account of a storage location."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cms.backup import BackupError
from cms.backup.archive_format import packed
from cms.backup.archives import Archive, archive_at
from cms.backup.restoring import Restoration
from cms.backup.writing import Backup
from cms.config import Config
from cms.config.locations import Location
from cms.files.storage import PART_BYTES, Storage
from tests.backup.archives import Installation, Notes, find_dump
from tests.backup.comparison import rows_of
from tests.files.conftest import s3_server as s3_server

pytestmark = pytest.mark.release

ARCHIVE = "s3://files/nightly/service.tar.gz"


@pytest.fixture
def location(s3_server: str) -> Location:
    # The archive does not lie below its root: the address is that of the bucket.
    return Location("s3", "s3", bucket="uploads", endpoint=s3_server, key="k", secret="s", root="x")


@pytest.fixture
def bucket(location: Location) -> Storage:
    return Storage(replace(location, bucket="files", root=""))


@pytest.fixture
def archive(settings: Config, location: Location) -> Archive:
    return archive_at(ARCHIVE, replace(settings, locations=(location,)))


def test_an_archive_is_written_to_a_bucket_and_restored_from_it(
    service: Installation, empty: Installation, bucket: Storage, archive: Archive
) -> None:
    backup = Backup(service.dsn, service.storages, find_program=find_dump, watcher=Notes())
    archive.write(packed(backup.members()))
    assert [one.path for one in bucket.list("nightly")] == ["nightly/service.tar.gz"]
    with pytest.raises(BackupError, match="is there already"):
        archive.write([b"another"])
    Restoration(empty.dsn, empty.storages, archive=archive, watcher=Notes()).run(replaces=False)
    assert rows_of(empty.dsn) == rows_of(service.dsn)
    assert empty.contents() == service.contents()
    bucket.delete(["nightly/service.tar.gz"])


def test_a_large_archive_is_uploaded_in_parts_and_one_that_fails_leaves_nothing(
    bucket: Storage, archive: Archive
) -> None:
    archive.write(bytes(PART_BYTES) for _number in range(8))
    assert archive.size() == 8 * PART_BYTES
    bucket.delete(["nightly/service.tar.gz"])

    def failing() -> Iterator[bytes]:
        for _number in range(5):
            yield bytes(PART_BYTES)
        raise BackupError("the test")

    with pytest.raises(BackupError, match="the test"):
        archive.write(failing())
    assert list(bucket.list()) == []


def test_what_is_not_in_the_bucket_is_named(archive: Archive) -> None:
    with pytest.raises(BackupError, match=f"{ARCHIVE} is not there"):
        archive.size()
    with pytest.raises(BackupError, match="is not there"):
        list(archive.read())


def test_a_bucket_that_cannot_be_reached_is_named_before_anything_is_read(
    settings: Config, location: Location
) -> None:
    asked: list[int] = []

    def chunks() -> Iterator[bytes]:
        asked.append(1)
        yield b""

    wrong = replace(location, endpoint="http://127.0.0.1:1", secret="not to be told")
    archive = archive_at(ARCHIVE, replace(settings, locations=(wrong,)))
    uses: tuple[Callable[[], object], ...] = (
        archive.size,
        lambda: list(archive.read()),
        lambda: archive.write(chunks()),
    )
    for use in uses:
        with pytest.raises(BackupError, match=rf"{ARCHIVE} cannot be reached .* s3:") as caught:
            use()
        assert "not to be told" not in str(caught.value)
    assert asked == []


@pytest.mark.parametrize("archive", ["s3://files", "s3://files/", "s3:///key"])
def test_an_address_without_bucket_or_key_is_refused(
    settings: Config, location: Location, archive: str
) -> None:
    with pytest.raises(BackupError, match="s3://BUCKET/KEY"):
        archive_at(archive, replace(settings, locations=(location,)))


def test_a_bucket_needs_the_account_of_a_location(settings: Config, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="No storage location is in S3"):
        archive_at(ARCHIVE, settings)
