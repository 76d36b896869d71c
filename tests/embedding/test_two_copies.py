"""Two copies in one process, each on its own database: neither knows anything of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import webtest
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from cms.app import create_app
from cms.config import Config
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.metrics_text import Samples, samples_of, value
from tests.people import outcome
from tests.things import Stage, staged

Copies = tuple[Stage, Stage]


@pytest.fixture(scope="module")
def copies(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[Copies]:
    """Two copies whose settings differ in database and folder only, not even in SECRET."""
    with ExitStack() as stack:
        made = []
        for name in ("first", "second"):
            config = replace(
                settings,
                data_dir=tmp_path_factory.mktemp(name),
                rate_limiter_enabled=True,
                rate_limiter_per_second=1_000,
                rate_limiter_per_minute=10_000,
                rate_limiter_logins_per_account=5,
            )
            made.append(stack.enter_context(staged(config, make_database, template)))
        yield made[0], made[1]


def both(copies: Copies, path: str, **params: object) -> list[object]:
    return [copy.admin.get(path, **params).data for copy in copies]


def make_pages(copy: Stage, field: str, title: str) -> None:
    """Make a collection with one item; `field` has the type that the title needs."""
    kind = "integer" if title.isdecimal() else "string"
    fields = [{"field": field, "type": kind, "schema": {}}]
    copy.admin.post("/collections", {"collection": "pages", "schema": {}, "fields": fields})
    assert copy.admin.post("/items/pages", {field: title}).status == 200


def test_requests_of_the_same_text_are_answered_from_the_own_database(copies: Copies) -> None:
    first, second = copies
    make_pages(first, "title", "of the first")
    make_pages(second, "title", "7")
    for _ in range(3):
        assert both(copies, "/items/pages", fields="title") == [
            [{"title": "of the first"}],
            [{"title": 7}],
        ]
    filtered = {"filter[title][_neq]": "8", "fields": "title"}
    assert both(copies, "/items/pages", **filtered)[1] == [{"title": 7}]
    # A change of one structure is none of the other.
    field = {"field": "added", "type": "string", "schema": {}}
    assert first.admin.post("/fields/pages", field).status == 200
    assert second.admin.get("/items/pages", fields="added").status == 400


def test_rights_are_those_of_the_own_database(copies: Copies) -> None:
    first, second = copies
    permission = {"collection": "system_roles", "action": "read", "fields": ["*"]}
    assert first.admin.post("/permissions", permission).status == 200
    assert first.anonymous.get("/roles").status == 200
    assert second.anonymous.get("/roles").status == 403


@pytest.mark.parametrize("mode", ["json", "session"])
def test_logins_count_where_they_were_made_even_with_one_secret(copies: Copies, mode: str) -> None:
    first, second = copies
    body = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD, "mode": mode}
    answer = first.anonymous.post("/auth/login", body)
    assert answer.status == 200
    if mode == "json":
        headers = {"Authorization": f"Bearer {answer.data['access_token']}"}
    else:
        headers = {"Cookie": f"cms_session_token={answer.cookies['cms_session_token'].value}"}
    assert first.anonymous.send("GET", "/users/me", **headers).status == 200
    refused = second.anonymous.send("GET", "/users/me", **headers)
    assert outcome(refused) == (401, ["INVALID_TOKEN"])


def test_requests_to_one_do_not_count_for_the_other(copies: Copies) -> None:
    first, second = copies
    body = {"email": "nobody@example.com", "password": "wrong"}
    statuses = [first.anonymous.post("/auth/login", body).status for _ in range(6)]
    assert statuses == [401] * 5 + [429]
    assert second.anonymous.post("/auth/login", body).status == 401


def test_metrics_are_those_of_the_own_requests(copies: Copies) -> None:
    first, second = copies
    before = [pings(copy) for copy in copies]
    for _ in range(3):
        first.anonymous.get("/server/ping")
    assert [pings(first), pings(second)] == [before[0] + 3, before[1]]


def pings(copy: Stage) -> float:
    samples: Samples = samples_of(copy.admin.get("/metrics").text)
    labels = {"method": "GET", "route": "/server/ping", "status": "200"}
    return value(samples, "cms_requests_total", **labels)


def test_files_are_in_the_own_folder(copies: Copies) -> None:
    first, second = copies
    raw = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nmine\r\n--x--'
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    key = first.admin.send("POST", "/files", raw=raw, **form).data["id"]
    assert first.admin.get(f"/assets/{key}").text == "mine"
    assert second.admin.get(f"/assets/{key}").status in (403, 404)


def test_answers_of_flows_are_kept_for_the_own_callers(copies: Copies) -> None:
    """With the same ids, as where one database was copied from the other."""
    keys = {"id": "6f1d3f0e-0b9e-4a62-9d3f-000000000001"}
    for copy, text in zip(copies, ("first", "second"), strict=True):
        options = {"method": "GET", "cacheEnabled": True, "return": {"from": text}}
        flow = {**keys, "name": "f", "status": "active", "trigger": "webhook", "options": options}
        assert copy.admin.post("/flows", flow).status == 200
    path = f"/flows/trigger/{keys['id']}"
    for _ in range(2):
        assert both(copies, path) == [{"from": "first"}, {"from": "second"}]


def test_one_goes_on_when_the_other_is_closed(copies: Copies) -> None:
    first, second = copies
    first.admin.close()
    assert second.admin.get("/users/me").status == 200
    # A later request opens what was closed.
    assert first.admin.get("/users/me").status == 200


def test_each_has_its_own_prefix_and_function(copies: Copies, settings: Config) -> None:
    apps = []
    for copy, user in zip(copies, (ADMIN_EMAIL, None), strict=True):
        config = replace(settings, database_url=copy.dsn, database_pool_size=2)
        apps.append(create_app(config, identify=partial(always, user)))
    mounts: dict[str, Any] = {"/cms": apps[0], "/intranet": apps[1]}
    browser = webtest.TestApp(DispatcherMiddleware(Client(copies[0].admin.app).app, mounts))
    assert browser.get("/cms/users").status_int == 200
    assert browser.get("/intranet/users", status=403)
    assert browser.get("/users", status=403)
    for app in apps:
        app.close()


def always(user: str | None, environ: dict[str, Any]) -> str | None:
    return user


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("prefix", "written"),
    [
        ("/my cms", "/my%20cms"),
        ("/caf\xc3\xa9", "/caf%C3%A9"),
        ("/a; Domain=other.example", "/a%3B%20Domain=other.example"),
    ],
)
@pytest.mark.parametrize("mode", ["session", "cookie"])
def test_a_prefix_of_any_characters_is_written_as_in_addresses(
    copies: Copies, settings: Config, mode: str, prefix: str, written: str
) -> None:
    app = create_app(replace(settings, database_url=copies[0].dsn, database_pool_size=2))
    browser = webtest.TestApp(app, extra_environ={"SCRIPT_NAME": prefix})
    body = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD, "mode": mode}
    cookie = browser.post_json("/auth/login", body).headers["Set-Cookie"]
    path = f"{written}/auth" if mode == "cookie" else written
    assert f"; Path={path};" in f"{cookie};"
    assert "; Domain" not in cookie
    document = browser.get("/server/specs/oas").json
    assert document["servers"] == [{"url": written}]
    app.close()
