"""POST /utils/export/{collection}: items that become a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client import Client
from tests.files.forms import FileService
from tests.members import may, member
from tests.things import Table, field, table


@pytest.fixture(scope="module")
def named_secrets(files: FileService) -> Iterator[Table]:
    made = table(files.admin, field("name", "string"), field("secret", "string"))
    made.add({"name": "ä", "secret": "s"}, {"name": "b", "secret": "t"})
    yield made
    files.admin.delete(f"/collections/{made.name}")


def path(things: Table) -> str:
    return f"/utils/export/{things.name}"


def newest(client: Client) -> dict[str, object]:
    (file,) = client.get("/files?sort=-uploaded_on&limit=1").data
    assert isinstance(file, dict)
    return file


def test_items_become_a_file_with_the_fields_that_are_sent(
    files: FileService, named_secrets: Table
) -> None:
    folder = files.admin.post("/folders", {"name": "exports"}).data["id"]
    query = {"fields": ["name"], "sort": ["-name"], "filter": {"id": {"_gt": 0}}}
    body = {"format": "jsonl", "query": query, "file": {"title": "All", "folder": folder}}
    answer = files.admin.post(path(named_secrets), body)
    assert (answer.status, answer.text) == (204, "")
    file = newest(files.admin)
    assert (file["title"], file["folder"]) == ("All", folder)
    assert file["filename_download"] == f"{named_secrets.name}.jsonl"
    content = files.admin.get(f"/assets/{file['id']}").text
    assert content == '{"name":"ä"}\n{"name":"b"}\n'


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"query": {}}, "INVALID_PAYLOAD"),
        ({"format": "exe"}, "INVALID_QUERY"),
        ({"format": "csv", "query": []}, "INVALID_PAYLOAD"),
        ({"format": "csv", "query": {"fields": ["nothing"]}}, "INVALID_QUERY"),
        ({"format": "csv", "query": {"limit": "many"}}, "INVALID_QUERY"),
        ({"format": "csv", "file": "name"}, "INVALID_PAYLOAD"),
        ({"format": "csv", "file": {"filesize": 1}}, "INVALID_PAYLOAD"),
        ({"format": "csv", "file": {"storage": "nowhere"}}, "INVALID_PAYLOAD"),
    ],
)
def test_a_refused_export_leaves_nothing(
    files: FileService, named_secrets: Table, body: object, code: str
) -> None:
    before = files.contents()
    answer = files.admin.post(path(named_secrets), body)
    assert (answer.status, answer.codes) == (400, [code])
    assert files.contents() == before


def test_an_export_takes_the_rights_of_a_read_and_of_an_upload(
    files: FileService, named_secrets: Table
) -> None:
    upload = may("system_files", action="create")
    reads = may(named_secrets.name, "name", permissions={"name": {"_eq": "b"}})
    body = {"format": "csv", "query": {"fields": ["name"]}}
    for stranger in (files.stage.anonymous, member(files.stage), member(files.stage, reads)):
        assert stranger.post(path(named_secrets), body).status == 403
    uploader = member(files.stage, upload)
    assert uploader.post(path(named_secrets), body).status == 403
    limited = member(files.stage, upload, reads)
    hidden = {"format": "csv", "query": {"fields": ["secret"]}}
    assert limited.post(path(named_secrets), hidden).status == 403
    assert limited.post(path(named_secrets), body).status == 204
    content = files.admin.get(f"/assets/{newest(files.admin)['id']}").text
    assert content.split() == ["name", "b"]


def test_system_collections_are_not_exported(files: FileService) -> None:
    answer = files.admin.post("/utils/export/system_users", {"format": "csv"})
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])
