"""Files that are there: reading, changing and deleting them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cms.errors import unavailable
from cms.files import media_library
from tests.files.forms import FileService
from tests.members import may, member


def test_files_are_read_with_the_whole_query_language(files: FileService) -> None:
    folder = files.admin.post("/folders", {"name": "queried"}).data["id"]
    for name in ("b.txt", "a.txt", "c.csv"):
        files.add(b"1", name, folder=folder)
    query = (
        "filter[folder][name][_eq]=queried&sort=filename_download"
        "&fields=filename_download,folder.name"
    )
    rows = files.admin.get(f"/files?{query}&filter[type][_eq]=text/plain").data
    assert rows == [
        {"filename_download": name, "folder": {"name": "queried"}} for name in ("a.txt", "b.txt")
    ]
    read = {"filter": {"folder": {"_eq": folder}}, "aggregate": {"count": "*"}}
    assert files.admin.search("/files", read).data == [{"count": 3}]
    assert files.admin.get(f"/files?filter[folder]={folder}&meta=filter_count").body["meta"] == {
        "filter_count": 3
    }
    assert "c.csv" in files.admin.get("/files?search=c.csv&export=csv").text


def test_the_fields_of_a_file_can_be_changed(files: FileService) -> None:
    key = files.add()["id"]
    folder = files.admin.post("/folders", {"name": "f"}).data["id"]
    body: dict[str, Any] = {
        "title": "New",
        "description": "Long",
        "folder": folder,
        "tags": ["x"],
        "focal_point_x": 0.25,
        "focal_point_y": 1,
        "filename_download": "new.txt",
        "location": "here",
    }
    file = files.admin.patch(f"/files/{key}", body).data
    assert {name: file[name] for name in body} == body
    assert file["modified_by"] == file["uploaded_by"]
    assert file["modified_on"] > file["uploaded_on"]
    assert files.admin.patch(f"/files/{key}?fields=title", {"folder": None}).data == {
        "title": "New"
    }


def test_many_files_are_changed_at_once(files: FileService) -> None:
    one, two, three = (files.add()["id"] for _ in range(3))
    changed = files.admin.patch("/files", {"keys": [two, one], "data": {"title": "T"}}).data
    assert [(row["id"], row["title"]) for row in changed] == [(two, "T"), (one, "T")]
    changed = files.admin.patch(
        "/files", [{"id": one, "title": "1"}, {"id": three, "description": "3"}]
    ).data
    assert [(row["title"], row["description"]) for row in changed] == [("1", None), ("A", "3")]
    query = {"query": {"filter": {"id": {"_in": [one, two]}}}, "data": {"description": "both"}}
    assert [row["description"] for row in files.admin.patch("/files", query).data] == [
        "both",
        "both",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"title": {}}, 400),
        ({"focal_point_x": 1.1}, 400),
        ({"focal_point_y": -0.1}, 400),
        ({"folder": str(uuid4())}, 400),
        ({"nonsense": 1}, 400),
        ({"filename_download": None}, 400),
        ([], 400),
        ("text", 400),
        (None, 400),
    ],
)
def test_a_wrong_change_is_refused(files: FileService, body: Any, status: int) -> None:
    key = files.add()["id"]
    before = files.admin.get(f"/files/{key}").data
    answer = files.admin.patch(f"/files/{key}", body)
    assert answer.status == status, answer.text
    assert files.admin.get(f"/files/{key}").data == before


@pytest.mark.parametrize(
    "body",
    [
        None,
        5,
        {},
        {"keys": []},
        {"data": {}},
        {"keys": "x", "data": {}},
        [5],
        [{"title": "x"}],
        [{"id": 5, "title": "x"}],
    ],
)
def test_a_wrong_change_of_many_is_refused(files: FileService, body: Any) -> None:
    answer = files.admin.patch("/files", body)
    assert answer.status == 400, answer.text


def test_one_unknown_file_refuses_all(files: FileService) -> None:
    key = files.add()["id"]
    for keys in ([key, str(uuid4())], [key, "nonsense"]):
        with files.nothing_stays():
            assert (
                files.admin.patch("/files", {"keys": keys, "data": {"title": "no"}}).status == 404
            )
            assert files.admin.delete("/files", keys).status == 404
    assert files.admin.get(f"/files/{key}").data["title"] == "A"


def test_a_file_goes_with_its_content(files: FileService) -> None:
    file = files.add()
    path = f"local/{file['filename_disk']}"
    assert path in files.contents()
    assert files.admin.delete(f"/files/{file['id']}").status == 204
    assert path not in files.contents()
    for answer in (
        files.admin.get(f"/files/{file['id']}"),
        files.admin.delete(f"/files/{file['id']}"),
    ):
        assert answer.status == 404, answer


def test_many_files_go_with_their_contents(files: FileService) -> None:
    rows = [files.add(storage=name) for name in ("local", "other", "local", "local")]
    one, two, three, four = (row["id"] for row in rows)
    assert files.admin.delete("/files", [one, two]).status == 204
    assert files.admin.delete("/files", {"keys": [three]}).status == 204
    assert files.admin.delete("/files", {"query": {"filter": {"id": {"_eq": four}}}}).status == 204
    left = {Path(path).name for path in files.contents()}
    assert left.isdisjoint(row["filename_disk"] for row in rows)


def test_a_content_that_is_gone_already_hinders_no_deletion(files: FileService) -> None:
    file = files.add()
    (files.folder / "local" / file["filename_disk"]).unlink()
    assert files.admin.delete(f"/files/{file['id']}").status == 204


def covered(files: FileService, key: str, name: str) -> None:
    """Make a collection with an item whose cover is a file."""
    body = {"collection": name, "schema": {}, "fields": [{"field": "cover", "type": "uuid"}]}
    assert files.admin.post("/collections", body).status == 200
    relation = {"collection": name, "field": "cover", "related_collection": "system_files"}
    assert files.admin.post("/relations", relation).status == 200
    assert files.admin.post(f"/items/{name}", {"cover": key}).status == 200


@pytest.mark.quick(2)
@pytest.mark.parametrize("way", ["one", "array", "keys", "query", "folder"])
def test_a_field_that_points_to_a_file_becomes_null_with_it_as_the_history_records(
    files: FileService, way: str
) -> None:
    folder = files.admin.post("/folders", {"name": "f"}).data["id"]
    key = files.add(folder=folder)["id"]
    covered(files, key, f"covers_{way}")
    paths = {"one": f"/files/{key}", "folder": f"/folders/{folder}"}
    bodies: dict[str, Any] = {
        "array": [key],
        "keys": {"keys": [key]},
        "query": {"query": {"filter": {"id": key}}},
    }
    rights = [
        may(f"system_{name}", action=action)
        for name in ("files", "folders")
        for action in ("read", "delete")
    ]
    caller = member(files.stage, *rights)
    assert caller.delete(paths.get(way, "/files"), bodies.get(way)).status == 204
    assert files.admin.get(f"/items/covers_{way}").data == [{"id": 1, "cover": None}]
    params = {
        "fields": "delta,parent,activity.action,activity.user,activity.ip",
        "sort": "-id",
        "limit": 1,
    }
    (update,) = files.admin.get(f"/items/covers_{way}/1/revisions", **params).data
    (gone,) = files.admin.get(
        "/revisions", **{"filter[item]": key, **params, "fields": "id,activity.user"}
    ).data
    assert (update["delta"], update["parent"]) == ({"cover": None}, gone["id"])
    assert update["activity"] == {
        "action": "update",
        "user": caller.get("/users/me").data["id"],
        "ip": "127.0.0.1",
    }
    assert gone["activity"]["user"] == update["activity"]["user"]


def test_a_file_that_is_in_use_stays_with_its_content(files: FileService) -> None:
    file = files.add()
    files.stage.execute(
        "CREATE TABLE uses (id int PRIMARY KEY, file uuid REFERENCES system_files (id))"
    )
    files.stage.execute(f"INSERT INTO uses VALUES (1, '{file['id']}')")
    with files.nothing_stays():
        answer = files.admin.delete(f"/files/{file['id']}")
        assert (answer.status, answer.codes) == (400, ["INVALID_FOREIGN_KEY"])


def test_readers_see_the_files_of_their_rule_and_change_none(files: FileService) -> None:
    seen = files.add(title="seen")
    hidden = files.add(title="hidden")
    rule = {"id": {"_in": [seen["id"]]}}
    reader = member(files.stage, may("system_files", "id", "title", permissions=rule))
    assert reader.get("/files").data == [{"id": seen["id"], "title": "seen"}]
    assert reader.get(f"/files/{hidden['id']}").status == 404
    assert reader.get("/files?fields=filename_disk").status == 403
    for body in ({"title": "x"}, {"filename_disk": "x"}):
        assert reader.patch(f"/files/{seen['id']}", body).status == 403 or "filename_disk" in body
    assert reader.delete("/files", [seen["id"]]).status == 403
    assert files.stage.anonymous.get("/files").status == 403


def test_a_change_is_answered_as_made_where_its_contents_cannot_be_removed(
    files: FileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(fetch: object) -> bool:
        raise unavailable("database", "It does not answer")

    before = files.contents()
    file = files.add(b"old")
    monkeypatch.setattr(media_library, "are_kept", unknown)
    answer = files.send("PATCH", f"/files/{file['id']}", ("file", b"new", "b.txt"))
    assert (answer.status, answer.data["filename_download"]) == (200, "b.txt")
    assert files.admin.get(f"/assets/{file['id']}").text == "new"
    assert files.admin.delete(f"/files/{file['id']}").status == 204
    assert files.admin.get(f"/files/{file['id']}").status == 404
    left = [content for path, content in files.contents().items() if path not in before]
    assert sorted(left) == [b"new", b"old"]
