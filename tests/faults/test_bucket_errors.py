"""A bucket that answers errors: what may be repeated is, all else is 503, and nothing is half."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import requests

from cms.config import Config
from cms.config.locations import Location
from cms.files.storage import PART_BYTES, Storage
from tests.client import Answer
from tests.faults.faulty_bucket import (
    DENIED,
    HALF,
    INTERNAL,
    LOST,
    RESET,
    SLOW_DOWN,
    TIMEOUT_SECONDS,
    FaultyBucket,
    faulty_bucket,
)
from tests.files.forms import FileService, file_service
from tests.files.images import picture

pytestmark = pytest.mark.slow

PASSING = [INTERNAL, SLOW_DOWN, RESET, LOST]
"""What goes away when the request is sent again."""

BIG = os.urandom(2 * PART_BYTES + 1)
PHOTO = picture("PNG", (300, 300))


@dataclass(frozen=True)
class Site:
    """A service whose files lie in the bucket."""

    bucket: FaultyBucket
    files: FileService
    stored: Storage
    """The same bucket, past all faults."""

    def paths(self) -> list[str]:
        return sorted(content.path for content in self.stored.list())

    def unfinished(self) -> bool:
        """Tell whether the bucket holds parts of an upload that was never finished."""
        address = f"{self.bucket.server}/files?uploads"
        return "<Upload>" in requests.get(address, timeout=TIMEOUT_SECONDS).text

    def send(self, content: bytes, method: str = "POST", path: str = "/files") -> Answer:
        return self.files.send(method, path, ("file", content, "a.bin"))

    def add(self, content: bytes = b"some bytes") -> str:
        return str(self.files.add(content, "a.bin")["id"])


@pytest.fixture(scope="module")
def bucket_site(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[Site]:
    def location(address: str) -> Location:
        return Location("s3", "s3", bucket="files", endpoint=address, key="k", secret="hunter2")

    with faulty_bucket() as bucket:
        changes = {
            "locations": (location(bucket.address),),
            "files_max_upload_size": 4 * PART_BYTES,
        }
        folder = tmp_path_factory.mktemp("files")
        with file_service(settings, folder, make_database, template, **changes) as files:
            yield Site(bucket, files, Storage(location(bucket.server)))


def assert_unavailable(answer: Answer) -> None:
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.errors[0]["service"] == "storage"
    assert int(answer.headers["retry-after"]) > 0
    assert "hunter2" not in answer.text


# Uploads


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("content", [b"small", BIG], ids=["small", "big"])
def test_an_upload_goes_on_after_an_error_that_passes(
    bucket_site: Site, kind: str, content: bytes
) -> None:
    with bucket_site.bucket.failing(kind, "PUT", times=1):
        key = bucket_site.send(content).data["id"]
    assert bucket_site.files.admin.get(f"/assets/{key}").content == content


@pytest.mark.parametrize("kind", [*PASSING, DENIED])
@pytest.mark.parametrize("content", [b"small", BIG], ids=["small", "big"])
def test_an_upload_that_the_bucket_refuses_leaves_no_row_and_no_object(
    bucket_site: Site, kind: str, content: bytes
) -> None:
    key = bucket_site.add()
    before = bucket_site.paths(), bucket_site.files.rows()
    with bucket_site.bucket.failing(kind, "PUT"):
        assert_unavailable(bucket_site.send(content))
        assert_unavailable(bucket_site.send(content, "PATCH", f"/files/{key}"))
    assert (bucket_site.paths(), bucket_site.files.rows()) == before
    assert not bucket_site.unfinished()
    assert bucket_site.files.admin.get(f"/assets/{key}").content == b"some bytes"


@pytest.mark.parametrize("kind", [INTERNAL, LOST, DENIED])
def test_an_upload_in_parts_that_cannot_be_finished_leaves_nothing(
    bucket_site: Site, kind: str
) -> None:
    before = bucket_site.paths(), bucket_site.files.rows()
    with bucket_site.bucket.failing(kind, "POST", "uploadId"):
        assert_unavailable(bucket_site.send(BIG))
    assert (bucket_site.paths(), bucket_site.files.rows()) == before
    assert not bucket_site.unfinished()


@pytest.mark.parametrize("kind", [INTERNAL, RESET, DENIED])
def test_an_upload_that_cannot_be_read_back_leaves_nothing(bucket_site: Site, kind: str) -> None:
    """The size of an image is read from what is stored."""
    before = bucket_site.paths(), bucket_site.files.rows()
    with bucket_site.bucket.failing(kind, "GET"):
        answer = bucket_site.files.send("POST", "/files", ("file", PHOTO, "a.png"))
    assert_unavailable(answer)
    assert (bucket_site.paths(), bucket_site.files.rows()) == before


# Contents


@pytest.mark.parametrize("kind", [*PASSING, HALF])
def test_a_content_is_delivered_after_an_error_that_passes(bucket_site: Site, kind: str) -> None:
    key = bucket_site.add(BIG)
    with bucket_site.bucket.failing(kind, "GET", times=1):
        assert bucket_site.files.admin.get(f"/assets/{key}").content == BIG


@pytest.mark.parametrize("kind", [INTERNAL, SLOW_DOWN, RESET, DENIED])
def test_a_content_that_the_bucket_does_not_give_is_503(bucket_site: Site, kind: str) -> None:
    key = bucket_site.add()
    with bucket_site.bucket.failing(kind, "GET"):
        assert_unavailable(bucket_site.files.admin.get(f"/assets/{key}"))
    with bucket_site.bucket.failing(kind, "HEAD"):
        assert_unavailable(bucket_site.files.admin.get(f"/assets/{key}"))
    assert bucket_site.files.admin.get(f"/assets/{key}").content == b"some bytes"


@pytest.mark.parametrize("kind", [INTERNAL, RESET, DENIED, HALF])
def test_an_image_that_cannot_be_read_is_transformed_once_it_can(
    bucket_site: Site, kind: str
) -> None:
    key = bucket_site.files.add(PHOTO, "a.png")["id"]
    before = bucket_site.paths()
    path = f"/assets/{key}?width=200&format=png"
    with bucket_site.bucket.failing(kind, "GET"):
        assert_unavailable(bucket_site.files.admin.get(path))
    assert bucket_site.paths() == before
    # It is not taken for an image that cannot be transformed.
    assert bucket_site.files.admin.get(path).status == 200


@pytest.mark.parametrize("kind", [INTERNAL, LOST, DENIED])
def test_a_derivative_that_the_bucket_refuses_is_not_kept(bucket_site: Site, kind: str) -> None:
    key = bucket_site.files.add(PHOTO, "a.png")["id"]
    before = bucket_site.paths()
    path = f"/assets/{key}?width=200&format=png"
    with bucket_site.bucket.failing(kind, "PUT"):
        assert_unavailable(bucket_site.files.admin.get(path))
    assert bucket_site.paths() == before
    assert bucket_site.files.admin.get(path).status == 200
    assert len(bucket_site.paths()) == len(before) + 1


# Deletions


@pytest.mark.parametrize("kind", [INTERNAL, RESET, DENIED])
def test_a_file_goes_although_its_content_cannot_and_the_log_names_it(
    bucket_site: Site, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = bucket_site.add()
    before = bucket_site.paths()
    with (
        bucket_site.bucket.failing(kind, "POST", "delete"),
        caplog.at_level(logging.WARNING, "cms"),
    ):
        assert bucket_site.files.admin.delete(f"/files/{key}").status == 204
    assert bucket_site.files.admin.get(f"/files/{key}").status == 404
    # `cms maintain` removes it later.
    assert bucket_site.paths() == before
    assert "stays in the storage s3" in caplog.text
