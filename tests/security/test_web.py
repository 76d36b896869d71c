"""What a browser can be made to do, and what headers can be made to hold:
other sites, hosts, redirects, tokens.
"""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import uuid4

import jwt
import pytest

from cms.app import create_app
from cms.config import Config
from cms.config.secret_file import secret_of
from tests.client import ADMIN_EMAIL, Client
from tests.people import OWN_ORIGIN, PASSWORD, Outbox, login, outcome, person
from tests.security.footprints import footprint
from tests.things import Stage, field, table

EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(
        settings,
        public_url="https://cms.example",
        password_reset_url_allow_list=("https://app.example/reset",),
        user_invite_url_allow_list=("https://app.example/join",),
        user_register_url_allow_list=("https://app.example/verify",),
    )


@pytest.fixture(scope="module")
def role(stage: Stage) -> str:
    assert stage.admin.patch("/settings", {"public_registration": True}).status == 200
    return str(stage.admin.post("/roles", {"name": "Guests"}).data["id"])


POISONED = (
    {"Host": "evil.example"},
    {"Host": "cms.example@evil.example"},
    {"Host": "evil.example:443", "X-Forwarded-Host": "evil.example"},
    {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
    {
        "Forwarded": "host=evil.example;proto=https",
        "X-Original-URL": "//evil.example/",
        "X-Rewrite-URL": "/evil",
    },
    {"Origin": EVIL, "Referer": f"{EVIL}/reset"},
)


@pytest.mark.parametrize("headers", POISONED)
def test_no_header_gets_into_a_mail(
    stage: Stage, mails: Outbox, role: str, headers: dict[str, str]
) -> None:
    preflight = {
        "/auth/password/request": {"email": person(stage)},
        "/users/register": {"email": f"{uuid4()}@example.com", "password": PASSWORD},
    }
    for path, body in preflight.items():
        assert stage.anonymous.send("POST", path, body, **headers).status == 204
        assert mails.link.startswith("https://cms.example/"), path
    invited = {"email": f"{uuid4()}@example.com", "role": role}
    assert stage.admin.send("POST", "/users/invite", invited, **headers).status == 204
    assert mails.link.startswith("https://cms.example/")
    assert "evil" not in "".join(mail.data["url"] for mail in mails.mails)


@pytest.mark.parametrize(
    "url",
    [
        EVIL,
        "//evil.example/reset",
        "javascript:alert(1)",
        "https://app.example.evil.example/reset",
        "https://app.example@evil.example/reset",
        "https://evil.example/https://app.example/reset",
        "https://app.example/reset/../../evil",
        "https://app.example/reset/%2e%2e/x",
        "https://app.example\\@evil.example/reset",
        "https://app.example/reset#@evil.example",
        "https://app.example/reset;x",
        "https://app.example:8443/reset",
        "http://app.example/reset",
        "HTTPS://APP.EXAMPLE/RESET",
        "https://app.example/reset\r\nBcc: x@evil.example",
        "https://app.example/reset?\nx",
        "https://app.example/reset?x=1&token=of-somebody-else",
        "https://app.example/reset?t%6Fken=",
    ],
)
def test_links_lead_to_the_addresses_of_the_settings(
    stage: Stage, mails: Outbox, role: str, url: str
) -> None:
    calls = (
        (stage.anonymous, "/auth/password/request", {"email": ADMIN_EMAIL, "reset_url": url}),
        (
            stage.anonymous,
            "/users/register",
            {"email": "a@b.example", "password": "x", "verification_url": url},
        ),
        (stage.admin, "/users/invite", {"email": "a@b.example", "role": role, "invite_url": url}),
    )
    for caller, path, body in calls:
        answer = caller.post(path, body)
        assert (answer.status, mails.mails) == (400, []), answer


def test_nothing_redirects(stage: Stage) -> None:
    for path in (
        "//evil.example/",
        "/https://evil.example",
        "/auth/login?redirect=https://evil.example",
        "/auth/logout?redirect=https://evil.example",
        "/auth/login/github?redirect=https://evil.example",
        "/users/register/verify-email?token=x&redirect=https://evil.example",
        "/server/ping?redirect=https://evil.example&next=//evil.example",
        "/items/x/..%2f..%2fevil.example",
        "/%0d%0aLocation:%20https://evil.example",
    ):
        for method in ("GET", "POST"):
            answer = stage.anonymous.send(method, path, {} if method == "POST" else None)
            assert answer.status not in range(300, 400), path
            assert "location" not in answer.headers, path


def test_no_write_is_done_by_the_cookie_of_another_sites_page(stage: Stage) -> None:
    things = table(stage.admin, field("title", "string"))
    things.add({"title": "x"})
    role = stage.admin.get("/users/me").data["role"]
    cookie = (
        login(stage.anonymous, person(stage, role=role), mode="session")
        .cookies["cms_session_token"]
        .value
    )
    own = {"Cookie": f"cms_session_token={cookie}"}
    forms: tuple[dict[str, str], ...] = (
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    calls = [
        ("POST", things.path, '{"title": "y"}'),
        ("PATCH", f"{things.path}/1", '{"title": "y"}'),
        ("DELETE", f"{things.path}/1", ""),
        ("POST", "/users", '{"email": "evil@example.com"}'),
        ("PATCH", "/users/me", '{"password": "evil"}'),
        ("PATCH", "/settings", '{"project_name": "evil"}'),
        ("POST", "/batch", '{"operations": []}'),
        ("POST", "/collections", '{"collection": "evil"}'),
        ("DELETE", f"/collections/{things.name}", ""),
        ("POST", "/files", '{"filename_download": "x", "data": "eA=="}'),
        ("POST", "/folders", '{"name": "evil"}'),
        ("POST", "/files/import", '{"url": "http://example.com"}'),
        ("POST", "/utils/cache/clear", ""),
        ("POST", "/utils/revert/1", ""),
        ("POST", f"/utils/sort/{things.name}", '{"item": 1, "to": 1}'),
        ("POST", "/comments", f'{{"collection": "{things.name}", "item": 1, "comment": "x"}}'),
        ("POST", "/users/me/tfa/generate", f'{{"password": "{PASSWORD}"}}'),
        ("POST", "/users/invite", '{"email": "evil@example.com", "role": "x"}'),
        ("POST", "/auth/logout?all=true", "{}"),
        ("POST", "/auth/refresh", "{}"),
    ]
    before = footprint(stage.dsn)
    for method, path, raw in calls:
        for origin in (
            {"Origin": EVIL},
            {"Origin": "null"},
            {"Referer": f"{EVIL}/{OWN_ORIGIN}"},
            {},
        ):
            for headers in forms:
                answer = stage.anonymous.send(method, path, raw=raw, **own, **origin, **headers)
                assert answer.status in (403, 415), (method, path, origin, answer.text)
    after = footprint(stage.dsn)
    assert {name for name in before if before[name] != after[name]} == set()
    for headers in ({"X-HTTP-Method-Override": "DELETE"}, {"X-Method-Override": "DELETE"}):
        assert (
            stage.anonymous.send("GET", f"{things.path}/1?_method=DELETE", **own, **headers).status
            == 200
        )
    assert (
        stage.anonymous.send("POST", things.path, {"title": "y"}, **own, Origin=OWN_ORIGIN).status
        == 200
    )


def test_no_answer_reveals_whether_an_address_has_an_account(
    stage: Stage, mails: Outbox, role: str
) -> None:
    known = {
        status: person(stage, status=status)
        for status in ("active", "invited", "draft", "suspended", "archived")
    }
    unknown = f"{uuid4()}@example.com"
    for path, body in (
        ("/auth/login", {"password": "wrong"}),
        ("/auth/login", {"password": "wrong", "otp": "123456"}),
        ("/auth/login", {"password": "wrong", "mode": "session"}),
        ("/auth/password/request", {}),
        ("/users/register", {"password": PASSWORD}),
    ):
        expected = stage.anonymous.post(path, {"email": unknown, **body})
        assert expected.status in (204, 401)
        for status, email in known.items():
            answer = stage.anonymous.post(path, {"email": email, **body})
            assert (answer.status, answer.text, answer.headers.keys()) == (
                expected.status,
                expected.text,
                expected.headers.keys(),
            ), (path, status)


def test_a_mail_to_nobody_costs_what_a_mail_costs(stage: Stage, role: str) -> None:
    """One job in the queue each, whose text differs in the addresses only."""
    known = person(stage)
    unknown = f"{uuid4()}@example.com"
    for path, body in (("/auth/password/request", {}), ("/users/register", {"password": PASSWORD})):
        sizes = []
        for email in (known, unknown):
            stage.execute("DELETE FROM procrastinate_jobs")
            assert stage.anonymous.post(path, {"email": email, **body}).status == 204
            sizes.append(
                stage.value("SELECT array_agg(length(args::text)) FROM procrastinate_jobs")
            )
        assert [len(mail_sizes) for mail_sizes in sizes] == [1, 1], path
        assert abs(sizes[0][0] - sizes[1][0]) <= len(f'"{unknown}"'), path


@pytest.mark.parametrize("local", ["a,b", 'a"b', "a(b)", "a;b", "a\\b", "[a]"])
def test_an_address_that_no_mail_reaches_reveals_nothing_either(stage: Stage, local: str) -> None:
    """With the queue itself, which takes no mail to such an address, of
    accounts that have one all the same.
    """
    unknown = f"{local}@example.com"
    known = person(stage, email=f"{local}@example.org")
    for path, body in (("/auth/password/request", {}), ("/users/register", {"password": PASSWORD})):
        answers = [
            stage.anonymous.post(path, {"email": email, **body}) for email in (known, unknown)
        ]
        assert answers[0].status == answers[1].status, (path, [answer.text for answer in answers])
    assert stage.admin.post("/users", {"email": unknown}).codes == ["FAILED_VALIDATION"]
    invitation = {"email": unknown, "role": stage.admin.get("/users/me").data["role"]}
    assert stage.admin.post("/users/invite", invitation).codes == ["INVALID_PAYLOAD"]


def test_a_token_is_good_for_what_it_was_made_for(
    stage: Stage, mails: Outbox, settings: Config
) -> None:
    email = person(stage)
    tokens = login(stage.anonymous, email).data
    session = login(stage.anonymous, email, mode="session").cookies["cms_session_token"].value
    assert stage.anonymous.post("/auth/password/request", {"email": email}).status == 204
    mail = mails.token
    claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    secret = secret_of(settings)
    forged = [
        jwt.encode(claims, "", algorithm="none"),
        jwt.encode(claims, "another key, of the length that there has to be", algorithm="HS256"),
        jwt.encode({**claims, "iss": "other"}, secret, algorithm="HS256"),
        jwt.encode(
            {key: claim for key, claim in claims.items() if key != "exp"}, secret, algorithm="HS256"
        ),
        jwt.encode({**claims, "exp": time.time() - 1}, secret, algorithm="HS256"),
        jwt.encode({**claims, "session": str(uuid4())}, secret, algorithm="HS256"),
        jwt.encode({**claims, "id": str(uuid4())}, secret, algorithm="HS256"),
        jwt.encode(
            claims,
            secret,
            algorithm="HS256",
            headers={"jwk": {"kty": "oct", "k": ""}, "kid": "/dev/null"},
        )[:-2],
    ]
    for token in (tokens["refresh_token"], session, mail, *forged):
        assert outcome(stage.anonymous.bearing(token).get("/users/me")) == (401, ["INVALID_TOKEN"])
    for token in (tokens["refresh_token"], tokens["access_token"], mail, *forged):
        answer = stage.anonymous.send("GET", "/users/me", Cookie=f"cms_session_token={token}")
        assert outcome(answer) == (401, ["INVALID_TOKEN"])
    for token in (tokens["access_token"], mail, *forged):
        assert outcome(stage.anonymous.post("/auth/refresh", {"refresh_token": token})) == (
            401,
            ["INVALID_CREDENTIALS"],
        )
    for token in (tokens["access_token"], tokens["refresh_token"], session, *forged):
        reset = stage.anonymous.post("/auth/password/reset", {"token": token, "password": PASSWORD})
        accept = stage.anonymous.post(
            "/users/invite/accept", {"token": token, "password": PASSWORD}
        )
        verify = stage.anonymous.get("/users/register/verify-email", token=token)
        assert {(answer.status, *answer.codes) for answer in (reset, accept, verify)} == {
            (401, "INVALID_TOKEN")
        }, answer
    for path in ("/users/invite/accept", "/auth/password/reset?x"):
        expected = 401 if "invite" in path else 204
        assert stage.anonymous.post(path, {"token": mail, "password": PASSWORD}).status == expected


def test_what_a_token_claims_gives_no_right(stage: Stage, settings: Config) -> None:
    """Only who it is counts: the roles are those of the database."""
    email = person(stage)
    claims = jwt.decode(
        login(stage.anonymous, email).data["access_token"], options={"verify_signature": False}
    )
    more = {
        **claims,
        "admin_access": True,
        "app_access": True,
        "role": stage.admin.get("/users/me").data["role"],
    }
    forged = stage.anonymous.bearing(jwt.encode(more, secret_of(settings), algorithm="HS256"))
    assert forged.get("/users").status == forged.get("/collections").status == 403


def test_a_token_of_another_installation_is_worth_nothing(stage: Stage, settings: Config) -> None:
    token = login(stage.anonymous, person(stage)).data["access_token"]
    other = Client(
        create_app(replace(settings, database_url=stage.dsn, secret="another-installation-" * 3))
    )
    try:
        assert other.bearing(token).get("/users/me").status == 401
    finally:
        other.close()
