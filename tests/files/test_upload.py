"""POST /files and PATCH /files/{id} by form: what arrives, what is
refused, and that nothing stays of what is.
"""

from __future__ import annotations

import hashlib
import itertools
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from cms.store.snapshot import Snapshot, Snapshots
from tests.client import Answer, Client
from tests.files.forms import BOUNDARY, FileService, form
from tests.members import may, member


def test_a_form_makes_a_file_with_its_content_in_the_storage(files: FileService) -> None:
    file = files.upload(("title", "A title"), ("file", b"hello", "My file.txt", "text/plain"))
    assert file["title"] == "A title"
    assert (file["filename_download"], file["type"], file["filesize"]) == (
        "My file.txt",
        "text/plain",
        5,
    )
    assert (file["storage"], file["folder"], file["modified_by"]) == ("local", None, None)
    assert file["uploaded_by"] == files.admin.get("/users/me").data["id"]
    assert files.contents()[f"local/{file['filename_disk']}"] == b"hello"
    assert file == files.admin.get(f"/files/{file['id']}").data


def test_fields_may_stand_before_or_behind_the_file(files: FileService) -> None:
    folder = files.admin.post("/folders", {"name": "in"}).data["id"]
    parts: list[Any] = [
        ("title", "T"),
        ("folder", folder),
        ("tags", '["a","b"]'),
        ("file", b"x", "x.txt"),
    ]
    for order in (parts, parts[::-1], [parts[3], *parts[:3]], [parts[0], parts[3], *parts[1:3]]):
        file = files.upload(*order)
        assert (file["title"], file["folder"], file["tags"]) == ("T", folder, ["a", "b"])


def test_several_files_give_an_array_each_with_its_own_fields(files: FileService) -> None:
    before = files.upload(
        ("title", "1"), ("file", b"a", "a.txt"), ("title", "2"), ("file", b"b", "b.txt")
    )
    behind = files.upload(
        ("file", b"a", "a.txt"), ("title", "1"), ("file", b"b", "b.txt"), ("title", "2")
    )
    for file in (before, behind):
        assert [(one["title"], one["filename_download"]) for one in file] == [
            ("1", "a.txt"),
            ("2", "b.txt"),
        ]


def test_a_file_without_a_title_gets_one_from_its_name(files: FileService) -> None:
    assert files.add(name="my-first_photo.v2.txt")["title"] == "My first photo.v2"


def test_words_with_commas_are_tags_too(files: FileService) -> None:
    assert files.add(tags="red, green,")["tags"] == ["red", "green"]


def test_a_location_may_be_named_before_or_behind_the_file(files: FileService) -> None:
    for parts in (
        [("storage", "other"), ("file", b"1", "a.txt")],
        [("file", b"1", "a.txt"), ("storage", "other")],
    ):
        uploaded = files.upload(*parts)  # type: ignore[arg-type]
        assert uploaded["storage"] == "other"
        paths = [path for path in files.contents() if path.endswith(uploaded["filename_disk"])]
        assert paths == [f"other/{uploaded['filename_disk']}"]


def test_a_location_that_is_not_set_up_is_refused(files: FileService) -> None:
    for parts in (
        [("storage", "no"), ("file", b"1", "a")],
        [("file", b"1", "a"), ("storage", "no")],
    ):
        with files.nothing_stays():
            answer = files.send("POST", "/files", *parts)  # type: ignore[arg-type]
            assert (answer.status, answer.errors[0]["field"]) == (400, "storage"), answer


def test_a_client_may_choose_the_id_once(files: FileService) -> None:
    key = str(uuid4())
    assert files.add(id=key)["id"] == key
    with files.nothing_stays():
        answer = files.send("POST", "/files", ("id", key), ("file", b"1", "a.txt"))
        assert (answer.status, answer.codes) == (400, ["RECORD_NOT_UNIQUE"])


def test_files_that_come_without_a_folder_go_to_the_usual_one(files: FileService) -> None:
    folder = files.admin.post("/folders", {"name": "usual"}).data["id"]
    files.stage.execute(f"UPDATE system_settings SET storage_default_folder = '{folder}'")
    try:
        assert files.add()["folder"] == folder
        assert files.add(folder="")["folder"] is None
    finally:
        files.stage.execute("UPDATE system_settings SET storage_default_folder = NULL")


def test_a_json_body_brings_the_content_in_base64(files: FileService) -> None:
    data = b64encode(b"\x89PNG\r\n\x1a\n...").decode()
    for encoded in (data, f"data:image/png;base64,{data}", f"{data[:4]}\n{data[4:]}"):
        body = {"filename_download": "p.png", "data": encoded, "title": "T", "storage": "other"}
        file = files.admin.post("/files?fields=*", body).data
        assert (file["type"], file["title"], file["filesize"]) == ("image/png", "T", 11), encoded
        assert files.contents()[f"other/{file['filename_disk']}"] == b"\x89PNG\r\n\x1a\n...", (
            encoded
        )


@pytest.mark.parametrize(
    "body",
    [
        {"filename_download": "a"},
        {"data": "eA=="},
        {"filename_download": "a", "data": "not base64!"},
        {"filename_download": 5, "data": "eA=="},
        {"filename_download": "a", "data": "eA==", "storage": 5},
        {"filename_download": "a", "data": "eA==", "tags": "\ud800"},
        {"filename_download": "a", "data": "eA==", "nonsense": 1},
        {"filename_download": "a", "data": "eA==", "folder": str(uuid4())},
        {"filename_download": "a", "data": "eA==", "folder": "x"},
        {"filename_download": "a", "data": "eA==", "focal_point_x": 1.5},
        {"filename_download": "a", "data": "eA==", "id": "x"},
        [],
        None,
    ],
)
def test_a_json_body_that_is_wrong_is_refused(files: FileService, body: Any) -> None:
    with files.nothing_stays():
        answer = files.admin.post("/files", body)
        assert answer.status == 400, answer.text


OWNED = [
    "filename_disk",
    "filesize",
    "type",
    "uploaded_by",
    "uploaded_on",
    "modified_on",
    "width",
    "metadata",
]


def test_what_belongs_to_the_service_is_refused_all_at_once(files: FileService) -> None:
    body = dict.fromkeys(OWNED, "1")
    key = files.add()["id"]
    with files.nothing_stays():
        for answer in (
            files.send("POST", "/files", *body.items(), ("file", b"x", "x")),
            files.send("PATCH", f"/files/{key}", *body.items(), ("file", b"x", "x")),
            files.admin.post("/files", {"filename_download": "a", "data": "eA==", **body}),
            files.admin.patch(f"/files/{key}", body),
            files.admin.patch("/files", {"keys": [key], "data": body}),
            files.admin.patch("/files", [{"id": key, **body}]),
        ):
            assert answer.status == 400, answer
            assert sorted(error["field"] for error in answer.errors) == sorted(OWNED), answer
        for wrong in ({"storage": "other"}, {"id": str(uuid4())}):
            assert files.admin.patch(f"/files/{key}", wrong).status == 400


def test_a_file_over_the_limit_is_refused_and_nothing_of_it_stays(files: FileService) -> None:
    assert files.add(b"x" * 100_000)["filesize"] == 100_000
    with files.nothing_stays():
        answer = files.send(
            "POST", "/files", ("file", b"first", "a.txt"), ("file", b"x" * 100_001, "b.txt")
        )
        assert (answer.status, answer.codes) == (413, ["CONTENT_TOO_LARGE"])


def test_the_files_of_a_form_have_one_limit_together(files: FileService) -> None:
    first = ("file", b"x" * 60_000, "a.txt")
    answer = files.send("POST", "/files", first, ("file", b"x" * 40_000, "b.txt"))
    assert answer.status == 200, answer
    with files.nothing_stays():
        answer = files.send("POST", "/files", first, ("file", b"x" * 40_001, "b.txt"))
        assert (answer.status, answer.codes) == (413, ["CONTENT_TOO_LARGE"])


def test_a_form_that_declares_too_large_a_size_is_refused_unread(files: FileService) -> None:
    with files.nothing_stays():
        headers = {
            "Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"',
            "Content-Length": "9000000",
        }
        answer = files.admin.send("POST", "/files", raw=form(("file", b"x", "x")), **headers)
        assert answer.status == 413


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (form(("title", "no file")), f'multipart/form-data; boundary="{BOUNDARY}"'),
        (form(("file", b"x", "x"), end=b""), f'multipart/form-data; boundary="{BOUNDARY}"'),
        (form(("file", b"x" * 5000, "x"))[:3000], f'multipart/form-data; boundary="{BOUNDARY}"'),
        (form(("file", b"x", "x")), "multipart/form-data"),
        (form(("file", b"x", "x")), "multipart/form-data; boundary=another"),
        (form(("file", b"x", "x")), f"multipart/form-data; boundary={'b' * 71}"),
        (b"", f'multipart/form-data; boundary="{BOUNDARY}"'),
        (
            form(("title", b"\xff\xfe"), ("file", b"x", "x")),
            f'multipart/form-data; boundary="{BOUNDARY}"',
        ),
        (
            form(("title", "x" * 2_000_000), ("file", b"x", "x")),
            f'multipart/form-data; boundary="{BOUNDARY}"',
        ),
        (
            form(("title", "a\0b"), ("file", b"x", "x")),
            f'multipart/form-data; boundary="{BOUNDARY}"',
        ),
        (form(("", "x"), ("file", b"x", "x")), f'multipart/form-data; boundary="{BOUNDARY}"'),
    ],
)
def test_a_form_that_is_none_is_refused_and_nothing_of_it_stays(
    files: FileService, raw: bytes, content_type: str
) -> None:
    with files.nothing_stays():
        answer = files.admin.send("POST", "/files", raw=raw, **{"Content-Type": content_type})
        assert answer.status in (400, 413), answer.text


def test_a_form_that_breaks_off_leaves_nothing(files: FileService) -> None:
    whole = form(("file", b"x" * 50_000, "x.txt"))
    with files.nothing_stays():
        for length in (len(whole) // 2, len(whole) - 3):
            headers = {
                "Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"',
                "Content-Length": str(len(whole)),
            }
            assert files.admin.send("POST", "/files", raw=whole[:length], **headers).status == 400


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\\\temp\\\\a.txt", "a.txt"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("naïve ünïcode 文.txt", "naïve ünïcode 文.txt"),
        ("x" * 300 + ".jpeg", "x" * 250 + ".jpeg"),
        ("..", "file"),
        ("a<b>.txt", "a_b_.txt"),
    ],
)
def test_a_name_is_made_fit_to_be_shown_and_sent(files: FileService, name: str, clean: str) -> None:
    assert files.add(name=name)["filename_download"] == clean


def test_no_name_breaks_a_header_or_leaves_its_folder(files: FileService) -> None:
    body = {"filename_download": "a\r\nSet-Cookie: x/../..\\b.txt", "data": "eA=="}
    file = files.admin.post("/files", body).data
    assert file["filename_download"] == "b.txt"
    assert (
        files.admin.patch(f"/files/{file['id']}", {"filename_download": "x/\n.."}).data[
            "filename_download"
        ]
        == "file"
    )


def test_an_input_without_a_chosen_file_is_none(files: FileService) -> None:
    assert files.upload(("more", b"", ""), ("file", b"x", "x.txt"))["filename_download"] == "x.txt"
    assert files.send("POST", "/files", ("file", b"", "")).status == 400


def test_an_empty_file_is_a_file(files: FileService) -> None:
    file = files.add(b"", "empty.txt")
    assert (file["filesize"], file["type"]) == (0, "text/plain")


def test_a_form_replaces_the_content_and_the_old_one_goes(files: FileService) -> None:
    before = files.add(b"before", "before.txt", title="T")
    file = files.send(
        "PATCH", f"/files/{before['id']}", ("file", b"%PDF-1.7", "after.pdf"), ("tags", "x")
    ).data
    assert (file["id"], file["title"], file["tags"]) == (before["id"], "T", ["x"])
    assert (file["filename_download"], file["type"], file["filesize"]) == (
        "after.pdf",
        "application/pdf",
        8,
    )
    assert file["modified_by"] == file["uploaded_by"]
    contents = files.contents()
    assert contents[f"local/{file['filename_disk']}"] == b"%PDF-1.7"
    assert f"local/{before['filename_disk']}" not in contents


def test_a_content_that_cannot_take_its_place_goes_and_the_old_one_stays(
    files: FileService,
) -> None:
    key = files.add()["id"]
    with files.nothing_stays():
        for path, parts in (
            (f"/files/{uuid4()}", [("file", b"x", "x")]),
            ("/files/nonsense", [("file", b"x", "x")]),
            (f"/files/{key}", [("file", b"x", "x"), ("folder", str(uuid4()))]),
            (f"/files/{key}", [("file", b"x", "x"), ("file", b"y", "y")]),
        ):
            assert files.send("PATCH", path, *parts).status in (400, 404)


LOST = """
CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
CREATE CONSTRAINT TRIGGER lost AFTER INSERT ON system_files DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION lose();
"""


def test_a_content_stays_when_it_is_unknown_whether_its_row_does(files: FileService) -> None:
    before = files.contents()
    files.stage.execute(LOST)
    try:
        answer = files.send("POST", "/files", ("file", b"x", "x.txt"))
    finally:
        files.stage.execute("DROP TRIGGER lost ON system_files")
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert len(files.contents()) == len(before) + 1  # the sweep removes it, or finds its row


BODY = {"filename_download": "a.txt", "data": b64encode(b"x").decode()}

DEADLOCKED = """
CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'deadlock_detected'; END $$;
CREATE CONSTRAINT TRIGGER given_up AFTER INSERT ON system_files DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION give_up();
"""


def test_an_upload_that_is_done_again_after_its_twin_leaves_no_content(
    files: FileService, another: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two with one Idempotency-Key: the first is given up once its row is
    written, and then the other is done.
    """
    twin = another()
    current = Snapshots.current
    answers: list[Answer] = []
    looks = itertools.count()

    def upload_by(client: Client) -> Answer:
        return client.send("POST", "/files", BODY, **{"Idempotency-Key": "twins"})

    def looked(self: Snapshots) -> Snapshot:
        if not answers and next(looks) == 2:  # the right to upload, the row, the row again
            files.stage.execute("DROP TRIGGER given_up ON system_files")
            answers.append(upload_by(twin))
        return current(self)

    before = len(files.contents())
    files.stage.execute(DEADLOCKED)
    assert files.admin.get("/files").status == 200  # which has it look at the structure again
    monkeypatch.setattr(Snapshots, "current", looked)
    answers.append(upload_by(files.admin))
    assert answers[0].data == answers[1].data
    assert len(files.contents()) == before + 1


def test_an_upload_with_a_key_takes_one_connection(another: Callable[..., Client]) -> None:
    client = another(database_pool_size=1)
    assert client.send("POST", "/files", BODY, **{"Idempotency-Key": "one"}).status == 200


def test_nobody_uploads_without_the_right_to(files: FileService) -> None:
    reader = member(files.stage, may("system_files"))
    key = files.add()["id"]
    with files.nothing_stays():
        for client in (files.stage.anonymous, reader):
            for method, path in (("POST", "/files"), ("PATCH", f"/files/{key}")):
                answer = files.send(method, path, ("file", b"x", "x"), client=client)
                assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
            assert client.delete(f"/files/{key}").status == 403
            assert client.post("/files/import", {"url": "http://example.com"}).status == 403
        assert reader.get(f"/files/{key}").data["id"] == key


def test_many_uploads_at_once_are_all_there(files: FileService) -> None:
    def one(number: int) -> tuple[str, str]:
        content = hashlib.sha256(str(number).encode()).hexdigest().encode() * 500
        file = files.add(content, f"{number}.txt")
        return file["filename_disk"], hashlib.sha256(content).hexdigest()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(one, range(24)))
    contents = files.contents()
    assert all(
        hashlib.sha256(contents[f"local/{path}"]).hexdigest() == digest for path, digest in answers
    )


SPLINTERS = [
    b"\r\n",
    b"--",
    b"\0",
    b"\xff",
    b'"',
    b";",
    b"filename*=utf-8''%ff",
    BOUNDARY.encode(),
    b"a: b\r\n\r\n",
]


@pytest.mark.release
@pytest.mark.parametrize("seed", range(4))
def test_a_form_that_is_spoilt_anywhere_is_answered_and_leaves_no_content_without_its_row(
    files: FileService, seed: int
) -> None:
    random = Random(seed)
    strays = len(files.contents()) - files.rows()
    whole = form(
        ("title", "T"),
        ("tags", "[1]"),
        ("file", b"x" * 200, "a.txt", "text/plain"),
        ("description", "d"),
    )
    headers = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}
    for _ in range(40):
        index = random.randrange(len(whole))
        spoilt = whole[:index] + random.choice(SPLINTERS) + whole[index + random.randrange(20) :]
        assert files.admin.send("POST", "/files", raw=spoilt, **headers).status in (200, 400), (
            spoilt
        )
    assert len(files.contents()) - files.rows() == strays
