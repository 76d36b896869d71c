"""The examples of docs/embedding.md as they stand there: Flask and Django, behind
`DispatcherMiddleware` and WhiteNoise, with the service under /cms.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit
from wsgiref.util import FileWrapper

import pytest
import webtest

from cms.auth import accounts
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.embedding.hosts import EMAIL, ORIGIN, Host

CONTENT = bytes(range(256)) * 4_000


@pytest.fixture(scope="module", autouse=True)
def rights_on_pages(host: Host) -> None:
    """Ada may read and create pages and files, and the public may not."""
    admin = host.admin
    key = {"field": "id", "type": "string", "schema": {"is_primary_key": True}}
    collection = {"collection": "pages", "schema": {}, "fields": [key]}
    assert admin.post("/collections", collection).status == 200
    role = admin.post("/roles", {"name": "Writers"}).data["id"]
    for name in ("pages", "system_files"):
        for action in ("read", "create"):
            permission = {"role": role, "collection": name, "action": action, "fields": ["*"]}
            assert admin.post("/permissions", permission).status == 200
    (ada,) = admin.get("/users", **{"filter[email][_eq]": EMAIL}).data
    assert admin.patch(f"/users/{ada['id']}", {"role": role}).status == 200
    assert admin.post("/items/pages", {"id": "a/b"}).status == 200


def codes(answer: webtest.TestResponse) -> tuple[int, list[str]]:
    return answer.status_int, [error["extensions"]["code"] for error in answer.json["errors"]]


def create(browser: webtest.TestApp, key: str, **headers: str) -> webtest.TestResponse:
    return browser.post_json("/cms/items/pages", {"id": key}, headers=headers, expect_errors=True)


def upload(browser: webtest.TestApp) -> str:
    files = [("file", "a.bin", CONTENT)]
    answer = browser.post("/cms/files", {}, {"Origin": ORIGIN}, upload_files=files)
    return f"/cms/assets/{answer.json['data']['id']}"


def test_who_signs_in_to_the_application_is_signed_in_to_the_service(host: Host) -> None:
    stranger = host.browser()
    assert codes(stranger.get("/cms/items/pages", status=403)) == (403, ["FORBIDDEN"])
    ada = host.ada()
    assert ada.get("/cms/items/pages/a%2Fb", extra_environ=raw("/cms/items/pages/a%2Fb")).json
    me = ada.get("/cms/users/me?fields=id").json["data"]["id"]
    assert host.admin.get(f"/users/{me}").data["email"] == EMAIL


def raw(target: str) -> dict[str, str]:
    """What servers pass on of a request's target."""
    return {"REQUEST_URI": target, "RAW_URI": target}


def test_who_signs_out_is_public_again(host: Host) -> None:
    ada = host.ada()
    assert ada.get("/cms/items/pages").status_int == 200
    ada.reset()
    assert ada.get("/cms/items/pages", status=403)


def test_a_user_of_the_application_alone_is_refused(host: Host) -> None:
    ada = host.ada()
    (row,) = host.admin.get("/users", **{"filter[email][_eq]": EMAIL}).data
    for status, expected in (("suspended", 401), ("active", 200)):
        assert host.admin.patch(f"/users/{row['id']}", {"status": status}).status == 200
        assert ada.get("/cms/items/pages", status=expected)


def test_the_application_and_its_static_files_go_on(host: Host) -> None:
    ada = host.ada()
    assert "navy" in ada.get("/static/shop.css").text
    home = "/admin/" if "/admin/" in str(ada.get("/", expect_errors=True).location) else None
    assert home is None or ada.get(home).status_int == 200
    assert ada.get("/cmsx", expect_errors=True).status_int == 404
    assert codes(ada.get("/cms", status=404)) == (404, ["ROUTE_NOT_FOUND"])


def test_pages_of_the_application_write_and_those_of_other_sites_do_not(host: Host) -> None:
    ada = host.ada()
    assert create(ada, "own", Origin=ORIGIN).status_int == 200
    assert codes(create(ada, "other", Origin="https://other.example")) == (403, ["FORBIDDEN"])
    assert codes(create(ada, "none")) == (403, ["FORBIDDEN"])
    names = {row["id"] for row in ada.get("/cms/items/pages").json["data"]}
    assert names == {"a/b", "own"}


def test_history_records_who_it_was(host: Host) -> None:
    create(host.ada(), "with history", Origin=ORIGIN)
    params = {"filter[item][_eq]": "with history", "fields": "action,user.email"}
    activity = host.admin.get("/activity", **params).data
    assert activity == [{"action": "create", "user": {"email": EMAIL}}]


def test_a_token_comes_before_who_is_signed_in(host: Host) -> None:
    token = accounts.make_token(str(host.config.database_url), email=ADMIN_EMAIL)
    ada = host.ada()
    ada.authorization = ("Bearer", token)
    assert ada.get("/cms/roles").status_int == 200
    # Programs need no origin.
    assert create(ada, "by token").status_int == 200


def test_logins_of_the_service_work_beside_those_of_the_application(host: Host) -> None:
    browser = host.browser()
    body = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD, "mode": "session"}
    login = browser.post_json("/cms/auth/login", body)
    assert "Path=/cms;" in f"{login.headers['Set-Cookie']};"
    assert browser.get("/cms/roles").status_int == 200
    assert create(browser, "by cookie", Origin=ORIGIN).status_int == 200
    refresh = browser.post_json("/cms/auth/login", {**body, "mode": "cookie"})
    assert "Path=/cms/auth;" in f"{refresh.headers['Set-Cookie']};"
    assert browser.post_json("/cms/auth/logout", {}, headers={"Origin": ORIGIN}).status_int == 204


def test_logins_by_providers_come_back_to_the_prefix(host: Host) -> None:
    answer = host.browser().get("/cms/auth/login/club", status=302)
    query = parse_qs(urlsplit(answer.location).query)
    assert query["redirect_uri"] == [f"{ORIGIN}/cms/auth/login/club/callback"]
    assert "Path=/cms/auth/login/club;" in f"{answer.headers['Set-Cookie']};"


def test_the_description_names_the_prefix(host: Host) -> None:
    document = host.ada().get("/cms/server/specs/oas").json
    assert document["servers"][0]["url"] == "/cms"


@pytest.mark.parametrize("more", [{}, {"wsgi.file_wrapper": FileWrapper}])
def test_files_are_sent_whole_and_in_parts(host: Host, more: dict[str, Any]) -> None:
    ada = host.ada()
    path = upload(ada)
    assert ada.get(path, extra_environ=more).body == CONTENT
    part = ada.get(path, headers={"Range": "bytes=10-19"}, extra_environ=more, status=206)
    assert part.body == CONTENT[10:20]
    head = ada.head(path, extra_environ=more)
    assert (head.content_length, head.body) == (len(CONTENT), b"")
    tag = {"If-None-Match": ada.get(path).headers["ETag"]}
    assert ada.get(path, headers=tag, extra_environ=more, status=304).body == b""
    assert host.browser().get(path, headers=tag, status=403)


def test_exports_are_streamed(host: Host) -> None:
    lines = host.ada().get("/cms/items/pages?export=csv").text.splitlines()
    assert lines[0] == "id"
    assert "a/b" in lines
