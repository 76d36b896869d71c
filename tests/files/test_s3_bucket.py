"""The whole way of a file whose content lies in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cms.config import Config
from cms.config.locations import Location
from cms.files.storage import PART_BYTES, Storage
from tests.files.forms import file_service
from tests.files.images import picture

pytestmark = pytest.mark.release


def test_a_file_may_lie_in_a_bucket(
    settings: Config,
    tmp_path: Path,
    make_database: Callable[..., str],
    template: str,
    s3_server: str,
) -> None:
    location = Location(
        "s3", "s3", bucket="files", endpoint=s3_server, key="k", secret="s", root="whole"
    )
    changes = {"locations": (location,), "files_max_upload_size": 4 * PART_BYTES}
    storage = Storage(location)
    with file_service(settings, tmp_path, make_database, template, **changes) as files:
        image = files.add(picture(), "a.jpg")
        assert (image["storage"], image["width"], image["height"]) == ("s3", 40, 20)
        assert b"".join(storage.get(image["filename_disk"])) == picture()
        big = files.send(
            "PATCH", f"/files/{image['id']}", ("file", b"x" * (2 * PART_BYTES + 1), "big.bin")
        ).data
        assert [(one.path, one.size) for one in storage.list()] == [
            (big["filename_disk"], 2 * PART_BYTES + 1)
        ]
        answer = files.send("POST", "/files", ("file", b"x" * (4 * PART_BYTES + 1), "b.bin"))
        assert answer.status == 413
        assert len(list(storage.list())) == 1
        assert files.admin.delete(f"/files/{image['id']}").status == 204
        assert list(storage.list()) == []


def test_a_bucket_that_does_not_answer_is_503_and_makes_no_file(
    settings: Config, tmp_path: Path, make_database: Callable[..., str], template: str
) -> None:
    location = Location(
        "s3", "s3", bucket="files", endpoint="http://127.0.0.1:1", key="k", secret="hunter2"
    )
    with file_service(settings, tmp_path, make_database, template, locations=(location,)) as files:
        answer = files.send("POST", "/files", ("file", b"x", "a"))
        assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
        assert "hunter2" not in answer.text
        assert files.rows() == 0
