"""What strangers send to the addresses of external logins: never a fault of the service."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client import Client
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAMES = st.sampled_from(["campus", "plain", "unknown", "CAMPUS", "default", "%2e%2e", "a%2Fb", "ü"])
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "PHI+",
            "https://app.example.com/in",
            "https://app.example.com/in?reason=x",
            "//evil.example.com",
            "a.b.c",
            "eJwDAAAAAAE=",
            "\r\nSet-Cookie: a=b",
        ]
    ),
)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        [
            "redirect",
            "state",
            "code",
            "error",
            "iss",
            "session",
            "SAMLRequest",
            "SAMLResponse",
            "RelayState",
            "Signature",
            "SigAlg",
        ]
    ),
    st.lists(TEXTS, min_size=1, max_size=2),
    max_size=5,
)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), TEXTS, st.lists(TEXTS, max_size=2))
BODIES = st.one_of(
    VALUES,
    st.dictionaries(
        st.sampled_from(["identifier", "email", "password", "otp", "mode"]), VALUES, max_size=5
    ),
)


@pytest.fixture(scope="module")
def client(stage: Stage) -> Client:
    return stage.anonymous


@settings(deadline=None)
@given(NAMES, st.sampled_from(["", "/callback", "/slo", "/metadata", "/acs"]), PARAMETERS)
def test_queries(client: Client, name: str, path: str, parameters: dict[str, list[str]]) -> None:
    query = urlencode(parameters, doseq=True, errors="replace")
    address = f"/auth/login/{quote(name, safe='%')}{path}?{query}"
    cookies = {"Cookie": "cms_login_=x; cms_login_a=b; cms_login_factor=x.y.z"}
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        answer = client.send(method, address, **cookies)
        assert answer.status < 500, answer
        location = answer.headers.get("location", "http://127.0.0.1")
        assert location.startswith(("http://127.0.0.1", "https://app.example.com/in")), method


@settings(deadline=None)
@given(NAMES, PARAMETERS)
def test_forms(client: Client, name: str, parameters: dict[str, list[str]]) -> None:
    body = urlencode(parameters, doseq=True, errors="replace")
    address = f"/auth/login/{quote(name, safe='%')}/acs"
    assert client.send("POST", address, raw=body, **FORM).status < 500


@settings(deadline=None)
@given(NAMES, BODIES)
def test_bodies(client: Client, name: str, body: object) -> None:
    address = f"/auth/login/{quote(name, safe='%')}"
    answer = client.send(
        "POST", address, body, Cookie="cms_login_factor=x.y.z", Origin="http://127.0.0.1:8055"
    )
    assert answer.status < 500
    if isinstance(body, dict):
        assert client.post("/auth/login", {**body, "mode": "ldap"}).status < 500
