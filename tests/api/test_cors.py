"""Cross-origin requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cms.app import create_app
from cms.config import Config
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client
from tests.things import Stage

APP = "https://app.example"
OTHER = "https://other.example"


@pytest.fixture(scope="module")
def named(stage: Stage, settings: Config) -> Iterator[Client]:
    """The service with one site that is named."""
    yield from client(stage, settings, cors_origin=(APP,))


@pytest.fixture(scope="module")
def anybody(stage: Stage, settings: Config) -> Iterator[Client]:
    """The service open to all sites."""
    yield from client(stage, settings, cors_origin=("*",))


def client(stage: Stage, settings: Config, **changes: object) -> Iterator[Client]:
    config = replace(settings, database_url=stage.dsn, database_pool_size=2, cors_enabled=True)
    config = replace(config, **changes)  # type: ignore[arg-type]
    client = Client(create_app(config))
    yield client
    client.close()


def preflight(client: Client, origin: str, path: str = "/items/articles/7") -> Answer:
    return client.send("OPTIONS", path, Origin=origin, **{"Access-Control-Request-Method": "PATCH"})


def allowed(answer: Answer) -> tuple[str | None, str | None]:
    headers = answer.headers
    return headers.get("access-control-allow-origin"), headers.get(
        "access-control-allow-credentials"
    )


def test_a_preflight_of_a_named_site_gets_what_it_may_do(named: Client) -> None:
    answer = preflight(named, APP)
    assert (answer.status, answer.text) == (204, "")
    assert allowed(answer) == (APP, "true")
    assert "PATCH" in answer.headers["access-control-allow-methods"].split(", ")
    assert "Authorization" in answer.headers["access-control-allow-headers"].split(", ")
    assert answer.headers["access-control-max-age"] == "18000"
    assert answer.headers["vary"] == "Origin"


def test_answers_name_the_site_errors_too(named: Client) -> None:
    for path in ("/server/ping", "/nowhere", "/items/nowhere", "/users/me"):
        answer = named.send("GET", path, Origin=APP)
        assert allowed(answer) == (APP, "true")
        assert "ETag" in answer.headers["access-control-expose-headers"].split(", "), path


def test_other_sites_get_no_headers_of_cors(named: Client) -> None:
    for origin in (
        OTHER,
        "null",
        "https://app.example.evil.example",
        "https://app.example:8443",
        "http://app.example",
    ):
        assert allowed(preflight(named, origin)) == (None, None)
        assert allowed(named.send("GET", "/server/ping", Origin=origin)) == (None, None)


def test_anybody_never_means_with_cookies(anybody: Client) -> None:
    assert allowed(anybody.send("GET", "/server/ping", Origin=OTHER)) == ("*", None)
    assert allowed(preflight(anybody, OTHER)) == ("*", None)


def test_without_cors_no_header_allows_anything(stage: Stage) -> None:
    assert allowed(stage.anonymous.send("GET", "/server/ping", Origin=APP)) == (None, None)
    assert allowed(preflight(stage.anonymous, APP, "/server/ping")) == (None, None)


def test_a_named_site_may_write_with_a_cookie_and_anybody_may_not(
    named: Client, anybody: Client
) -> None:
    credentials = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD, "mode": "session"}
    cookies = named.post("/auth/login", credentials).cookies
    cookie = f"cms_session_token={cookies['cms_session_token'].value}"
    assert named.send("POST", "/utils/cache/clear", Cookie=cookie, Origin=APP).status == 204
    assert named.send("POST", "/utils/cache/clear", Cookie=cookie, Origin=OTHER).status == 403
    assert anybody.send("POST", "/utils/cache/clear", Cookie=cookie, Origin=APP).status == 403


def test_an_ordinary_options_request_returns_the_methods(named: Client) -> None:
    answer = named.send("OPTIONS", "/server/ping", Origin=APP)
    assert answer.status == 200
    assert "GET" in answer.headers["allow"]
