"""Files and folders under permissions, with their history, their
versions and calls that are sent twice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

from tests.files.forms import BOUNDARY, FileService, form
from tests.members import may, member
from tests.things import field, table

FORM = f'multipart/form-data; boundary="{BOUNDARY}"'
EVERYTHING = [
    may(name, action=action)
    for name in ("system_files", "system_folders")
    for action in ("read", "create", "update", "delete")
]


def test_who_may_create_files_uploads_them_with_the_fields_of_the_permission(
    files: FileService,
) -> None:
    writer = member(files.stage, may("system_files", "title", action="create"), may("system_files"))
    file = files.send("POST", "/files", ("title", "T"), ("file", b"x", "x.txt"), client=writer).data
    assert (file["title"], file["filename_download"], file["filesize"]) == ("T", "x.txt", 1)
    assert file["uploaded_by"] not in (None, files.admin.get("/users/me").data["id"])
    assert writer.post("/files", {"filename_download": "a", "data": "eA=="}).status == 403
    with files.nothing_stays():
        for name in ("description", "nonsense", "filename_download"):
            assert (
                files.send("POST", "/files", (name, "x"), ("file", b"x", "x"), client=writer).status
                == 403
            )


def test_who_may_not_read_files_gets_no_answer_to_an_upload(files: FileService) -> None:
    writer = member(files.stage, may("system_files", action="create"))
    answer = files.send("POST", "/files", ("file", b"x", "x.txt"), client=writer)
    assert (answer.status, answer.text) == (204, "")


def test_presets_and_rules_of_permissions_hold_for_uploads(files: FileService) -> None:
    folder = files.admin.post("/folders", {"name": "theirs"}).data["id"]
    body = {
        "presets": {"folder": folder, "description": "preset"},
        "permissions": {"folder": {"_eq": folder}},
    }
    writer = member(files.stage, may("system_files", action="create", **body), may("system_files"))
    file = files.send("POST", "/files", ("file", b"x", "x.txt"), client=writer).data
    assert (file["folder"], file["description"], file["title"]) == (folder, "preset", "X")
    with files.nothing_stays():
        elsewhere = files.send(
            "POST", "/files", ("folder", ""), ("file", b"x", "x.txt"), client=writer
        )
        assert (elsewhere.status, elsewhere.codes) == (403, ["FORBIDDEN"])


def test_nothing_that_a_permission_presets_takes_the_place_of_the_content(
    files: FileService,
) -> None:
    body = {
        "presets": {"filename_disk": "../../x", "storage": "no", "filesize": 5, "type": "text/x"}
    }
    writer = member(files.stage, may("system_files", action="create", **body), may("system_files"))
    file = files.send("POST", "/files", ("file", b"x", "x.txt"), client=writer).data
    assert (file["storage"], file["filesize"], file["type"]) == ("local", 1, "text/plain")
    assert f"local/{file['filename_disk']}" in files.contents()


def test_a_hidden_folder_with_something_in_it_is_deleted_like_one_that_is_not_there(
    files: FileService,
) -> None:
    keys = [
        files.admin.post("/folders", {"name": name}).data["id"]
        for name in ("empty", "full", "nested")
    ]
    files.add(folder=keys[1])
    files.admin.post("/folders", {"name": "below", "parent": keys[2]})
    rule = {"name": {"_eq": "seen"}}
    clerk = member(
        files.stage,
        *(may("system_folders", action=one, permissions=rule) for one in ("read", "delete")),
    )
    with files.nothing_stays():
        missing, *hidden = [clerk.delete(f"/folders/{key}") for key in (str(uuid4()), *keys)]
        assert (missing.status, missing.codes) == (404, ["NOT_FOUND"])
        assert [answer.content for answer in hidden] == [missing.content] * 3
        assert [clerk.delete("/folders", [key]).content for key in keys] == [missing.content] * 3


def test_changes_and_deletions_keep_to_the_rows_of_the_rule(files: FileService) -> None:
    mine = files.add(title="mine")
    other = files.add(title="other")
    rule = {"title": {"_eq": "mine"}}
    writer = member(
        files.stage,
        may("system_files"),
        may("system_files", "description", "filename_download", action="update", permissions=rule),
        may("system_files", action="delete", permissions=rule),
    )
    assert writer.patch(f"/files/{mine['id']}", {"description": "d"}).data["description"] == "d"
    assert (
        files.send("PATCH", f"/files/{mine['id']}", ("file", b"new", "n.txt"), client=writer).data[
            "filesize"
        ]
        == 3
    )
    with files.nothing_stays():
        for answer in (
            writer.patch(f"/files/{mine['id']}", {"title": "x"}),
            writer.patch(f"/files/{other['id']}", {"description": "d"}),
            writer.patch(
                "/files", {"keys": [mine["id"], other["id"]], "data": {"description": "d"}}
            ),
            files.send("PATCH", f"/files/{other['id']}", ("file", b"new", "n.txt"), client=writer),
            writer.delete(f"/files/{other['id']}"),
            writer.delete("/files", [mine["id"], other["id"]]),
        ):
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert writer.delete(f"/files/{mine['id']}").status == 204


def test_a_folder_goes_only_by_who_may_delete_all_that_is_in_it(files: FileService) -> None:
    top = files.admin.post("/folders", {"name": "top"}).data["id"]
    files.admin.post("/folders", {"name": "in", "parent": top})
    kept = files.add(folder=top)
    folders_only = member(
        files.stage, *[right for right in EVERYTHING if right["collection"] == "system_folders"]
    )
    not_that_one = member(
        files.stage,
        *[right for right in EVERYTHING if right["collection"] == "system_folders"],
        may("system_files", permissions={"id": {"_neq": kept["id"]}}),
        may("system_files", action="delete", permissions={"id": {"_neq": kept["id"]}}),
    )
    rows = files.stage.value("SELECT count(*) FROM system_folders")
    with files.nothing_stays():
        for client in (folders_only, not_that_one):
            answer = client.delete(f"/folders/{top}")
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert files.stage.value("SELECT count(*) FROM system_folders") == rows
    assert member(files.stage, *EVERYTHING).delete(f"/folders/{top}").status == 204
    empty = files.admin.post("/folders", {"name": "empty"}).data["id"]
    assert folders_only.delete(f"/folders/{empty}").status == 204


def test_everything_done_to_a_file_is_in_its_history(files: FileService) -> None:
    key = files.add(title="one")["id"]
    files.admin.patch(f"/files/{key}", {"title": "two"})
    files.send("PATCH", f"/files/{key}", ("file", b"%PDF-1.7", "b.pdf"))
    files.admin.delete(f"/files/{key}")
    query = f"filter[collection]=system_files&filter[item]={key}&sort=id"
    activities = [row["action"] for row in files.admin.get(f"/activity?{query}").data]
    assert activities == ["upload", "update", "update", "delete"]
    created, renamed, replaced, gone = files.admin.get(f"/revisions?{query}").data
    assert (created["data"]["title"], renamed["delta"]["title"]) == ("one", "two")
    assert (replaced["delta"]["type"], gone["data"]["filename_download"]) == (
        "application/pdf",
        "b.pdf",
    )


def test_items_that_lose_a_deleted_file_have_it_in_their_history(files: FileService) -> None:
    api = files.admin
    key = files.add()["id"]
    cover = {"field": "cover", "type": "uuid", "meta": {"special": ["file"]}}
    assert (
        api.post("/collections", {"collection": "books", "schema": {}, "fields": [cover]}).status
        == 200
    )
    relation = {"collection": "books", "field": "cover", "related_collection": "system_files"}
    assert api.post("/relations", relation).status == 200
    api.post("/items/books", {"cover": key})
    assert api.delete(f"/files/{key}").status == 204
    creation, changed = api.get("/items/books/1/revisions?sort=id").data
    assert (creation["delta"]["cover"], changed["delta"]) == (key, {"cover": None})
    (gone,) = api.get(f"/revisions?filter[item]={key}&filter[activity][action]=delete").data
    assert changed["parent"] == gone["id"]


def test_of_two_who_change_one_version_one_is_let_through(files: FileService) -> None:
    key = files.add()["id"]
    tag = files.admin.get(f"/files/{key}").headers["etag"]

    def one(number: int) -> int:
        headers = {"If-Match": tag}
        if number % 2:
            raw = form(("file", str(number).encode(), "x.txt"))
            return files.admin.send(
                "PATCH", f"/files/{key}", raw=raw, **{**headers, "Content-Type": FORM}
            ).status
        return files.admin.send("PATCH", f"/files/{key}", {"title": str(number)}, **headers).status

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(one, range(6))) == [200, 412, 412, 412, 412, 412]
    with files.nothing_stays():
        assert files.admin.send("DELETE", f"/files/{key}", **{"If-Match": tag}).status == 412
    now = files.admin.get(f"/files/{key}").headers["etag"]
    assert files.admin.send("DELETE", f"/files/{key}", **{"If-Match": now}).status == 204


def test_an_upload_that_is_sent_twice_under_one_key_makes_one_file(files: FileService) -> None:
    def send(content: bytes, key: str = "k") -> Any:
        headers = {"Content-Type": FORM, "Idempotency-Key": key}
        return files.admin.send(
            "POST", "/files", raw=form(("title", "T"), ("file", content, "x.txt")), **headers
        )

    first = send(b"same")
    with files.nothing_stays():
        with ThreadPoolExecutor(3) as pool:
            assert {answer.text for answer in pool.map(send, [b"same"] * 3)} == {first.text}
        assert send(b"other").status == 422
    assert send(b"same", "another").data["id"] != first.data["id"]


def test_a_json_upload_and_a_folder_are_made_once_under_one_key(files: FileService) -> None:
    for path, body in (
        ("/files", {"filename_download": "a", "data": "eA=="}),
        ("/folders", {"name": "f"}),
    ):
        headers = {"Idempotency-Key": path}
        first = files.admin.send("POST", path, body, **headers)
        with files.nothing_stays():
            assert files.admin.send("POST", path, body, **headers).text == first.text
            assert files.admin.send("POST", path, {**body, "x": 1}, **headers).status in (400, 422)


CALLS = [
    ("GET", "/files"),
    ("SEARCH", "/files"),
    ("POST", "/files"),
    ("POST", "/files/import"),
    ("PATCH", "/files"),
    ("DELETE", "/files"),
    ("GET", "/folders"),
    ("SEARCH", "/folders"),
    ("POST", "/folders"),
    ("PATCH", "/folders"),
    ("DELETE", "/folders"),
    *(
        (method, path)
        for path in ("/files/{file}", "/folders/{folder}")
        for method in ("GET", "PATCH", "DELETE")
    ),
]


def test_every_call_needs_a_right_of_its_own(files: FileService) -> None:
    folder = files.admin.post("/folders", {"name": "kept"}).data["id"]
    file = files.add(folder=folder)["id"]
    others = member(files.stage, may("system_users"))
    with files.nothing_stays():
        for client in (files.stage.anonymous, others):
            for method, path in CALLS:
                body = {
                    "keys": [file],
                    "data": {},
                    "filename_download": "a",
                    "name": "x",
                    "url": "http://127.0.0.1/",
                }
                takes_none = method == "SEARCH" or (method == "DELETE" and "{" in path)
                answer = client.send(
                    method, path.format(file=file, folder=folder), {} if takes_none else body
                )
                assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), (
                    f"{method} {path}: {answer.text}"
                )
            for method, path in (("POST", "/files"), ("PATCH", f"/files/{file}")):
                assert (
                    files.send(method, path, ("file", b"x", "x.txt"), client=client).status == 403
                )


def test_the_row_of_a_file_is_written_by_the_calls_on_files_alone(files: FileService) -> None:
    """Else a row could name the content of another."""
    other = files.add(b"secret")
    file = files.add(b"mine")
    stolen = {"storage": "local", "filename_disk": other["filename_disk"], "filename_download": "a"}
    covers = table(files.admin, field("image", "uuid", special="file"))
    relation = {"collection": covers.name, "field": "image", "related_collection": "system_files"}
    assert files.admin.post("/relations", relation).status == 200
    files.send("PATCH", f"/files/{file['id']}", ("file", b"changed", "b.txt"))
    first = files.admin.get(f"/revisions?filter[item]={file['id']}&sort=id&limit=1").data[0]["id"]
    with files.nothing_stays():
        for method, path, body in (
            ("POST", "/items/system_files", stolen),
            ("PATCH", f"/items/system_files/{file['id']}", stolen),
            ("POST", covers.path, {"image": stolen}),
            ("POST", covers.path, {"image": {"id": file["id"], **stolen}}),
            ("PATCH", "/users/me", {"avatar": {"id": file["id"], **stolen}}),
            ("POST", f"/utils/revert/{first}", None),
        ):
            assert files.admin.send(method, path, body).status == 403, path
    assert files.admin.post(covers.path, {"image": {"id": file["id"]}}).data["image"] == file["id"]
    assert files.admin.get(f"/files/{file['id']}").data["filesize"] == len(b"changed")
