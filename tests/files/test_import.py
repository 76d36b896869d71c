"""POST /files/import: files from other servers."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from cms.config import Config
from tests.files.forms import FileService, file_service
from tests.files.images import picture
from tests.files.sources import Source, raw_source


@pytest.fixture(scope="module")
def files(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[FileService]:
    """An application that may ask loopback, and may take images and texts only."""
    changes = {
        "import_ip_allow_list": (ipaddress.ip_network("127.0.0.1"),),
        "import_timeout": timedelta(seconds=1),
        "files_mime_type_allow_list": ("image/*", "text/plain"),
    }
    with file_service(
        settings, tmp_path_factory.mktemp("files"), make_database, template, **changes
    ) as files:
        yield files


def test_a_file_is_imported_with_the_fields_that_are_sent(
    files: FileService, other_server: Source
) -> None:
    content = picture()
    url = other_server.page("/some/my%20photo.jpg", content, Content_Type="image/png")
    folder = files.admin.post("/folders", {"name": "f"}).data["id"]
    body = {"url": url + "?x=1", "data": {"title": "T", "folder": folder, "storage": "other"}}
    file = files.admin.post("/files/import?fields=*", body).data
    assert (file["filename_download"], file["type"], file["width"]) == (
        "my photo.jpg",
        "image/jpeg",
        40,
    )
    assert (file["title"], file["folder"], file["filesize"]) == ("T", folder, len(content))
    assert files.contents()[f"other/{file['filename_disk']}"] == content
    assert files.admin.post("/files/import?fields=title", {"url": url}).data == {
        "title": "My photo"
    }


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ("attachment; filename=plain.txt", "plain.txt"),
        ('attachment; filename="../quo\\"ted.txt"', "quo_ted.txt"),
        ("attachment; filename=a.txt; filename*=UTF-8''gr%C3%BC%C3%9Fe.txt", "grüße.txt"),
        ('attachment; filename="grün.txt"'.encode().decode("latin-1"), "grün.txt"),
        ("attachment", "path"),
    ],
)
def test_the_source_may_name_the_file(
    files: FileService, other_server: Source, disposition: str, name: str
) -> None:
    url = other_server.page("/path/", b"text", Content_Disposition=disposition)
    assert files.admin.post("/files/import", {"url": url}).data["filename_download"] == name


def test_a_source_without_a_path_is_named_by_its_host(
    files: FileService, other_server: Source
) -> None:
    assert (
        files.admin.post("/files/import", {"url": other_server.page("/", b"text")}).data[
            "filename_download"
        ]
        == "127.0.0.1"
    )


@pytest.mark.parametrize(
    "body",
    [
        {}, None, [], {"url": 5}, {"url": "ftp://127.0.0.1/"}, {"url": "http://[::1]/"},
        {"url": "http://127.0.0.2/"}, {"url": "http://x:y@127.0.0.1/"},
        {"url": "http://\ud800/"},
    ],
)  # fmt: skip
def test_an_address_that_may_not_be_asked_is_refused(files: FileService, body: Any) -> None:
    with files.nothing_stays():
        answer = files.admin.post("/files/import", body)
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer.text


def test_a_name_that_is_not_there_is_refused_like_an_inner_address(files: FileService) -> None:
    urls = (
        "http://127.0.0.2/",
        f"http://{'x' * 64}.example/",
    )  # the second name is too long to be looked up
    inner, missing = (files.admin.post("/files/import", {"url": url}) for url in urls)
    assert (
        (inner.status, inner.text)
        == (missing.status, missing.text.replace(urls[1], urls[0]))
        == (400, inner.text)
    )


def test_the_fields_that_are_sent_are_checked_and_nothing_stays(
    files: FileService, other_server: Source
) -> None:
    url = other_server.page("/a.txt", b"text")
    with files.nothing_stays():
        for body in (
            {"filesize": 1},
            {"storage": "no"},
            {"storage": 5},
            {"folder": "x"},
            "x",
            {"nonsense": 1},
        ):
            assert files.admin.post("/files/import", {"url": url, "data": body}).status == 400


def test_a_source_that_fails_is_503_and_nothing_stays(
    files: FileService, other_server: Source
) -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + b"x" * 5000
    with files.nothing_stays(), raw_source(short) as cut, raw_source(short, pause=5) as slow:
        missing = other_server.url("/missing")
        broken = other_server.page("/broken", status=500)
        for url in (missing, broken, cut, slow, "http://127.0.0.1:1/"):
            answer = files.admin.post("/files/import", {"url": url})
            assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"]), answer.text
            assert answer.errors[0]["service"] == "import source", answer


def test_a_source_with_too_much_is_413_and_nothing_stays(
    files: FileService, other_server: Source
) -> None:
    with files.nothing_stays():
        answer = files.admin.post(
            "/files/import", {"url": other_server.page("/big", b"x" * 100_001)}
        )
        assert (answer.status, answer.codes) == (413, ["CONTENT_TOO_LARGE"])


def test_only_the_types_of_the_settings_come_in_whatever_type_is_declared(
    files: FileService, other_server: Source
) -> None:
    with files.nothing_stays():
        url = other_server.page(
            "/x.png",
            b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>",
            Content_Type="image/png",
        )
        assert (
            files.admin.post("/files/import", {"url": url}).status == 200
        )  # image/* has image/svg+xml in it
        files.admin.delete("/files", {"query": {"filter": {"type": "image/svg+xml"}}})
        for name, content in (("a.png", b"<html>"), ("a.txt", b"%PDF-1.7"), ("a.png", b"\0\1\2")):
            answer = files.send("POST", "/files", ("file", content, name, "image/png"))
            assert (answer.status, answer.errors[0]["field"]) == (400, "type"), answer
