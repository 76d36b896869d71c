"""Providers that are down, slow, or answer with rubbish: the login fails, and nothing else."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import requests
import trustme

from cms.outgoing import outgoing_requests
from cms.sso import transport
from tests.sso.forger import Forger, Handler, Raw, running_forger
from tests.sso.site import APP_URL, Browser, Site, codes_of, reason_of
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.release]

DISCOVERY = "/.well-known/openid-configuration"
MANY_BYTES = 1 << 30
DRIPS = 200


@pytest.fixture
def forger(site: Site, forging: Forger) -> Forger:
    site.configure({"openid": forging.settings("openid", redirect_allow_list=APP_URL)})
    return forging


def log_in(site: Site, forger: Forger) -> requests.Response:
    """Log in as far as it goes; return the refusal, or the session."""
    browser = Browser()
    begun = browser.get(site.login_url("openid"))
    if begun.status_code != 302:
        return begun
    return browser.get(forger.answer_url(site, browser))


def assert_unavailable(site: Site, answer: requests.Response) -> None:
    assert (answer.status_code, codes_of(answer)) == (503, ["SERVICE_UNAVAILABLE"])
    assert site.users() == []
    assert site.admin.get("/users/me").status == 200


def text_answer(text: str, *, status: int = 200, **headers: str) -> Raw:
    return lambda handler: handler.send_text(text, status=status, **headers)


def gigabyte(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(MANY_BYTES))
    handler.end_headers()
    chunk = b'{"a": "' + b"a" * 65_536
    try:
        for _ in range(MANY_BYTES // len(chunk)):
            handler.wfile.write(chunk)
    except OSError:
        pass  # the service has hung up, as it should


def slow_drip(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(DRIPS):
            handler.wfile.write(b" ")
            time.sleep(0.1)
    except OSError:
        pass  # the service has hung up, as it should


def bomb(handler: Handler) -> None:
    """Few bytes of gzip that are many."""

    content = gzip.compress(b" " * (64 << 20))
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def hang_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.close()


RUBBISH: dict[str, Raw] = {
    "a page": text_answer("<html><body>Maintenance</body></html>"),
    "nothing": text_answer(""),
    "a list": text_answer("[]"),
    "a text": text_answer('"x"'),
    "null": text_answer("null"),
    "half": text_answer('{"a": '),
    "deep": text_answer("[" * 100_000),
    "a fault": text_answer("{}", status=500),
    "too many": text_answer("{}", status=429),
    "elsewhere": text_answer("", status=302, Location="http://127.0.0.1:1/"),
    "a gigabyte": gigabyte,
    "a bomb": bomb,
    "no answer": hang_up,
}


@pytest.mark.parametrize("path", [DISCOVERY, "/token", "/keys", "/me"])
def test_answers_that_are_rubbish(site: Site, forger: Forger, path: str) -> None:
    for name, raw in RUBBISH.items():
        site.restart(site.config)  # it remembers what it was told before
        forger.raw = {path: raw}
        answer = log_in(site, forger)
        assert answer.status_code == 503, (name, answer.text)
        assert_unavailable(site, answer)
    forger.raw = {}
    site.restart(site.config)
    assert log_in(site, forger).status_code == 200


@pytest.mark.parametrize("path", [DISCOVERY, "/token", "/keys", "/me"])
def test_no_redirect_is_followed(site: Site, forger: Forger, path: str) -> None:
    """It could carry the secret of the client, a code or a token to somebody else."""
    target = f"{forger.issuer}/elsewhere"
    for status in (301, 302, 303, 307, 308):
        site.restart(site.config)
        forger.raw = {path: text_answer("", status=status, Location=target)}
        assert_unavailable(site, log_in(site, forger))
    assert forger.requests["/elsewhere"] == 0


@pytest.mark.clock
@pytest.mark.parametrize("path", [DISCOVERY, "/token", "/keys", "/me"])
def test_a_slow_drip_ends_at_the_deadline(
    site: Site, forger: Forger, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_SECONDS", 1.0)
    forger.raw = {path: slow_drip}
    start = time.monotonic()
    assert_unavailable(site, log_in(site, forger))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": None},
        {"issuer": "https://another.example.com"},
        {"issuer": 5},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": ["http://127.0.0.1/token"]},
        {"token_endpoint": "http://["},
        {"token_endpoint": "http://"},
        {"token_endpoint": "http://127.0.0.1:99999/"},
        {"token_endpoint": "http://provider.example.com/token"},
        {"jwks_uri": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "http://127.0.0.1:1/keys"},
        {"userinfo_endpoint": "http://provider.example.com/me"},
    ],
    ids=str,
)
def test_a_discovery_document_that_is_wrong(
    site: Site, forger: Forger, document: dict[str, object]
) -> None:
    forger.document = document
    assert_unavailable(site, log_in(site, forger))


@pytest.mark.parametrize("name", ["token_endpoint", "userinfo_endpoint", "jwks_uri"])
def test_a_document_that_came_over_tls_leads_to_no_plain_http(
    site: Site, forger: Forger, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else listens on this machine would get requests of the provider's choice."""
    authority = trustme.CA()
    trusting = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    monkeypatch.setattr(outgoing_requests, "_default_ssl_context", lambda: trusting)
    plain = forger.issuer
    with running_forger(authority) as encrypted:
        site.configure({"openid": encrypted.settings("openid")})
        assert Browser().get(site.login_url("openid")).status_code == 302
        encrypted.document = {name: f"{plain}/elsewhere"}
        site.restart(site.config)
        assert_unavailable(site, Browser().get(site.login_url("openid")))
        site.configure({"openid": encrypted.settings("openid", allow_insecure="true")})
        assert Browser().get(site.login_url("openid")).status_code == 302


@pytest.mark.parametrize(
    "token",
    [
        {"access_token": None},
        {"access_token": 5},
        {"access_token": ""},
        {"access_token": "a\r\nX-Other: b"},
        {"access_token": "☃"},
        {"id_token": None},
        {"id_token": 5},
        {"expires_in": "soon"},
        {"expires_in": [1]},
    ],
    ids=str,
)
def test_tokens_of_wrong_types(site: Site, forger: Forger, token: dict[str, object]) -> None:
    forger.token = token
    assert_unavailable(site, log_in(site, forger))


@pytest.mark.parametrize(
    "token", [{"token_type": None}, {"expires_in": 0}, {"expires_in": "30"}, {"expires_in": None}]
)
def test_tokens_with_few_claims(site: Site, forger: Forger, token: dict[str, object]) -> None:
    forger.token = token
    assert log_in(site, forger).status_code == 200


@pytest.mark.parametrize("keys", [None, {}, "x", [], [[]], [{"kty": "RSA", "n": "é", "e": "!"}]])
def test_lists_of_keys_without_one(site: Site, forger: Forger, keys: object) -> None:
    forger.raw = {"/keys": text_answer(json.dumps({"keys": keys}))}
    answer = log_in(site, forger)
    assert answer.status_code in (401, 503), answer.text
    assert site.users() == []


def test_a_provider_that_refuses_a_code_refuses_the_login(site: Site, forger: Forger) -> None:
    refusal = text_answer('{"error": "invalid_grant"}', status=400)
    forger.raw = {"/token": refusal}
    answer = log_in(site, forger)
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])


@pytest.mark.parametrize("error", ['"invalid_client"', "5", "null", '["x"]', '"\\u0000"'])
def test_errors_of_any_type(site: Site, forger: Forger, error: str) -> None:
    forger.raw = {"/token": text_answer(f'{{"error": {error}}}', status=400)}
    assert log_in(site, forger).status_code in (401, 503)


@pytest.mark.parametrize(
    "profile",
    [
        {"sub": "alice", "email": 5, "given_name": ["x"], "groups": {"a": 1}, "family_name": {}},
        {"sub": "alice", "email": "a@b\0.com", "given_name": "\0", "groups": [None, 1, "x" * 9999]},
        {"sub": "alice", "email": "a" * 10_000 + "@example.com", "given_name": "é" * 100_000},
        {"sub": "alice", "email_verified": "yes", "groups": [["x"]]},
    ],
)
def test_claims_of_wrong_types_are_left_out(
    site: Site, forger: Forger, profile: dict[str, object]
) -> None:
    forger.profile = profile
    answer = log_in(site, forger)
    assert answer.status_code == 200, answer.text
    assert len(site.users()) == 1


def test_half_a_character_is_left_out(site: Site, forger: Forger) -> None:
    forger.document = {"userinfo_endpoint": None}
    forger.claims = {"given_name": "\ud800", "family_name": "Liddell", "groups": ["\udfff"]}
    assert log_in(site, forger).status_code == 200
    (user,) = site.users()
    assert (user["first_name"], user["last_name"]) == (None, "Liddell")


@pytest.mark.parametrize("sub", ["\ud800", "a\0b", "x" * 2_000, " "])
def test_identifiers_that_cannot_be_stored(site: Site, forger: Forger, sub: str) -> None:
    forger.document = {"userinfo_endpoint": None}
    forger.claims = {"sub": sub}
    assert_unavailable(site, log_in(site, forger))


def test_identifiers_are_compared_as_they_are(site: Site, forger: Forger) -> None:
    forger.document = {"userinfo_endpoint": None}
    identifiers = ["alice", " alice", "alice ", "alice\u00a0", "Alice"]
    for sub in identifiers:
        forger.claims = {"sub": sub}
        assert log_in(site, forger).status_code == 200
    assert {user["external_identifier"] for user in site.users()} == set(identifiers)


def test_groups_are_compared_as_they_are(site: Site, forger: Forger) -> None:
    role = site.role("Admins")
    mapping = json.dumps({"admins": role})
    site.configure({"openid": forger.settings("openid", role_mapping=mapping)})
    for groups in (" admins", ["admins "], ["Admins"], [["admins"]], {"admins": 1}, "admins,x"):
        forger.profile = {"sub": "alice", "groups": groups}
        assert log_in(site, forger).status_code == 200
        assert site.users()[0]["role"] is None
    forger.profile = {"sub": "alice", "groups": ["x", "admins"]}
    assert log_in(site, forger).status_code == 200
    assert site.users()[0]["role"] == role


@pytest.mark.parametrize("sub", ["bob", None, 5, ["alice"], "Alice", "alice "])
def test_the_profile_of_another_user(site: Site, forger: Forger, sub: object) -> None:
    forger.profile = {"sub": sub, "email": "alice@example.com"}
    answer = log_in(site, forger)
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])
    assert site.users() == []


VERIFIED = {"email": "alice@example.com", "email_verified": True}


@pytest.mark.parametrize(
    ("claims", "details", "is_verified"),
    [
        (VERIFIED, {}, True),
        ({}, VERIFIED, True),
        ({}, {**VERIFIED, "email_verified": "true"}, True),
        (VERIFIED, {"email": "alice@example.com"}, True),
        (VERIFIED, {"email": "other@example.com"}, False),
        (VERIFIED, {**VERIFIED, "email_verified": False}, False),
        ({"email_verified": True}, {"email": "other@example.com"}, False),
        ({}, {**VERIFIED, "email_verified": "yes"}, False),
        ({}, {**VERIFIED, "email_verified": 1}, False),
        ({}, {"email": "alice@example.com"}, False),
    ],
    ids=str,
)
def test_an_address_is_verified_by_the_word_beside_it(
    site: Site,
    forger: Forger,
    claims: dict[str, object],
    details: dict[str, object],
    is_verified: bool,  # noqa: FBT001
) -> None:
    settings = forger.settings("openid", require_verified_email="true")
    site.configure({"openid": settings})
    forger.claims = claims
    forger.profile = {"sub": "alice", **details}
    assert log_in(site, forger).status_code == (200 if is_verified else 401)
    assert len(site.users()) == is_verified


def test_the_word_does_not_count_for_another_key(site: Site, forger: Forger) -> None:
    options = {"require_verified_email": "true", "email_key": "upn"}
    site.configure({"openid": forger.settings("openid", **options)})
    forger.profile = {"sub": "alice", **VERIFIED, "upn": "boss@example.com"}
    assert codes_of(log_in(site, forger)) == ["INVALID_CREDENTIALS"]
    assert site.users() == []


def test_an_address_that_identifies_users_is_verified_at_each_login(
    site: Site, forger: Forger
) -> None:
    options = {"require_verified_email": "true", "identifier_key": "email"}
    site.configure({"openid": forger.settings("openid", **options)})
    forger.profile = {"sub": "alice", **VERIFIED}
    assert log_in(site, forger).status_code == 200
    # Somebody else writes her address into a profile of the same provider.
    forger.claims = {"sub": "mallory"}
    for word in (False, None):
        forger.profile = {"sub": "mallory", **VERIFIED, "email_verified": word}
        assert codes_of(log_in(site, forger)) == ["INVALID_CREDENTIALS"]


# Down


def test_a_provider_that_is_down(site: Site, forger: Forger) -> None:
    settings = forger.settings(
        "openid", issuer_url=f"http://127.0.0.1:1{DISCOVERY}", redirect_allow_list=APP_URL
    )
    working = forger.settings("other")
    site.configure({"openid": settings, "other": working})
    browser = Browser()
    assert_unavailable(site, browser.get(site.login_url("openid")))
    assert reason_of(browser.get(site.login_url("openid", APP_URL))) == "SERVICE_UNAVAILABLE"
    assert browser.cookie("cms_") is None
    assert browser.get(site.login_url("other")).status_code == 302
    assert site.anonymous.get("/auth").status == 200


def test_a_provider_that_comes_back_is_asked_again(site: Site, forger: Forger) -> None:
    forger.raw = {DISCOVERY: hang_up}
    assert_unavailable(site, log_in(site, forger))
    forger.raw = {}
    assert log_in(site, forger).status_code == 200


def test_a_provider_that_goes_down_during_a_login(site: Site, forger: Forger) -> None:
    browser = Browser()
    url = forger.answer_url(site, browser)
    forger.raw = {"/token": hang_up}
    assert_unavailable(site, browser.get(url))


def test_slow_providers_leave_threads_to_others(site: Site, forger: Forger) -> None:
    site.restart(replace(site.config, web_threads=4))
    may_answer = threading.Event()
    forger.raw = {DISCOVERY: slow_until(may_answer)}
    url = site.login_url("openid")
    with ThreadPoolExecutor(6) as threads:
        answers = [threads.submit(Browser().get, url) for _ in range(6)]
        # Two of four threads wait for it; the others have been told that there are too many.
        eventually(lambda: sum(answer.done() for answer in answers) == 4)
        for answer in answers:
            if answer.done():
                assert_unavailable(site, answer.result())
        may_answer.set()
    assert [answer.result().status_code for answer in answers].count(302) == 2


def slow_until(may_answer: threading.Event) -> Raw:
    def answer(handler: Handler) -> None:
        may_answer.wait(60)
        handler.send_text(json.dumps(handler.forger.answers()[DISCOVERY]()))

    return answer
