"""Single logout of SAML: begun here, and at the provider."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from lxml import etree

from tests.client import Answer
from tests.people import OWN_ORIGIN, of_user, outcome
from tests.sso.saml.identity_provider import (
    IdentityProvider,
)
from tests.sso.saml.logins import (
    APP,
    BASE,
    PUBLIC,
    REFUSED,
    Login,
    user,
)
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


def logged_in(login: Login, name: str) -> Answer:
    answer = login(user(name), APP)
    assert answer.status == 302
    return answer


def test_a_logout_returns_the_address_that_ends_the_session_at_the_provider(
    stage: Stage, login: Login, provider: IdentityProvider
) -> None:
    cookie = logged_in(login, "lena").cookies["cms_session_token"].value
    session = {"Cookie": f"cms_session_token={cookie}", "Origin": OWN_ORIGIN}
    url = stage.anonymous.send("POST", "/auth/logout", **session).data["logout_url"]
    assert url.startswith(f"{BASE}/slo?session=")
    answer = stage.anonymous.get(url.removeprefix(PUBLIC))
    assert answer.status == 302
    assert answer.headers["location"].startswith(f"{provider.address}/slo?SAMLRequest=")
    assert "Signature=" in answer.headers["location"]


def test_a_logout_goes_to_the_provider_of_its_session_only(stage: Stage, login: Login) -> None:
    cookie = logged_in(login, "lena").cookies["cms_session_token"].value
    session = {"Cookie": f"cms_session_token={cookie}", "Origin": OWN_ORIGIN}
    url = stage.anonymous.send("POST", "/auth/logout", **session).data["logout_url"]
    elsewhere = url.removeprefix(PUBLIC).replace("/campus/", "/plain/")
    assert outcome(stage.anonymous.get(elsewhere)) == REFUSED


def test_a_logout_of_a_made_up_session_is_refused(stage: Stage) -> None:
    assert outcome(stage.anonymous.get("/auth/login/campus/slo?session=x.y.z")) == REFUSED
    assert outcome(stage.anonymous.get("/auth/login/campus/slo")) == REFUSED


def test_the_providers_own_logout_ends_the_sessions_of_its_user(
    stage: Stage, login: Login, provider: IdentityProvider
) -> None:
    cookie = logged_in(login, "olga").cookies["cms_session_token"].value
    session = {"Cookie": f"cms_session_token={cookie}"}
    assert stage.anonymous.send("GET", "/users/me", **session).status == 200
    unsigned = logout_request(provider, "olga", signs=False)
    assert outcome(stage.anonymous.get(unsigned)) == REFUSED
    assert stage.anonymous.send("GET", "/users/me", **session).status == 200
    answer = stage.anonymous.get(logout_request(provider, "olga"))
    assert answer.status == 302, answer
    assert answer.headers["location"].startswith(f"{provider.address}/slo?SAMLResponse=")
    assert stage.anonymous.send("GET", "/users/me", **session).status == 401
    identifier = of_user(stage, "olga@example.com", "id::text")
    filters = {"filter[user][_eq]": identifier, "filter[action][_eq]": "logout"}
    assert [row["comment"] for row in stage.admin.get("/activity", **filters).data] == ["campus"]


@pytest.mark.parametrize(
    "change",
    [
        {"Destination": f"{BASE}/slo2"},
        {"Destination": None},
        {"IssueInstant": "2020-01-01T00:00:00Z"},
        {"IssueInstant": "9999-12-31T23:59:59Z"},
        {"NotOnOrAfter": "2020-01-01T00:00:00Z"},
    ],
)
def test_a_logout_for_another_address_or_time_is_refused(
    stage: Stage, login: Login, provider: IdentityProvider, change: dict[str, str | None]
) -> None:
    cookie = logged_in(login, "otto").cookies["cms_session_token"].value
    session = {"Cookie": f"cms_session_token={cookie}"}
    assert outcome(stage.anonymous.get(changed_request(provider, "otto", change))) == REFUSED
    assert stage.anonymous.send("GET", "/users/me", **session).status == 200
    unchanged = changed_request(provider, "otto", {})
    assert stage.anonymous.get(unchanged).status == 302
    assert stage.anonymous.send("GET", "/users/me", **session).status == 401


def changed_request(provider: IdentityProvider, name: str, change: dict[str, str | None]) -> str:
    """A request of logout with other attributes, signed by the provider after the change."""
    query = dict(parse_qsl(urlsplit(logout_request(provider, name)).query))
    message = etree.fromstring(zlib.decompress(b64decode(query["SAMLRequest"]), -15))
    for attribute, value in change.items():
        if value is None:
            del message.attrib[attribute]
        else:
            message.set(attribute, value)
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(etree.tostring(message)) + packer.flush()
    signed = urlencode({"SAMLRequest": b64encode(packed).decode(), "SigAlg": query["SigAlg"]})
    key = load_pem_private_key(provider.keys.key.encode(), None)
    assert isinstance(key, RSAPrivateKey)
    signature = b64encode(key.sign(signed.encode(), PKCS1v15(), SHA256())).decode()
    return f"/auth/login/campus/slo?{signed}&{urlencode({'Signature': signature})}"


def logout_request(provider: IdentityProvider, name: str, *, signs: bool = True) -> str:
    """A message of the provider that ends a user's sessions, as the path of a request."""
    from onelogin.saml2.auth import OneLogin_Saml2_Auth

    settings = {
        "strict": True,
        "sp": {
            "entityId": "urn:test:idp",
            "assertionConsumerService": {"url": "http://127.0.0.1:1/acs"},
            "x509cert": provider.keys.certificate,
            "privateKey": provider.keys.key,
        },
        "idp": {
            "entityId": f"{BASE}/metadata",
            "singleSignOnService": {"url": f"{BASE}/sso"},
            "singleLogoutService": {"url": f"{BASE}/slo"},
            "x509cert": provider.keys.certificate,
        },
        "security": {"logoutRequestSigned": signs},
    }
    request = {"https": "off", "http_host": "127.0.0.1:1", "script_name": "/", "get_data": {}}
    return str(OneLogin_Saml2_Auth(request, settings).logout(name_id=name)).removeprefix(PUBLIC)
