"""Keys in paths: any character, percent-encoded."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from tests.client import Client
from tests.things import Stage, field

KEYS = (
    "a/b",
    "/",
    "//x",
    "50%",
    "a%2Fb",
    "what?",
    "a#b",
    "a b+c",
    "..",
    "../..",
    "grün/日本",
    "x;y=z&u",
    "%",
    "%2",
    "%zz",
    "a\\b",
    '"',
)


@pytest.fixture(scope="module")
def pages_path(admin: Client) -> str:
    key = field("id", "string", is_primary_key=True)
    body = {"collection": "pages", "schema": {}, "fields": [key, field("title", "string")]}
    assert admin.post("/collections", body).status == 200
    assert admin.post("/items/pages", [{"id": key, "title": key} for key in KEYS]).status == 200
    return "/items/pages"


def encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


@pytest.mark.quick(5)
@pytest.mark.parametrize("key", KEYS)
def test_a_key_may_hold_any_character(admin: Client, pages_path: str, key: str) -> None:
    path = f"{pages_path}/{encoded(key)}"
    assert admin.get(path).data == {"id": key, "title": key}
    assert admin.get(path.replace("%2F", "%2f")).data["id"] == key
    assert admin.get(f"{path}?fields=title&filter[title][_neq]=a%2Fb/c").data == {"title": key}
    assert admin.send("HEAD", path).status == 200
    assert admin.get(f"{path}/revisions").data[0]["item"] == key
    assert admin.get(f"/permissions/me/pages/{encoded(key)}").data["update"]["access"] is True


def test_items_of_such_keys_are_changed_and_deleted(admin: Client, pages_path: str) -> None:
    admin.post(pages_path, {"id": "to/go", "title": "new"})
    assert admin.patch(f"{pages_path}/to%2Fgo", {"title": "changed"}).data["title"] == "changed"
    assert admin.get(f"{pages_path}/to%2Fgo").data["title"] == "changed"
    assert admin.delete(f"{pages_path}/to%2Fgo").status == 204
    assert admin.get(f"{pages_path}/to%2Fgo").status == 404


def test_an_encoded_slash_parts_no_names(admin: Client, pages_path: str) -> None:
    for path in (
        "/items%2Fpages",
        "/items%2Fpages/x",
        f"{pages_path}%2F50%25",
        "/%2Fitems/pages",
        "/server%2fping",
    ):
        assert admin.get(path).status == 404, path
    assert admin.get(f"{pages_path}/a/b").codes == ["ROUTE_NOT_FOUND"]
    assert admin.get(f"{pages_path}/a%2Fb%2Frevisions").codes == ["NOT_FOUND"]
    assert admin.get(f"{pages_path}/a%252Fb").data["id"] == "a%2Fb"
    assert admin.get("/server/x/../ping").status == 404
    assert admin.get("/server/%2e%2e/server/ping").status == 404


def test_what_is_no_encoding_stays_as_it_is(admin: Client, pages_path: str) -> None:
    for path, key in (
        ("50%", "50%"),
        ("%zz", "%zz"),
        ("%2", "%2"),
        ("a%%2Fb", None),
        ("%ff%2F", None),
        ("a%00%2Fb", None),
    ):
        answer = admin.get(f"{pages_path}/{path}")
        assert (answer.status, answer.body.get("data", {}).get("id")) == (
            (200, key) if key else (404, None)
        ), path


def test_a_slash_at_the_end_of_a_path_changes_nothing(admin: Client, pages_path: str) -> None:
    assert admin.get("/collections/").data == admin.get("/collections").data
    assert admin.get(f"{pages_path}/").data == admin.get(pages_path).data
    assert admin.get(f"{pages_path}/?filter[id]=a%2Fb&fields=id").data == [{"id": "a/b"}]
    assert admin.search(f"{pages_path}/", {"limit": 1}).status == 200
    permission = {"collection": "pages", "action": "read", "fields": ["id"]}
    created = admin.post("/permissions/", permission).data["id"]
    assert admin.patch(f"/permissions/{created}/", {"fields": ["title"]}).status == 200
    assert admin.delete(f"/permissions/{created}/").status == 204
    assert admin.send("HEAD", "/server/ping/").status == 200
    assert admin.get("/server/ping/").text == admin.get("/server/ping").text
    for path in ("/collections//", f"{pages_path}//", "//", "/nothing/"):
        assert admin.get(path).status == 404, path


def test_only_a_slash_that_is_not_encoded_may_be_left_out(admin: Client, pages_path: str) -> None:
    admin.post(pages_path, [{"id": "end/", "title": "with"}, {"id": "end", "title": "without"}])
    for path, title in (
        ("end", "without"),
        ("end/", "without"),
        ("end%2F", "with"),
        ("end%2F/", "with"),
    ):
        assert admin.get(f"{pages_path}/{path}").data["title"] == title, path
    assert admin.get(f"{pages_path}/gr%C3%BCn%2F%E6%97%A5%E6%9C%AC/").data["title"] == "grün/日本"
    assert admin.get(f"{pages_path}/a%2Fb//").status == 404
    assert admin.delete(pages_path, ["end", "end/"]).status == 204


def test_a_path_with_a_slash_at_its_end_is_logged_without_it(
    admin: Client, pages_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="cms.access"):
        admin.get(f"{pages_path}/?limit=1")
    assert [record.getMessage() for record in caplog.records] == [f"GET {pages_path} 200"]


@pytest.fixture
def call_application(stage: Stage, pages_path: str) -> Callable[..., tuple[int, bytes]]:
    """Call the application as servers do: `call_application(path_info, **environ)`."""

    def call(path_info: str, **environ: str) -> tuple[int, bytes]:
        statuses: list[str] = []

        def start(
            status: str, headers: object, exc_info: object = None
        ) -> Callable[[bytes], object]:
            statuses.append(status)
            return lambda body: None

        token = stage.admin._token
        streams = {"wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO()}
        environment = {
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": "",
            "PATH_INFO": path_info,
            "QUERY_STRING": "",
            "SERVER_NAME": "x",
            "SERVER_PORT": "80",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_AUTHORIZATION": f"Bearer {token}",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.url_scheme": "http",
            **streams,
            **environ,
        }
        body = b"".join(stage.admin.app(environment, start))
        return int(statuses[0].split()[0]), body

    return call


@pytest.mark.parametrize(
    ("path_info", "environ"),
    [
        ("/items/pages/a/b", {"RAW_URI": "/items/pages/a%2Fb?x=%2F"}),
        ("/items/pages/a/b", {"REQUEST_URI": "/items/pages/a%2fb"}),
        ("/items/pages/a/b", {"RAW_URI": "http://example.com/items/pages/a%2Fb?x"}),
        ("/items/pages/a/b", {"REQUEST_URI": "HTTP://example.com:80/items/pages/a%2Fb"}),
        ("/items/pages/a/b", {"RAW_URI": "/cms/items/pages/a%2Fb", "SCRIPT_NAME": "/cms"}),
        ("/items/pages/a/b", {"RAW_URI": "/c%6ds/items/pages/a%2Fb", "SCRIPT_NAME": "/cms"}),
        ("/items/pages/a/b", {"RAW_URI": "/cms/items/pages/a%2Fb"}),
        ("/items/pages/a/b/", {"RAW_URI": "/cms/items/pages/a%2Fb/?x", "SCRIPT_NAME": "/cms"}),
        ("/items/pages/a/b", {"RAW_URI": "http://x/cms/items/pages/a%2Fb", "SCRIPT_NAME": "/cms"}),
    ],
)
def test_the_target_of_the_request_decides_which_slashes_are_of_the_key(
    call_application: Callable[..., tuple[int, bytes]], path_info: str, environ: dict[str, str]
) -> None:
    status, body = call_application(path_info, **environ)
    assert (status, b'"id":"a/b"' in body) == (200, True)


@pytest.mark.parametrize(
    ("path_info", "environ", "status"),
    [
        ("/items/pages/50%", {}, 200),
        ("/items/pages/a/b", {}, 404),
        ("/items/pages/50%", {"RAW_URI": "/other/a%2Fb"}, 200),
        ("/items/pages/50%", {"RAW_URI": "*%2F"}, 200),
        ("/items/pages/50%", {"RAW_URI": "\u20ac%2F"}, 200),
        ("", {"RAW_URI": "http://example.com"}, 404),
        ("/", {"RAW_URI": "/%2F"}, 404),
        ("/server/ping", {"RAW_URI": "/server%2Fping"}, 404),
        ("/items/pages/50%", {"RAW_URI": "/cms%2Fitems/pages/50%25", "SCRIPT_NAME": "/cms"}, 404),
    ],
)
def test_without_such_a_target_the_path_counts(
    call_application: Callable[..., tuple[int, bytes]],
    path_info: str,
    environ: dict[str, str],
    status: int,
) -> None:
    assert call_application(path_info, **environ)[0] == status
