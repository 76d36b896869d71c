"""Where the cookies of logins belong: to the folder that the service is mounted at."""

from __future__ import annotations

from time import process_time

import falcon
import pytest
from falcon import testing

from cms.auth.sessions import IssuedTokens, Mode
from cms.http.requests.cookies import Cookies, cookie_value
from cms.http.requests.request import Request


@pytest.mark.parametrize(
    ("public", "mounted", "mode", "path"),
    [
        ("", "", Mode.SESSION, "/"),
        ("", "", Mode.COOKIE, "/auth"),
        ("", "/cms", Mode.SESSION, "/cms"),
        ("", "/cms", Mode.COOKIE, "/cms/auth"),
        ("/public", "", Mode.COOKIE, "/public/auth"),
        ("/public", "/cms", Mode.SESSION, "/public"),
    ],
)
def test_a_cookie_goes_to_the_service_and_nowhere_else(
    public: str, mounted: str, mode: Mode, path: str
) -> None:
    request = Request(testing.create_environ(root_path=mounted))
    response = falcon.Response()
    Cookies(
        secure=True, same_site="Lax", path=public, refresh_life=60, session_life=60
    ).set_session(request, response, IssuedTokens(mode, "token", 1))
    [(_, cookie)] = response._wsgi_headers()[-1:]
    assert f"Path={path};" in f"{cookie};"
    assert "Secure" in cookie
    assert "HttpOnly" in cookie


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("a=1; token=x; b=2", "x"),
        ("token=x;token=y", "x"),
        ('token="x"', "x"),
        (" token = x ", "x"),
        ("other=1", None),
        ("token", ""),
        ("", None),
    ],
)
def test_a_cookie_is_found_in_the_header(header: str, value: str | None) -> None:
    request = Request(testing.create_environ(headers={"Cookie": header}))
    assert cookie_value(request, "token") == value


@pytest.mark.parametrize("piece", ['\\"', "\\", ";", "=", "a=b;", '"', " "])
def test_a_cookie_of_any_kind_takes_linear_time(piece: str) -> None:
    header = 'token="' + piece * 60_000
    request = Request(testing.create_environ(headers={"Cookie": header}))
    started = process_time()
    cookie_value(request, "token")
    assert process_time() - started < 1
