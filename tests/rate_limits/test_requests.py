"""Requests beyond the limits of an address are refused; what is left stands in every answer."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from falcon import testing

from cms.config import Config, load
from cms.database import connections
from cms.http.middleware.rate_limit import LOGIN_ROUTES
from cms.rate_limits.limiter import account_name
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client, with_other_status
from tests.people import OWN_ORIGIN

LIMIT = "X-RateLimit-Limit"
REMAINING = "X-RateLimit-Remaining"
RESET = "X-RateLimit-Reset"

SESSION = "cms_session_token"
STATIC_TOKEN = "a-static-token-of-a-user"

_numbers = itertools.count()

MakeLimited = Callable[..., Client]
LogCapture = pytest.LogCaptureFixture


@pytest.fixture(scope="module")
def module_dsn(module_dsn: str) -> str:
    """A database in which wrong passwords suspend nobody."""
    with psycopg.connect(module_dsn) as connection:
        connection.execute("UPDATE system_settings SET auth_login_attempts = NULL")
    return module_dsn


@pytest.fixture
def dsn(module_dsn: str) -> str:
    return module_dsn


@pytest.fixture
def make_limited(config: Config, make_client: Callable[..., Client]) -> MakeLimited:
    """Make a client of an application with rate limits and counters of its own."""

    def make(**changes: object) -> Client:
        secret = f"{next(_numbers):>040}"
        limits: dict[str, object] = {"rate_limiter_enabled": True, "secret": secret}
        return make_client(**(limits | changes))

    return make


@pytest.fixture
def service_log(caplog: LogCapture) -> Iterator[LogCapture]:
    """What the service logs."""
    log = logging.getLogger("cms")
    propagates = log.propagate
    log.propagate = True
    with caplog.at_level(logging.INFO, logger="cms"):
        yield caplog
    log.propagate = propagates


def left(answer: Answer) -> tuple[int, int]:
    return int(answer.headers[LIMIT.lower()]), int(answer.headers[REMAINING.lower()])


def test_by_default_100_requests_pass_in_a_second(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_per_second=100)
    began = time.monotonic()
    statuses = [client.get("/auth").status for _ in range(130)]
    if time.monotonic() - began < 1:
        assert statuses == [200] * 100 + [429] * 30
    assert statuses[:101] == [200] * 100 + [429]


def test_a_refusal_names_the_time_to_try_again(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_per_minute=2)
    now = time.time()
    first = client.get("/auth")
    assert left(first) == (2, 1)
    assert math.floor(now + 59) <= int(first.headers[RESET.lower()]) <= math.ceil(now + 62)
    assert left(client.get("/auth")) == (2, 0)
    refused = client.get("/auth")
    assert refused.status == 429
    assert left(refused) == (2, 0)
    seconds = int(refused.headers["retry-after"])
    assert 55 <= seconds <= 60
    assert refused.errors == [
        {
            "message": f"There were too many requests. Try again in {seconds} seconds.",
            "limit": 2,
            "reset": int(refused.headers[RESET.lower()]),
            "code": "REQUESTS_EXCEEDED",
        }
    ]


def test_the_headers_are_on_every_answer(
    make_limited: MakeLimited, config: Config, admin_token: str
) -> None:
    client = make_limited(secret=config.secret)
    admin = client.bearing(admin_token)
    answers = [
        client.get("/server/ping"),
        client.get("/server/health"),
        client.get("/no/such/route"),
        client.get("/items/nothing"),
        client.get("/assets/nothing"),
        client.send("OPTIONS", "/items/nothing"),
        client.send("HEAD", "/server/info"),
        client.send("BREW", "/server/info"),
        client.send("POST", "/auth/login", raw="{"),
        client.post("/utils/export/nothing", {}),
        admin.get("/users/me"),
    ]
    etag = admin.get("/users/me").headers.get("etag", "")
    answers.append(admin.send("GET", "/users/me", **{"If-None-Match": etag}))
    missing = [answer for answer in answers if RESET.lower() not in answer.headers]
    assert missing == []
    assert {answer.status for answer in answers} >= {200, 304, 400, 403, 404, 405}


def test_preflights_are_counted_and_the_headers_may_be_read(make_limited: MakeLimited) -> None:
    client = make_limited(cors_enabled=True, cors_origin=("*",), rate_limiter_per_minute=2)
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    assert left(client.send("OPTIONS", "/auth", **preflight)) == (2, 1)
    answer = client.send("GET", "/auth", Origin="https://a.example")
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {LIMIT, REMAINING, RESET, "Retry-After"} <= set(exposed)
    refused = client.send("GET", "/auth", Origin="https://a.example")
    assert refused.status == 429
    assert refused.headers["access-control-allow-origin"] == "*"


def test_a_ping_is_never_refused(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_per_minute=1)
    assert [client.get("/server/ping").status for _ in range(3)] == [200] * 3
    assert client.get("/server/health").status == 429


def test_without_the_limiter_there_are_no_headers(anonymous: Client) -> None:
    assert REMAINING.lower() not in anonymous.get("/auth").headers


def test_a_refused_request_asks_no_database(
    make_limited: MakeLimited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BORROW_SECONDS", 0.2)
    client = make_limited(
        rate_limiter_per_minute=1, database_url="postgresql://127.0.0.1:1/nowhere"
    )
    assert client.get("/items/nothing").status == 503
    answers = [client.bearing("a.b.c").get("/items/nothing") for _ in range(20)]
    assert with_other_status(answers, 429) == []


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("proxies", "first", "second", "status"),
    [
        # Without trusted proxies the header is the client's own word.
        (0, "198.51.100.1", "198.51.100.2", 429),
        (1, "198.51.100.1", "198.51.100.2", 200),
        (1, "1.1.1.1, 198.51.100.1", "2.2.2.2, 198.51.100.1", 429),
        (2, "198.51.100.1, 10.0.0.1", "198.51.100.2, 10.0.0.1", 200),
        # One customer has a network of 64 bits, and may use any address of it.
        (1, "2001:db8:0:1::1", "2001:db8:0:1:ffff::9", 429),
        (1, "2001:db8:0:1::1", "2001:db8:0:2::1", 200),
        (1, "::ffff:198.51.100.1", "198.51.100.1", 429),
    ],
)
def test_clients_are_distinguished_by_address(
    make_limited: MakeLimited, proxies: int, first: str, second: str, status: int
) -> None:
    client = make_limited(ip_trust_proxy=proxies, rate_limiter_per_minute=1)
    assert client.send("GET", "/auth", **{"X-Forwarded-For": first}).status == 200
    assert client.send("GET", "/auth", **{"X-Forwarded-For": second}).status == status


def test_services_of_one_process_do_not_share_counters(make_limited: MakeLimited) -> None:
    one = make_limited(rate_limiter_per_minute=1)
    other = make_limited(rate_limiter_per_minute=1)
    assert [one.get("/auth").status, other.get("/auth").status] == [200, 200]


def test_a_clock_that_is_set_changes_no_window(
    make_limited: MakeLimited, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_limited(rate_limiter_per_minute=1)
    assert client.get("/auth").status == 200
    now = time.time()
    for hours in (-5, 5):
        monkeypatch.setattr(time, "time", lambda hours=hours: now + hours * 3600)
        refused = client.get("/auth")
        assert refused.status == 429
        assert 55 <= int(refused.headers["retry-after"]) <= 60
        # The moment as the clock of this machine tells it.
        assert 0 <= int(refused.headers[RESET.lower()]) - (now + hours * 3600) <= 61


def test_clients_without_an_address_are_one(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_per_minute=1)
    # As behind a Unix socket.
    statuses = [
        testing.simulate_get(client.app, "/auth", remote_addr=address).status_code
        for address in ("", "", "198.51.100.1")
    ]
    assert statuses == [200, 429, 200]


def test_a_flood_is_one_line_of_the_log(make_limited: MakeLimited, service_log: LogCapture) -> None:
    client = make_limited(rate_limiter_per_minute=1)
    for _ in range(20):
        client.send("GET", "/auth", **{"X-Forwarded-For": "198.51.100.1"})
    refusals = [record for record in service_log.records if record.levelname == "WARNING"]
    requests = [record for record in service_log.records if record.name == "cms.access"]
    assert len(requests) == 1
    assert [record.getMessage() for record in refusals] == [
        "Requests from 127.0.0.1 are refused for 60 s, after 1."
        " If that is a proxy of your own, set IP_TRUST_PROXY."
    ]


@pytest.mark.release
def test_every_route_with_a_password_or_a_code_is_limited(make_limited: MakeLimited) -> None:
    # That of SAML is there only with a provider that speaks it.
    for route in sorted(LOGIN_ROUTES - {"/auth/login/{provider}/acs"}):
        method = "GET" if route.endswith(("verify-email", "callback")) else "POST"
        path = route.format(provider="nowhere")
        client = make_limited(rate_limiter_logins_per_address=1)
        assert client.send(method, path).status not in (404, 405, 429), route
        assert client.send(method, path).status == 429, route
        assert client.get("/server/info").status == 200


def test_logins_are_limited_by_address(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_logins_per_address=2, ip_trust_proxy=1)
    here = {"X-Forwarded-For": "198.51.100.1"}
    there = {"X-Forwarded-For": "198.51.100.2"}
    bodies = [{"email": f"{number}@example.com", "password": "x"} for number in range(4)]
    statuses = [client.send("POST", "/auth/login", body, **here).status for body in bodies]
    assert statuses == [401, 401, 429, 429]
    assert client.send("POST", "/auth/login", bodies[0], **there).status == 401
    assert client.send("GET", "/server/info", **here).status == 200


def test_logins_are_limited_by_account(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_logins_per_account=3, ip_trust_proxy=1)

    def login(email: str, address: int) -> Answer:
        body = {"email": email, "password": ADMIN_PASSWORD}
        headers = {"X-Forwarded-For": f"198.51.100.{address}"}
        return client.send("POST", "/auth/login", body, **headers)

    spellings = [ADMIN_EMAIL, ADMIN_EMAIL.upper(), f" {ADMIN_EMAIL.title()}"]
    statuses = [login(email, address).status for address, email in enumerate(spellings)]
    assert statuses == [200, 200, 401]
    refused = login(ADMIN_EMAIL, 9)
    assert refused.status == 429
    assert left(refused) == (3, 0)
    assert int(refused.headers["retry-after"]) > 50
    assert login("somebody@example.com", 9).status == 401


def test_no_spelling_of_an_address_has_attempts_of_its_own(make_limited: MakeLimited) -> None:
    # PostgreSQL's lower() takes each of these for the same address, or some other directory does.
    spellings = ["adm\u0130n@example.com", "adm\u0130N@EXAMPLE.com", "admi\u0307n@example.com"]
    client = make_limited(rate_limiter_logins_per_account=1)
    assert client.post("/auth/login", {"email": ADMIN_EMAIL, "password": "x"}).status == 401
    for email in spellings:
        answer = client.post("/auth/login", {"email": email, "password": ADMIN_PASSWORD})
        assert answer.status == 429, email


def test_no_spelling_of_a_share_has_attempts_of_its_own(make_limited: MakeLimited) -> None:
    share = "5e0c39b4-0b0e-4d5c-8a0e-0d3f1b6a7c11"
    client = make_limited(rate_limiter_logins_per_account=1)
    assert client.post("/shares/auth", {"share": share, "password": "x"}).status == 401
    for spelling in (
        share.upper(),
        share.replace("-", ""),
        f"{share[0]}-{share[1:]}",
        f"{{{share}}}",
    ):
        answer = client.post("/shares/auth", {"share": spelling, "password": "x"})
        assert answer.status == 429, spelling


@pytest.mark.release
def test_what_postgresql_takes_for_equal_is_one_account(dsn: str) -> None:
    characters = [chr(number) for number in range(1, 0x110000) if not 0xD800 <= number < 0xE000]
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT letter, lower(letter) FROM unnest(%s::text[]) AS letter"
            " WHERE letter <> lower(letter)",
            (characters,),
        ).fetchall()
    assert len(rows) > 1000
    different = [row for row in rows if account_name(row[0]) != account_name(row[1])]
    assert different == []


@pytest.mark.clock
def test_a_long_account_takes_no_time() -> None:
    began = time.perf_counter()
    account_name("\ufdfa" * 1_000_000)
    assert time.perf_counter() - began < 1


def test_accounts_that_do_not_exist_are_limited_alike(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_logins_per_account=2)
    answers = []
    for email in (ADMIN_EMAIL, "nobody@example.com"):
        answers.append(
            [
                (answer.status, left(answer))
                for answer in (
                    client.post("/auth/login", {"email": email, "password": "x"}) for _ in range(4)
                )
            ]
        )
    assert answers[0] == answers[1]
    assert [status for status, _ in answers[0]] == [401, 401, 429, 429]


def test_one_account_has_one_limit_for_all_that_is_critical(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_logins_per_account=2)
    client.post("/auth/login", {"email": ADMIN_EMAIL, "password": "x"})
    assert client.post("/auth/password/request", {"email": ADMIN_EMAIL}).status == 204
    assert client.post("/auth/password/request", {"email": ADMIN_EMAIL.upper()}).status == 429
    registration = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    assert client.post("/users/register", registration).status == 429
    # Who is logged in is not locked out by others.
    assert client.get("/server/info").status == 200


def test_the_limit_with_the_fewest_requests_left_is_reported(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_logins_per_address=20, rate_limiter_logins_per_account=9)
    assert left(client.get("/auth")) == (100, 99)
    answer = client.post("/auth/login", {"email": ADMIN_EMAIL, "password": "x"})
    assert left(answer) == (9, 8)
    assert left(client.post("/auth/password/reset", {})) == (20, 18)


def test_a_wrong_code_is_limited_for_who_is_logged_in(
    make_limited: MakeLimited, config: Config
) -> None:
    client = make_limited(rate_limiter_logins_per_account=3, secret=config.secret)
    admin = client.login(ADMIN_EMAIL, ADMIN_PASSWORD)
    statuses = [admin.post("/users/me/tfa/generate", {"password": "x"}).status for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]


def test_all_credentials_of_a_user_have_attempts_in_common(make_limited: MakeLimited) -> None:
    client = make_limited(rate_limiter_logins_per_account=5)
    own = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
    access_token = client.post("/auth/login", own).data["access_token"]
    changed = client.bearing(access_token).patch("/users/me", {"token": STATIC_TOKEN})
    assert changed.status == 200
    of_callers = [{"Authorization": f"Bearer {token}"} for token in (access_token, STATIC_TOKEN)]
    for _ in range(2):
        cookie = client.post("/auth/login", {**own, "mode": "session"}).cookies[SESSION].value
        of_callers.append({"Cookie": f"{SESSION}={cookie}", "Origin": OWN_ORIGIN})
    statuses = []
    for headers in of_callers * 2:
        answer = client.send("POST", "/users/me/tfa/generate", {"password": "x"}, **headers)
        statuses.append(answer.status)
    assert statuses == [401] * 5 + [429] * 3


def test_attempts_at_a_directory_are_limited_by_account(
    make_limited: MakeLimited, tmp_path: Path
) -> None:
    settings = {
        "AUTH_PROVIDERS": "ldap",
        "AUTH_LDAP_DRIVER": "ldap",
        "AUTH_LDAP_CLIENT_URL": "ldap://127.0.0.1:1",
        "AUTH_LDAP_BIND_DN": "cn=cms",
        "AUTH_LDAP_BIND_PASSWORD": "x",
        "AUTH_LDAP_USER_DN": "ou=people",
    }
    providers = load(settings, folder=tmp_path).providers
    client = make_limited(rate_limiter_logins_per_account=2, providers=providers)
    statuses = []
    for identifier in ("ann", "ANN", " ann", "ann"):
        body = {"identifier": identifier, "password": "x"}
        statuses.append(client.post("/auth/login/ldap", body).status)
    assert statuses == [503, 503, 429, 429]
    assert client.post("/auth/login/ldap", {"identifier": "ben", "password": "x"}).status == 503
