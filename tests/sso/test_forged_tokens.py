"""ID tokens that must not be believed, and those that must."""

from __future__ import annotations

import base64
import hmac
import json
import time

import pytest
import requests
from joserfc.jwk import ECKey, OctKey, RSAKey

from cms.sso import openid
from tests.sso.forger import CLIENT, CLIENT_SECRET, Forger, public, rsa
from tests.sso.site import Browser, Site, codes_of

pytestmark = [pytest.mark.slow, pytest.mark.release]

MINUTE = 60


def log_in(site: Site, forger: Forger, browser: Browser | None = None) -> requests.Response:
    browser = browser or Browser()
    return browser.get(forger.answer_url(site, browser))


@pytest.fixture
def forger(site: Site, forging: Forger) -> Forger:
    site.configure({"openid": forging.settings("openid")})
    return forging


def assert_refused(site: Site, forger: Forger, code: str = "INVALID_CREDENTIALS") -> None:
    """Nothing comes of the login: no user, no session, no cookie."""
    browser = Browser()
    answer = log_in(site, forger, browser)
    status = {"INVALID_CREDENTIALS": 401, "SERVICE_UNAVAILABLE": 503}[code]
    assert (answer.status_code, codes_of(answer)) == (status, [code])
    assert site.users() == []
    assert site.rows("SELECT id FROM system_sessions") == []
    assert browser.cookie("cms_session_token") is None


def test_a_right_token_is_believed(site: Site, forger: Forger) -> None:
    answer = log_in(site, forger)
    assert answer.status_code == 200, answer.text
    (user,) = site.users()
    assert user["external_identifier"] == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": ""},
        {"nonce": ["x"]},
        {"iss": "http://127.0.0.1:1"},
        {"iss": None},
        {"iss": ""},
        {"aud": "another-client"},
        {"aud": None},
        {"aud": ""},
        {"aud": []},
        {"aud": ["another-client"]},
        {"aud": [CLIENT, "another-client"]},
        {"aud": {"a": CLIENT}},
        {"aud": "another-client", "azp": CLIENT},
        {"aud": ["another-client"], "azp": CLIENT},
        {"aud": CLIENT, "azp": "another-client"},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"sub": None},
        {"sub": ""},
        {"sub": ["alice"]},
        {"sub": "bob"},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": True},
        {"iat": None},
        {"iat": "now"},
        {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    ],
    ids=str,
)
def test_wrong_claims(site: Site, forger: Forger, claims: dict[str, object]) -> None:
    forger.claims = claims
    assert_refused(site, forger)


@pytest.mark.parametrize(
    ("claim", "seconds"),
    [("exp", -2 * MINUTE), ("iat", 2 * MINUTE), ("nbf", 2 * MINUTE)],
)
def test_times_that_clocks_do_not_explain(
    site: Site, forger: Forger, claim: str, seconds: int
) -> None:
    forger.claims = {claim: int(time.time()) + seconds}
    assert_refused(site, forger)


@pytest.mark.parametrize(
    ("claim", "seconds"), [("exp", -MINUTE + 15), ("iat", MINUTE - 15), ("nbf", MINUTE - 15)]
)
def test_clocks_may_differ_by_a_minute(
    site: Site, forger: Forger, claim: str, seconds: int
) -> None:
    forger.claims = {claim: int(time.time()) + seconds}
    assert log_in(site, forger).status_code == 200


def test_several_audiences_with_this_client_as_the_party(site: Site, forger: Forger) -> None:
    forger.claims = {"aud": [CLIENT, "another-client"], "azp": CLIENT}
    assert log_in(site, forger).status_code == 200


# Signatures


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_signatures_with_an_rsa_key(site: Site, forger: Forger, algorithm: str) -> None:
    forger.algorithm = algorithm
    assert log_in(site, forger).status_code == 200


@pytest.mark.parametrize(
    ("algorithm", "curve"), [("ES256", "P-256"), ("ES384", "P-384"), ("ES512", "P-521")]
)
def test_signatures_with_a_key_on_a_curve(
    site: Site, forger: Forger, algorithm: str, curve: str
) -> None:
    forger.algorithm = algorithm
    forger.key = ECKey.generate_key(curve, {"kid": "curve"})
    assert log_in(site, forger).status_code == 200


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
def test_a_token_without_signature(site: Site, forger: Forger, algorithm: str) -> None:
    _refuse_written_token(site, forger, algorithm, b"")


@pytest.mark.parametrize("form", ["secret", "pem", "der"])
@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_signatures_with_what_others_know(
    site: Site, forger: Forger, form: str, algorithm: str
) -> None:
    """The secret of the client, or the public key taken for a secret."""
    key = forger.key
    assert isinstance(key, RSAKey)
    secrets = {
        "secret": CLIENT_SECRET.encode(),
        "pem": key.as_pem(private=False),
        "der": key.as_der(private=False),
    }
    _refuse_written_token(site, forger, algorithm, secrets[form])


def _refuse_written_token(site: Site, forger: Forger, algorithm: str, secret: bytes) -> None:
    """Send a token that no library would sign so; without a secret it is unsigned."""
    browser = Browser()
    url = forger.answer_url(site, browser)
    now = int(time.time())
    claims = {"iss": forger.issuer, "sub": "alice", "aud": CLIENT, "iat": now, "exp": now + 600}
    parts = [{"alg": algorithm, "kid": "one"}, claims | {"nonce": forger.nonce}]
    text = b".".join(_base64(json.dumps(part).encode()) for part in parts)
    signature = b""
    if secret:
        signature = _base64(hmac.digest(secret, text, f"sha{algorithm[2:]}"))
    forger.id_token = (text + b"." + signature).decode()
    assert codes_of(browser.get(url)) == ["INVALID_CREDENTIALS"]
    assert site.users() == []


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def test_a_secret_among_the_published_keys_signs_nothing(site: Site, forger: Forger) -> None:
    forger.key = OctKey.import_key(CLIENT_SECRET.encode(), {"kid": "secret"})
    secret = _base64(CLIENT_SECRET.encode()).decode()
    forger.published = [{"kty": "oct", "kid": "secret", "k": secret}, public(rsa("one"))]
    forger.algorithm = "HS256"
    assert_refused(site, forger)


def test_a_key_in_the_token_itself_is_not_believed(site: Site, forger: Forger) -> None:
    forger.published = [public(rsa("one"))]
    assert isinstance(forger.key, RSAKey)
    forger.header = {"jwk": forger.key.as_dict(private=False)}
    assert_refused(site, forger)


def test_a_key_for_encryption_signs_nothing(site: Site, forger: Forger) -> None:
    forger.published = [{**public(forger.key), "use": "enc"}]
    assert_refused(site, forger)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "....", "\0", "é.é.é", "a" * 100_000])
def test_a_token_that_is_none(site: Site, forger: Forger, token: str) -> None:
    forger.token = {"id_token": token}
    assert_refused(site, forger)


def test_a_token_that_is_deep(site: Site, forger: Forger) -> None:
    forger.id_token = f"{_base64(b'[' * 100_000).decode()}.e30.e30"
    assert_refused(site, forger)


# Keys that change


def test_new_keys_are_asked_for_when_a_token_names_one(
    site: Site, forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log_in(site, forger).status_code == 200
    forger.key = rsa("two")
    monkeypatch.setattr(openid, "KEYS_SECONDS", 0.0)
    assert log_in(site, forger).status_code == 200
    assert log_in(site, forger).status_code == 200
    assert forger.requests["/keys"] == 2


def test_made_up_tokens_cause_no_flood_of_requests(
    site: Site, forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "KEYS_SECONDS", 300.0)  # this machine may be slow
    assert log_in(site, forger).status_code == 200
    forger.published = [public(forger.key)]
    forger.key = rsa("made-up")
    for _ in range(5):
        assert codes_of(log_in(site, forger)) == ["INVALID_CREDENTIALS"]
    assert forger.requests["/keys"] == 1


def test_a_key_that_cannot_be_read_takes_nothing_from_the_others(
    site: Site, forger: Forger
) -> None:
    unreadable = [{"kty": "EC", "crv": "P-0", "x": "x"}, {"kty": "RSA"}, {"kty": []}, 5, None]
    forger.published = [*unreadable, public(forger.key)]  # type: ignore[list-item]
    assert log_in(site, forger).status_code == 200


def test_a_token_without_the_name_of_its_key(site: Site, forger: Forger) -> None:
    forger.published = [public(rsa("other")), public(forger.key)]
    forger.header = {"kid": None}
    assert log_in(site, forger).status_code == 200
