"""Storage locations: the same promises of a folder and of a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from cms.config.locations import Location
from cms.errors import Refused
from cms.files.storage import PART_BYTES, Storage, Storages
from cms.health.checks import check_storage

BIG = os.urandom(PART_BYTES) * 2 + b"end"


def bucket(address: str, **changes: str) -> Location:
    settings = {
        "bucket": "files",
        "endpoint": address,
        "key": "me",
        "secret": "hunter2",
        "root": "some/root",
        **changes,
    }
    return Location("s3", "s3", **settings)  # type: ignore[arg-type]


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.release)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return Storage(Location("local", "local", str(tmp_path / "up loads")))
    storage = Storage(bucket(request.getfixturevalue("s3_server")))
    storage.delete([one.path for one in storage.list()])
    return storage


def pieces(content: bytes, size: int = 70_000) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


@pytest.mark.parametrize("content", [b"", b"small", BIG], ids=["empty", "small", "big"])
def test_what_is_put_comes_back_counted_and_hashed(storage: Storage, content: bytes) -> None:
    put = storage.put("a/b.bin", pieces(content))
    assert (put.size, put.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert b"".join(storage.get("a/b.bin")) == content
    assert storage.size("a/b.bin") == len(content)


def test_a_part_of_a_content_is_read_without_the_rest(storage: Storage) -> None:
    storage.put("a", [b"0123456789"])
    assert b"".join(storage.get("a", 2, 3)) == b"234"
    assert b"".join(storage.get("a", 7)) == b"789"
    assert b"".join(storage.get("a", 0, 0)) == b""


@pytest.mark.parametrize("size", [10, PART_BYTES * 2], ids=["small", "big"])
def test_an_upload_that_breaks_off_leaves_nothing(storage: Storage, size: int) -> None:
    def breaking() -> Iterator[bytes]:
        yield from pieces(b"x" * size)
        raise ConnectionResetError("gone")

    storage.put("kept", [b"before"])
    for path in ("new", "kept"):
        with pytest.raises(ConnectionResetError, match="gone"):
            storage.put(path, breaking())
    assert [one.path for one in storage.list()] == ["kept"]
    assert b"".join(storage.get("kept")) == b"before"
    if storage.folder:
        assert [path.name for path in storage.folder.rglob("*") if path.is_file()] == ["kept"]


@pytest.mark.release
def test_an_upload_that_breaks_off_leaves_no_parts_in_the_bucket(s3_server: str) -> None:
    def breaking() -> Iterator[bytes]:
        yield from pieces(BIG * 2)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        Storage(bucket(s3_server)).put("new", breaking())
    assert "<Upload>" not in requests.get(f"{s3_server}/files?uploads", timeout=10).text


def test_contents_are_listed_by_folder_and_deleted_whether_they_are_there_or_not(
    storage: Storage,
) -> None:
    for path in ("a", "a/1", "a/2", "ab") if storage.name == "s3" else ("b", "a/1", "a/2", "ab"):
        storage.put(path, [b"x"])
    assert sorted((one.path, one.size) for one in storage.list("a")) == [("a/1", 1), ("a/2", 1)]
    storage.delete(["a/1", "missing", "a/2"])
    assert not storage.exists("a/1")
    assert storage.exists("ab")
    assert len(list(storage.list())) == 2


def test_what_is_not_there_is_not_found(storage: Storage) -> None:
    for call in (lambda: storage.get("missing"), lambda: storage.size("missing")):
        with pytest.raises(FileNotFoundError):
            call()


def test_no_path_leads_out_of_the_location(storage: Storage) -> None:
    for path in ("../out", "a/../../out"):
        with pytest.raises(ValueError):
            storage.put(path, [b"x"])


def test_a_location_that_does_not_answer_is_503_without_its_address(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for location in (
        bucket("http://127.0.0.1:1"),
        Location("local", "local", str(tmp_path / "file" / "below")),
    ):
        with pytest.raises(Refused) as refused:
            Storage(location).put("a", [b"x"])
        assert refused.value.status == 503
        assert "127.0.0.1" not in str(refused.value), location
        assert str(tmp_path) not in str(refused.value), location


def test_what_a_killed_upload_left_is_cleaned_once_it_is_old(tmp_path: Path) -> None:
    storage = Storage(Location("local", "local", str(tmp_path)))
    storage.put("kept", [b"x"])
    (tmp_path / "dead.bin#1").write_bytes(b"half")
    assert storage.remove_staged(timedelta(hours=1)) == ()
    os.utime(tmp_path / "dead.bin#1", (0, 0))
    assert storage.remove_staged(timedelta(hours=1)) == ("dead.bin#1",)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_locations_are_found_by_name_and_the_first_is_the_default(tmp_path: Path) -> None:
    storages = Storages(
        [Location("b", "local", str(tmp_path)), Location("a", "local", str(tmp_path))]
    )
    assert (list(storages), storages.default.name, storages["a"].name) == (["b", "a"], "b", "a")
    with pytest.raises(Refused, match="no such storage location"):
        storages.requested("c")


def test_a_health_check_leaves_nothing_behind(storage: Storage) -> None:
    assert check_storage(storage).warning is None
    assert list(storage.list()) == []
