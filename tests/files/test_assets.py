"""Contents over HTTP: what is sent, under which headers, and to whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

import pytest

from cms.files.assets import Asset, AssetDelivery, Assets
from cms.http.assets import disposition
from tests.client import Answer, Client
from tests.files.forms import FileService
from tests.files.images import picture
from tests.members import may, member

TEXT = b"0123456789" * 10


@pytest.fixture(scope="module")
def text(files: FileService) -> str:
    """The path of a file of 100 bytes."""
    return f"/assets/{files.add(TEXT, 'digits.txt')['id']}"


def get(files: FileService, path: str, **headers: str) -> Answer:
    return files.admin.send(
        "GET", path, **{name.replace("_", "-"): value for name, value in headers.items()}
    )


def test_a_file_is_sent_as_it_was_uploaded(files: FileService, text: str) -> None:
    answer = get(files, text)
    assert (answer.status, answer.content) == (200, TEXT)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    assert headers["content-length"] == "100"
    assert headers["content-type"].startswith("text/plain")
    assert headers["content-disposition"] == 'inline; filename="digits.txt"'
    assert headers["accept-ranges"] == "bytes"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["cache-control"] == "private, max-age=2592000"
    assert headers["vary"] == "Origin"


def test_a_name_behind_the_id_changes_nothing_of_the_content(files: FileService, text: str) -> None:
    bare = get(files, text)
    named = get(files, f"{text}/picture.png")
    assert named.content == bare.content == TEXT
    for header in ("content-type", "etag", "content-security-policy", "x-content-type-options"):
        assert named.headers[header] == bare.headers[header]


@pytest.mark.parametrize(
    ("query", "kind"), [("", "inline"), ("?download", "attachment"), ("?download=false", "inline")]
)
def test_a_file_is_saved_when_that_is_asked_for(
    files: FileService, text: str, query: str, kind: str
) -> None:
    assert get(files, text + query).headers["content-disposition"].startswith(kind)


@pytest.mark.parametrize(
    ("path", "disposition"),
    [
        ("", 'inline; filename="a.txt"'),
        ("/report.txt", 'inline; filename="report.txt"'),
        ("/report.txt?download", 'attachment; filename="report.txt"'),
        ("/na%C3%AFve.txt", "inline; filename=\"naive.txt\"; filename*=UTF-8''na%C3%AFve.txt"),
        ("/a%22b%0D%0AX-Evil:%201.txt", 'inline; filename="a_bX-Evil_ 1.txt"'),
        ("/..%2F..%2Fpasswd", 'inline; filename="passwd"'),
        ("/%00", 'inline; filename="file"'),
    ],
)
def test_the_name_behind_the_id_names_the_download(
    files: FileService, path: str, disposition: str
) -> None:
    assert (
        get(files, f"/assets/{files.add(b'x', 'a.txt')['id']}{path}").headers["content-disposition"]
        == disposition
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", b"<!doctype html><html><script>alert(1)</script></html>"),
        (
            "a.svg",
            b'<?xml version="1.0"?><svg '
            b'xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        ),
        ("a.xml", b'<?xml version="1.0"?><a/>'),
        ("a.xhtml", b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"/>'),
    ],
)
def test_what_a_browser_would_run_is_only_saved(
    files: FileService, name: str, content: bytes
) -> None:
    answer = get(files, f"/assets/{files.add(content, name)['id']}?width=5")
    assert answer.content == content
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "declared", ["text/html", "application/a+b+xml", "x-a/b+xml", "text/xsl", "message/rfc822"]
)
def test_what_is_declared_as_something_to_run_is_only_saved(
    files: FileService, declared: str
) -> None:
    file = files.upload(("file", b"<x:script/>", "a", declared))
    assert file["type"] == declared
    answer = get(files, f"/assets/{file['id']}")
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("name", "disposition"),
    [
        (
            "Grüße 100%.txt",
            "filename=\"Grue 100_.txt\"; filename*=UTF-8''Gr%C3%BC%C3%9Fe%20100%25.txt",
        ),
        ("日本.txt", "filename=\"file.txt\"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.txt"),
    ],
)
def test_every_name_is_written_out(files: FileService, name: str, disposition: str) -> None:
    key = files.add()["id"]
    files.stage.admin.patch(f"/files/{key}", {"filename_download": name})
    assert get(files, f"/assets/{key}").headers["content-disposition"] == f"inline; {disposition}"


@pytest.mark.parametrize(
    ("byte_range", "content", "location"),
    [
        ("bytes=0-9", TEXT[:10], "bytes 0-9/100"),
        ("bytes=95-", TEXT[95:], "bytes 95-99/100"),
        ("bytes=-3", TEXT[-3:], "bytes 97-99/100"),
        ("bytes=-300", TEXT, "bytes 0-99/100"),
        ("bytes=90-1000", TEXT[90:], "bytes 90-99/100"),
        ("Bytes = 0 - 0", TEXT[:1], "bytes 0-0/100"),
    ],
)
def test_a_range_is_sent_alone(
    files: FileService, text: str, byte_range: str, content: bytes, location: str
) -> None:
    answer = get(files, text, Range=byte_range)
    assert (answer.status, answer.content) == (206, content)
    assert answer.headers["content-range"] == location
    assert answer.headers["content-length"] == str(len(content))


@pytest.mark.parametrize(
    "byte_range", ["bytes=0-1,5-6", "bytes=5-1", "bytes=-", "bytes=a-b", "lines=1-2", "bytes", ""]
)
def test_a_range_that_is_not_understood_is_as_if_it_were_not_there(
    files: FileService, text: str, byte_range: str
) -> None:
    answer = get(files, text, Range=byte_range)
    assert (answer.status, answer.content) == (200, TEXT)


@pytest.mark.parametrize("byte_range", ["bytes=100-", "bytes=1000-2000", "bytes=-0"])
def test_a_range_behind_the_end_is_refused(files: FileService, text: str, byte_range: str) -> None:
    answer = get(files, text, Range=byte_range)
    assert (answer.status, answer.codes) == (416, ["RANGE_NOT_SATISFIABLE"])
    assert answer.headers["content-range"] == "bytes */100"
    assert answer.headers["cache-control"] == "no-cache"


def test_a_range_of_an_older_content_is_all_of_the_new_one(files: FileService, text: str) -> None:
    first = get(files, text)
    for validator in (first.headers["etag"], first.headers["last-modified"]):
        assert get(files, text, Range="bytes=0-1", If_Range=validator).status == 206
    for validator in (
        '"other"',
        f"W/{first.headers['etag']}",
        "Mon, 01 Jan 2001 00:00:00 GMT",
        "nonsense",
    ):
        assert get(files, text, Range="bytes=0-1", If_Range=validator).status == 200


def test_a_client_that_holds_the_content_gets_304(files: FileService, text: str) -> None:
    first = get(files, text)
    tag = first.headers["etag"]
    modified = first.headers["last-modified"]
    assert parsedate_to_datetime(modified).tzinfo is not None
    for header in (tag, f'"x", W/{tag}', "*"):
        answer = get(files, text, If_None_Match=header)
        assert (answer.status, answer.content) == (304, b""), answer
        assert answer.headers["etag"] == tag
        assert "max-age" in answer.headers["cache-control"]
    assert get(files, text, If_Modified_Since=modified).status == 304
    assert get(files, text, If_Modified_Since="Mon, 01 Jan 2001 00:00:00 GMT").status == 200
    assert get(files, text, If_Modified_Since="yesterday").status == 200
    assert get(files, text, If_None_Match='"x"', If_Modified_Since=modified).status == 200


def test_a_new_content_has_a_new_tag_and_a_new_title_has_not(files: FileService) -> None:
    key = files.add()["id"]
    first = get(files, f"/assets/{key}").headers["etag"]
    files.admin.patch(f"/files/{key}", {"title": "Another"})
    assert get(files, f"/assets/{key}").headers["etag"] == first
    assert files.send("PATCH", f"/files/{key}", ("file", b"new text!", "a.txt")).status == 200
    answer = get(files, f"/assets/{key}")
    assert answer.content == b"new text!"
    assert answer.headers["etag"] != first


def test_head_answers_the_same_without_a_body(files: FileService, text: str) -> None:
    answer = files.admin.send("HEAD", text, Range="bytes=0-1")
    assert (answer.status, answer.content, answer.headers["content-length"]) == (200, b"", "100")


def test_what_is_not_there_is_not_found(files: FileService) -> None:
    key = files.add()["id"]
    (path,) = [path for path in files.folder.rglob("*") if path.stem == key]
    path.unlink()
    for unreadable_key in (key, str(uuid4()), "nonsense"):
        answer = get(files, f"/assets/{unreadable_key}")
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), answer
        assert "etag" not in answer.headers


def test_an_image_without_its_content_is_not_found(files: FileService) -> None:
    file = files.add(picture("PNG"), "a.png")
    (files.folder / "local" / file["filename_disk"]).unlink()
    answer = get(files, f"/assets/{file['id']}?width=5")
    assert (answer.status, answer.codes) == (404, ["NOT_FOUND"])


def test_a_content_that_is_exchanged_meanwhile_is_found_all_the_same(
    files: FileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = files.add(b"old text", "a.txt")["id"]
    delivery = Assets.delivery
    seen = list[str]()

    def late(self: Assets, asset: Asset) -> AssetDelivery:
        seen.append(asset.tag)
        if len(seen) == 1:
            assert (
                files.send("PATCH", f"/files/{key}", ("file", b"new text", "a.txt")).status == 200
            )
        return delivery(self, asset)

    monkeypatch.setattr(Assets, "delivery", late)
    for query in ("", "?download"):
        answer = get(files, f"/assets/{key}{query}")
        assert (answer.status, answer.content) == (200, b"new text"), answer


def test_large_contents_are_sent_in_pieces(files: FileService) -> None:
    content = bytes(range(256)) * 4000
    file = files.add(b"small", "a.bin")
    (files.folder / "local" / file["filename_disk"]).write_bytes(content)
    path = f"/assets/{file['id']}"
    assert get(files, path).content == content
    assert get(files, path, Range="bytes=300000-900000").content == content[300_000:900_001]
    head = files.admin.send("HEAD", path)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(content)))


def test_a_name_with_marks_of_its_own_stays_one_name() -> None:
    assert (
        disposition("inline", 'a"; x="b\\')
        == "inline; filename=\"a_; x=_b_\"; filename*=UTF-8''a%22%3B%20x%3D%22b%5C"
    )


# Rights


def rights(path: str, client: Any) -> tuple[int, list[str]]:
    answer = client.get(path)
    return answer.status, [] if answer.status == 200 else answer.codes


def test_who_may_not_read_files_may_not_read_contents(files: FileService, text: str) -> None:
    stage = files.stage
    assert rights(text, stage.anonymous) == (403, ["FORBIDDEN"])
    assert rights(text, member(stage)) == (403, ["FORBIDDEN"])
    assert rights(f"/assets/{uuid4()}", stage.anonymous) == (403, ["FORBIDDEN"])
    assert rights(text, member(stage, may("system_files", action="update"))) == (403, ["FORBIDDEN"])
    no_fields = {"collection": "system_files", "action": "read", "fields": []}
    assert rights(text, member(stage, no_fields)) == (403, ["FORBIDDEN"])


def test_a_content_goes_with_its_row_whatever_fields_are_shown(
    files: FileService, text: str
) -> None:
    key = text.rpartition("/")[2]
    rule = {"id": {"_eq": key}}
    some = member(files.stage, may("system_files", "title", permissions=rule))
    assert rights(text, some) == (200, [])
    assert rights(f"/assets/{files.add()['id']}", some) == (404, ["NOT_FOUND"])
    assert some.get(f"/files/{key}", fields="storage").status == 403


def test_a_text_comes_with_its_charset_and_a_new_content_with_its_own(files: FileService) -> None:
    file = files.add("grüße".encode(), "a.txt")
    assert (file["charset"], get(files, f"/assets/{file['id']}").headers["content-type"]) == (
        "utf-8",
        "text/plain; charset=utf-8",
    )
    files.send("PATCH", f"/files/{file['id']}", ("file", "grüße".encode("latin-1"), "a.txt"))
    assert get(files, f"/assets/{file['id']}").headers["content-type"] == "text/plain"
    assert files.admin.get(f"/files/{file['id']}").data["charset"] is None


@pytest.fixture
def logo(files: FileService) -> Iterator[str]:
    """A file that the settings name."""
    key = files.add(b"a public face", "logo.txt")["id"]
    files.stage.execute(f"UPDATE system_settings SET project_logo = '{key}'")
    yield str(key)
    files.stage.execute("UPDATE system_settings SET project_logo = NULL")


def test_public_files_of_the_settings_are_for_everybody(files: FileService, logo: str) -> None:
    for key in (logo, logo.upper()):
        answer = files.stage.anonymous.get(f"/assets/{key}")
        assert (answer.status, answer.content) == (200, b"a public face"), answer
        assert answer.headers["cache-control"].startswith("public")
    assert rights(f"/assets/{logo}", member(files.stage)) == (200, [])
    files.stage.execute("UPDATE system_settings SET project_logo = NULL")
    assert rights(f"/assets/{logo}", files.stage.anonymous) == (403, ["FORBIDDEN"])


@pytest.mark.parametrize(
    "field", ["project_logo", "public_favicon", "public_foreground", "public_background"]
)
def test_each_public_field_of_the_settings_shows_its_content_and_not_its_row(
    files: FileService, field: str
) -> None:
    image = files.add(picture("PNG"), "face.png")["id"]
    assert files.admin.patch("/settings", {field: image}).status == 200
    assert rights(f"/assets/{image}?width=5", files.stage.anonymous) == (200, [])
    assert rights(f"/files/{image}", files.stage.anonymous) == (403, ["FORBIDDEN"])
    assert files.admin.patch("/settings", {field: None}).status == 200
    assert rights(f"/assets/{image}?width=5", files.stage.anonymous) == (403, ["FORBIDDEN"])


def test_an_old_token_is_refused(files: FileService, text: str) -> None:
    assert rights(text, files.stage.anonymous.bearing("nonsense")) == (401, ["INVALID_TOKEN"])


# A proxy in front


@pytest.mark.parametrize(
    ("setting", "header", "start"),
    [
        ("x-sendfile", "X-Sendfile", "{0}/local/"),
        ("/protected", "X-Accel-Redirect", "/protected/local/"),
    ],
)
def test_a_proxy_gets_the_path_of_the_file_to_send(
    files: FileService, another: Callable[..., Client], setting: str, header: str, start: str
) -> None:
    file = files.add()
    answer = another(assets_sendfile=setting).send(
        "GET", f"/assets/{file['id']}", Range="bytes=0-1"
    )
    assert (answer.status, answer.content) == (200, b"")
    assert answer.headers[header.lower()] == start.format(files.folder) + file["filename_disk"]
    assert answer.headers["content-type"].startswith("text/plain")
    assert "content-range" not in answer.headers


def test_a_name_behind_the_id_may_hold_an_encoded_slash(files: FileService) -> None:
    key = files.add(TEXT, "digits.txt")["id"]
    assert get(files, f"/assets/{key}/a%2Fb%3F.txt").status == 200
    assert get(files, f"/assets/{key}/a/b.txt").status == 404


def test_the_address_of_an_asset_may_hold_a_token(files: FileService) -> None:
    path = f"/assets/{files.add(TEXT, 'digits.txt')['id']}"
    anonymous = files.stage.anonymous
    reader = member(files.stage, may("system_files"))
    token = reader._token
    assert anonymous.get(path).status == 403
    for name in ("", "/photo.txt", "/"):
        answer = anonymous.get(f"{path}{name}?access_token={token}")
        assert (answer.status, answer.content) == (200, TEXT), name
        assert answer.headers["cache-control"].startswith("private")
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert anonymous.send("HEAD", f"{path}?access_token={files.admin._token}").status == 200
    assert "referrer-policy" not in reader.get(path).headers
    for wrong in ("garbage", "a.b.c", f"{files.admin._token}x"):
        assert anonymous.get(f"{path}?access_token={wrong}").status == 401, wrong
    # The header is the caller's word, as it is beside a cookie.
    assert reader.get(f"{path}?access_token=garbage").status == 200
    cookie = {"Cookie": "cms_session_token=garbage"}
    assert anonymous.send("GET", f"{path}?access_token={token}", **cookie).status == 200


def test_no_other_address_may_hold_a_token(files: FileService) -> None:
    token = files.admin._token
    for method, path in (
        ("GET", "/files"),
        ("GET", "/users/me"),
        ("POST", "/files"),
        ("GET", "/server/info"),
        ("SEARCH", "/files"),
    ):
        answer = files.stage.anonymous.send(method, f"{path}?access_token={token}")
        assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), path
        assert "/assets" in answer.errors[0]["message"]
        assert str(token) not in answer.text


def test_a_token_in_an_address_is_not_logged(
    files: FileService, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = str(files.admin._token)
    with caplog.at_level("DEBUG"):
        files.stage.anonymous.get(f"{text}?access_token={token}")
        files.stage.anonymous.get(f"{text}?access_token={token}x")
    assert caplog.records
    assert not any(token in f"{record.getMessage()} {vars(record)}" for record in caplog.records)
