"""`create_app(config, identify=…)`: users of the application around it, and their rights.

The application around it is a header here; those of real frameworks are in the other modules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import falcon
import pytest
from django.utils.functional import SimpleLazyObject
from markupsafe import Markup
from werkzeug.local import LocalProxy

from cms.app import create_app
from cms.config import Config
from cms.errors import forbidden
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client
from tests.people import OWN_ORIGIN, login, of_user, outcome, person
from tests.things import Stage

HOST_USER = "X-Host-User"
OTHER_SITE = "https://other.example"

Identify = Callable[[dict[str, Any]], Any]
MakeEmbedded = Callable[[Identify], Client]


def user_of_header(environ: dict[str, Any]) -> str | None:
    return environ.get("HTTP_X_HOST_USER")


@pytest.fixture(scope="module")
def make_embedded(stage: Stage, settings: Config) -> Iterator[MakeEmbedded]:
    """Make a client without credentials of an application with this function."""
    clients: list[Client] = []

    def make(identify: Identify) -> Client:
        config = replace(settings, database_url=stage.dsn, database_pool_size=2)
        clients.append(Client(create_app(config, identify=identify)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def embedded(make_embedded: MakeEmbedded) -> Client:
    return make_embedded(user_of_header)


@pytest.fixture(scope="module", autouse=True)
def pages_collection(stage: Stage) -> None:
    """A collection that writers may read and create in, and the public may not even see."""
    fields = [{"field": "title", "type": "string", "schema": {}}]
    collection = {"collection": "pages", "schema": {}, "fields": fields}
    assert stage.admin.post("/collections", collection).status == 200


@pytest.fixture(scope="module")
def writer(stage: Stage) -> str:
    """The address of a user who may read and create pages."""
    return person(stage, role=role_with_pages(stage))


def role_with_pages(stage: Stage, **role: object) -> str:
    key = str(stage.admin.post("/roles", {"name": "Writers", **role}).data["id"])
    for action in ("read", "create"):
        permission = {"role": key, "collection": "pages", "action": action, "fields": ["*"]}
        assert stage.admin.post("/permissions", permission).status == 200
    return key


def read_as(client: Client, user: str, path: str = "/users/me?fields=id", **headers: str) -> Answer:
    return client.send("GET", path, **{HOST_USER: user}, **headers)


def create(client: Client, user: str, **headers: str) -> Answer:
    body = {"title": "new"}
    return client.send("POST", "/items/pages", body, **{HOST_USER: user}, **headers)


@pytest.mark.parametrize("change", [str, str.upper])
def test_the_named_user_calls_whatever_the_capitals_of_the_address(
    embedded: Client, stage: Stage, writer: str, change: Callable[[str], str]
) -> None:
    assert read_as(embedded, change(writer)).data["id"] == str(of_user(stage, writer, "id"))


def test_the_named_user_has_exactly_the_rights_of_its_roles(
    embedded: Client, writer: str, stage: Stage
) -> None:
    assert read_as(embedded, writer, "/items/pages").status == 200
    assert read_as(embedded, writer, "/items/system_users").status == 403
    assert read_as(embedded, person(stage), "/items/pages").status == 403
    assert read_as(embedded, ADMIN_EMAIL, "/roles").status == 200


def test_without_a_name_a_request_is_public(embedded: Client) -> None:
    assert embedded.get("/items/pages").status == 403
    assert embedded.get("/server/info").status == 200
    assert outcome(embedded.get("/users/me")) == (401, ["INVALID_CREDENTIALS"])


@pytest.mark.parametrize("status", ["suspended", "invited", "draft", "archived"])
def test_a_user_who_is_not_active_is_refused(embedded: Client, stage: Stage, status: str) -> None:
    email = person(stage, status=status, role=role_with_pages(stage))
    assert outcome(read_as(embedded, email, "/items/pages")) == (401, ["INVALID_TOKEN"])
    assert outcome(read_as(embedded, email, "/settings")) == (401, ["INVALID_TOKEN"])


@pytest.mark.parametrize(
    "name", ["nobody@example.com", "", "no address", "a\x00@example.com", "\udcff@example.com"]
)
def test_a_name_that_no_user_has_is_public(
    make_embedded: MakeEmbedded, stage: Stage, name: str
) -> None:
    client = make_embedded(lambda environ: name)
    assert client.get("/settings").data == stage.anonymous.get("/settings").data
    assert outcome(client.get("/items/pages")) == (403, ["FORBIDDEN"])
    assert outcome(create(client, name)) == (403, ["FORBIDDEN"])
    assert client.get("/users/me").status in (401, 403)


@pytest.mark.parametrize("name", ["nobody@example.com", "", "no address"])
def test_a_name_that_no_user_has_can_be_refused(settings: Config, stage: Stage, name: str) -> None:
    config = replace(settings, database_url=stage.dsn, embedded_unknown="refuse")
    client = Client(create_app(config, identify=lambda environ: name))
    assert outcome(client.get("/settings")) == (401, ["INVALID_TOKEN"])
    assert outcome(client.get("/users/me")) == (401, ["INVALID_TOKEN"])
    client.close()


def test_a_name_has_the_rights_of_its_user_as_soon_as_there_is_one(
    embedded: Client, stage: Stage
) -> None:
    email = "customer@example.com"
    assert read_as(embedded, email, "/settings").status == 200
    assert read_as(embedded, email, "/items/pages").status == 403
    person(stage, email=email, role=role_with_pages(stage))
    assert read_as(embedded, email, "/items/pages").status == 200


def test_a_suspended_user_is_refused_at_the_next_request(embedded: Client, stage: Stage) -> None:
    email = person(stage, role=role_with_pages(stage))
    assert read_as(embedded, email, "/items/pages").status == 200
    key = of_user(stage, email, "id")
    assert stage.admin.patch(f"/users/{key}", {"status": "suspended"}).status == 200
    assert outcome(read_as(embedded, email, "/items/pages")) == (401, ["INVALID_TOKEN"])


def test_an_address_that_has_gone_to_another_user_is_that_users(
    embedded: Client, stage: Stage, writer: str
) -> None:
    first = person(stage, role=role_with_pages(stage))
    assert read_as(embedded, first, "/items/pages").status == 200
    moved = {"email": f"moved-{first}"}
    assert stage.admin.patch(f"/users/{of_user(stage, first, 'id')}", moved).status == 200
    assert read_as(embedded, first, "/items/pages").status == 403
    second = person(stage, email=first)
    assert read_as(embedded, second, "/items/pages").status == 403


def test_addresses_of_a_role_count(embedded: Client, stage: Stage) -> None:
    email = person(stage, role=role_with_pages(stage, ip_access=["192.0.2.7"]))
    assert outcome(read_as(embedded, email, "/items/pages")) == (401, ["INVALID_IP"])


def test_a_role_that_enforces_a_second_factor_lets_one_be_set_up_and_nothing_else(
    embedded: Client, stage: Stage
) -> None:
    email = person(stage, role=role_with_pages(stage, enforce_tfa=True))
    assert read_as(embedded, email).status == 200
    assert read_as(embedded, email, "/items/pages").status == 403


def test_no_code_is_asked_of_a_user_with_a_second_factor(embedded: Client, stage: Stage) -> None:
    role = role_with_pages(stage, enforce_tfa=True)
    email = person(stage, role=role, tfa_secret="A" * 32)
    assert read_as(embedded, email, "/items/pages").status == 200


def test_a_bearer_token_comes_first_and_the_application_is_not_asked(
    make_embedded: MakeEmbedded, stage: Stage, writer: str
) -> None:
    asked: list[dict[str, Any]] = []

    def identify(environ: dict[str, Any]) -> str:
        asked.append(environ)
        return ADMIN_EMAIL

    client = make_embedded(identify)
    token = login(client, writer).data["access_token"]
    own = of_user(stage, writer, "id")
    assert client.bearing(token).get("/users/me?fields=id").data["id"] == str(own)
    wrong = client.bearing("not-a-token-of-anybody")
    assert outcome(wrong.get("/settings")) == (401, ["INVALID_TOKEN"])
    assert asked == []


@pytest.mark.parametrize("header", ["Basic dTpw", "Bearer", "Digest x=y"])
def test_other_authorization_is_left_to_the_application(
    embedded: Client, writer: str, header: str
) -> None:
    assert read_as(embedded, writer, "/items/pages", Authorization=header).status == 200


def test_the_named_user_comes_before_the_session_cookie(
    embedded: Client, stage: Stage, writer: str
) -> None:
    answer = login(embedded, person(stage), mode="session")
    cookie = f"cms_session_token={answer.cookies['cms_session_token'].value}"
    own = str(of_user(stage, writer, "id"))
    assert read_as(embedded, writer, Cookie=cookie).data["id"] == own
    without = embedded.send("GET", "/users/me?fields=id", Cookie=cookie)
    assert without.data["id"] != own
    # Nor does an ended session stand in the way.
    assert read_as(embedded, writer, Cookie=cookie[:-3]).data["id"] == own


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": OTHER_SITE}, {"Origin": "null"}, {"Referer": f"{OTHER_SITE}/page"}],
)
def test_pages_of_other_sites_change_nothing(
    embedded: Client, stage: Stage, writer: str, headers: dict[str, str]
) -> None:
    before = stage.value("SELECT count(*) FROM pages")
    assert outcome(create(embedded, writer, **headers)) == (403, ["FORBIDDEN"])
    key = of_user(stage, writer, "id")
    changed = embedded.send(
        "PATCH", f"/users/{key}", {"title": "x"}, **{HOST_USER: ADMIN_EMAIL}, **headers
    )
    assert changed.status == 403
    assert stage.value("SELECT count(*) FROM pages") == before


@pytest.mark.parametrize("headers", [{"Origin": OWN_ORIGIN}, {"Referer": f"{OWN_ORIGIN}/cms/page"}])
def test_pages_of_the_own_site_change_what_the_user_may(
    embedded: Client, writer: str, headers: dict[str, str]
) -> None:
    assert create(embedded, writer, **headers).status == 200


def test_history_names_the_user(embedded: Client, stage: Stage, writer: str) -> None:
    created = create(embedded, writer, Origin=OWN_ORIGIN).data["id"]
    params = {"filter[collection][_eq]": "pages", "filter[item][_eq]": created}
    (entry,) = stage.admin.get("/activity", fields="action,user.email", **params).data
    assert entry == {"action": "create", "user": {"email": writer}}


def test_repeated_calls_of_one_user_get_no_answer_of_another(
    embedded: Client, stage: Stage, writer: str
) -> None:
    other = person(stage, role=role_with_pages(stage))
    key = {"Idempotency-Key": "the same", "Origin": OWN_ORIGIN}
    first = create(embedded, writer, **key).data["id"]
    assert create(embedded, writer, **key).data["id"] == first
    assert create(embedded, other, **key).data["id"] != first


def test_no_cache_shows_one_user_what_is_another_users(
    embedded: Client, stage: Stage, writer: str
) -> None:
    own = read_as(embedded, writer)
    assert own.headers["vary"] == "Origin, Cookie"
    assert own.headers["cache-control"] == "no-cache"
    tag = {"If-None-Match": own.headers["etag"]}
    assert read_as(embedded, writer, **tag).status == 304
    other = person(stage)
    assert read_as(embedded, other, **tag).data["id"] == str(of_user(stage, other, "id"))
    assert embedded.send("GET", "/users/me", **tag).status == 401


def test_files_of_users_are_kept_by_browsers_alone_and_for_their_cookie(
    embedded: Client, stage: Stage
) -> None:
    stage.admin.post("/permissions", {"collection": "system_files", "action": "read"})
    (path,) = asset_paths(embedded)
    private = read_as(embedded, ADMIN_EMAIL, path)
    assert private.headers["cache-control"].startswith("private")
    assert private.headers["vary"] == "Origin, Cookie"


def asset_paths(client: Client) -> Iterator[str]:
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ntext\r\n--x--'
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Origin": OWN_ORIGIN}
    answer = client.send("POST", "/files", raw=form, **headers, **{HOST_USER: ADMIN_EMAIL})
    yield f"/assets/{answer.data['id']}"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("the host broke"), forbidden(), falcon.HTTPUnauthorized(), KeyError("x")],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_of_the_application_is_a_fault_that_is_logged(
    make_embedded: MakeEmbedded, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def identify(environ: dict[str, Any]) -> str:
        raise error

    client = make_embedded(identify)
    with caplog.at_level(logging.ERROR, logger="cms"):
        for path in ("/settings", "/users/me", "/server/info", "/items/pages", "/metrics"):
            answer = client.get(path)
            assert outcome(answer) == (500, ["INTERNAL_SERVER_ERROR"]), path
            assert "broke" not in answer.text
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    causes = [fault.__cause__ for fault in logged if fault is not None]
    assert causes == [error] * 5


@pytest.mark.parametrize(
    "returned",
    [
        b"admin@example.com",
        1,
        True,
        ["admin@example.com"],
        {},
        LocalProxy(lambda: ADMIN_EMAIL),
        SimpleLazyObject(lambda: ADMIN_EMAIL),
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_anything_but_a_text_is_a_fault_that_is_named(
    make_embedded: MakeEmbedded, returned: object, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_embedded(lambda environ: returned)
    assert outcome(client.get("/settings")) == (500, ["INTERNAL_SERVER_ERROR"])
    faults = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert faults == [f"identify returned {type(returned).__name__}, not str or None"]


def test_a_text_that_is_safe_in_html_is_a_text(make_embedded: MakeEmbedded) -> None:
    client = make_embedded(lambda environ: Markup(ADMIN_EMAIL))
    assert client.get("/users/me?fields=email").data == {"email": ADMIN_EMAIL}


def test_a_fault_of_the_application_leaves_logins_alone_beside_a_replica(
    stage: Stage, settings: Config
) -> None:
    """There it is asked about every write, to note who reads from the primary afterwards."""

    def identify(environ: dict[str, Any]) -> str:
        raise RuntimeError("the host broke")

    config = replace(
        settings, database_url=stage.dsn, database_read_url=stage.dsn, database_pool_size=2
    )
    client = Client(create_app(config, identify=identify))
    body = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    assert client.post("/auth/login", body).status == 200
    assert client.post("/auth/password/request", {"email": "x@example.com"}).status == 204
    assert client.post("/nowhere", {}).status == 404
    client.close()


def test_the_application_is_asked_once_and_only_where_the_caller_matters(
    make_embedded: MakeEmbedded, writer: str
) -> None:
    asked: list[str] = []

    def identify(environ: dict[str, Any]) -> str:
        asked.append(environ["PATH_INFO"])
        return writer

    client = make_embedded(identify)
    client.get("/server/ping")
    assert asked == []
    # Asked by a guard of system collections, by the resource, and for the times of statements.
    client.send("GET", "/utils/random/string", **{"X-Server-Timing": "1"})
    client.send("GET", "/items/system_users", **{"X-Server-Timing": "1"})
    assert asked == ["/utils/random/string", "/items/system_users"]


def test_a_refused_user_is_not_somebody_else_when_it_is_asked_for_again(
    make_embedded: MakeEmbedded,
) -> None:
    client = make_embedded(lambda environ: "nobody@example.com")
    # An administrator would be told the times.
    answer = client.send("GET", "/server/info", **{"X-Server-Timing": "1"})
    assert "server-timing" not in answer.headers


@pytest.mark.release
def test_the_application_cannot_take_the_body_of_a_request(make_embedded: MakeEmbedded) -> None:
    bodies: list[bytes] = []

    def identify(environ: dict[str, Any]) -> str:
        bodies.append(environ["wsgi.input"].read())
        environ["PATH_INFO"] = "/elsewhere"
        return ADMIN_EMAIL

    # An upload asks who calls before it reads the file.
    client = make_embedded(identify)
    (path,) = asset_paths(client)
    assert client.get(path).text == "text"
    assert bodies == [b"", b""]
