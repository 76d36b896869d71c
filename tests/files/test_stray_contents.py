"""The sweep: strays on either side are listed, and nothing else is touched."""

from __future__ import annotations

import os
from datetime import timedelta
from uuid import uuid4

import pytest
import requests

from cms.config.locations import Location
from cms.database.connections import standalone_transaction
from cms.errors import Refused
from cms.files.contents import sweep
from cms.files.storage import Storage, Storages
from tests.files.forms import FileService
from tests.files.images import picture

AGE = timedelta(hours=1)


def swept(files: FileService, *more: Location) -> tuple[list[str], list[str]]:
    locations = [Location(name, "local", str(files.folder / name)) for name in ("local", "other")]
    with standalone_transaction(files.stage.dsn) as transaction:
        result = sweep(transaction, Storages([*locations, *more]), age=AGE)
    return sorted(result.removed), sorted(result.without_content)


def lay(files: FileService, path: str, *, old: bool = True) -> str:
    target = files.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"x")
    if old:
        os.utime(target, (0, 0))
    return path


def age(files: FileService) -> None:
    files.stage.execute("UPDATE system_files SET modified_on = now() - interval '1 day'")
    for path in files.contents():
        os.utime(files.folder / path, (0, 0))


def test_contents_without_a_file_go_once_they_are_old(files: FileService) -> None:
    kept = files.add()
    other = files.add(storage="other")
    age(files)
    lay(files, f"local/{kept['id']}__abc.webp")
    lay(files, f"local/{kept['id']}/cover.webp")
    lay(files, "local/somebody-elses.txt")
    recent = lay(files, f"local/{uuid4()}.txt", old=False)
    expected = [
        lay(files, f"local/{uuid4()}.txt"),
        lay(files, f"other/{kept['filename_disk']}"),  # the file's content lies elsewhere
        lay(files, f"local/{uuid4()}__abc.webp"),
        lay(files, f"other/{uuid4()}/cover.webp"),
        lay(files, "local/half.bin#1"),
    ]
    before = set(files.contents())
    assert swept(files) == (sorted(expected), [])
    assert set(files.contents()) == before - set(expected)
    assert {f"other/{other['filename_disk']}", recent} < set(files.contents())
    assert swept(files) == ([], [])
    (files.folder / recent).unlink()


@pytest.mark.release
def test_what_was_derived_goes_with_its_content_and_not_with_its_file(files: FileService) -> None:
    first = files.add(picture("PNG"), "a.png")
    assert (
        files.send("PATCH", f"/files/{first['id']}", ("file", picture("JPEG"), "a.jpg")).status
        == 200
    )
    assert files.admin.get(f"/assets/{first['id']}", width=5).status == 200
    age(files)
    old = lay(files, f"local/{first['id']}__/abc.webp")
    before = set(files.contents())
    assert swept(files) == ([old], [])
    assert set(files.contents()) == before - {old}


def test_files_without_their_content_are_reported_and_kept(files: FileService) -> None:
    lost = files.add()
    recent = files.add()
    age(files)
    recent = files.add()
    for row in (lost, recent):
        (files.folder / "local" / row["filename_disk"]).unlink()
    assert swept(files) == ([], [lost["id"]])
    assert files.admin.get(f"/files/{lost['id']}").status == 200
    files.admin.delete("/files", [lost["id"], recent["id"]])


def test_a_location_that_does_not_answer_is_reported(files: FileService) -> None:
    away = Location("aaa", "s3", bucket="b", endpoint="http://127.0.0.1:1", key="k", secret="s")
    with pytest.raises(Refused):
        swept(files, away)


def test_a_bucket_is_swept_as_a_folder_is(files: FileService, s3_server: str) -> None:
    assert requests.put(f"{s3_server}/swept", timeout=10).status_code == 200
    location = Location("s3", "s3", bucket="swept", endpoint=s3_server, key="k", secret="s")
    storage = Storage(location)
    paths = sorted(f"{uuid4()}.bin" for _ in range(3))
    for path in paths:
        storage.put(path, [b"x"])
    with standalone_transaction(files.stage.dsn) as transaction:
        assert sweep(transaction, Storages([location]), age=AGE).removed == ()
    with standalone_transaction(files.stage.dsn) as transaction:
        result = sweep(transaction, Storages([location]), age=timedelta(0))
    assert result.removed == tuple(f"s3/{path}" for path in paths)
    assert list(storage.list()) == []
