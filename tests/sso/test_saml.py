"""Logins by SAML against an identity provider that nobody here wrote (docs/sso.md)."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from lxml import etree

from cms.config import Config, load
from tests.client import Answer
from tests.people import OWN_ORIGIN, of_user
from tests.sso.identity_provider import (
    Form,
    IdentityProvider,
    KeyPair,
    identity_provider,
    installed_packages,
    new_key_pair,
)
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]

PUBLIC = "http://127.0.0.1:8055"
BASE = f"{PUBLIC}/auth/login/campus"
ACS = f"{BASE}/acs"
APP = "https://app.example.com/in"
CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims"
NS = {
    "p": "urn:oasis:names:tc:SAML:2.0:protocol",
    "a": "urn:oasis:names:tc:SAML:2.0:assertion",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
}
REFUSED = (401, ["INVALID_CREDENTIALS"])
EDITORS = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    with identity_provider(installed_packages(tmp_path_factory.mktemp("saml"))) as running:
        yield running


@pytest.fixture(scope="module")
def own_keys() -> KeyPair:
    return new_key_pair()


@pytest.fixture(scope="module")
def stage_settings(
    settings: Config, provider: IdentityProvider, own_keys: KeyPair, tmp_path_factory: Any
) -> Config:
    variables = {
        "SECRET": "only-for-tests-" * 3,
        "LOG_LEVEL": "fatal",
        "AUTH_PROVIDERS": "campus,plain",
    }
    for name in ("CAMPUS", "PLAIN"):
        variables |= {
            f"AUTH_{name}_DRIVER": "saml",
            f"AUTH_{name}_IDP_metadata": provider.metadata,
            f"AUTH_{name}_ALLOW_PUBLIC_REGISTRATION": "true",
        }
    variables |= {
        "AUTH_CAMPUS_REDIRECT_ALLOW_LIST": APP,
        "AUTH_CAMPUS_GROUP_CLAIM_NAME": "groups",
        "AUTH_CAMPUS_ROLE_MAPPING": f'json:{{"editors": "{EDITORS}"}}',
        "AUTH_CAMPUS_SP_PRIVATE_KEY": own_keys.key,
        "AUTH_CAMPUS_SP_CERTIFICATE": own_keys.certificate,
    }
    return load(variables, folder=Path(tmp_path_factory.mktemp("saml-settings")))


@pytest.fixture(scope="module", autouse=True)
def editors(stage: Stage) -> None:
    with stage.side_door.connection() as connection:
        connection.execute(b"INSERT INTO system_roles (id, name) VALUES (%s, 'Editors')", [EDITORS])


def user(name: str, **attributes: object) -> dict[str, object]:
    """A user as the provider knows it."""
    return {
        "id": name,
        "attributes": {
            f"{CLAIMS}/emailaddress": f"{name}@example.com",
            f"{CLAIMS}/givenname": "Ada",
            f"{CLAIMS}/surname": "Lovelace",
            **attributes,
        },
    }


class Browser:
    """A browser with the cookies of one login."""

    def __init__(self, stage: Stage, name: str = "campus") -> None:
        self.stage = stage
        self.path = f"/auth/login/{name}"
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> Answer:
        return self._send("GET", path)

    def begin(self, redirect: str | None = None) -> str:
        """Begin a login, and return where the browser is sent."""
        query = f"?redirect={quote(redirect)}" if redirect else ""
        answer = self.get(f"{self.path}{query}")
        assert answer.status == 302, answer
        return answer.headers["location"]

    def post_form(self, form: Form) -> Answer:
        """Send the provider's form, as a browser does from another site: without cookies."""
        return self.stage.anonymous.send(
            "POST",
            f"{self.path}/acs",
            raw=urlencode({"SAMLResponse": form.response, "RelayState": form.relay_state}),
            **{"Content-Type": "application/x-www-form-urlencoded"},
        )

    def send_form(self, form: Form) -> Answer:
        """Send the form and follow the redirect within the service."""
        answer = self.post_form(form)
        if answer.status != 303:
            return answer
        location = answer.headers["location"]
        assert location.startswith(PUBLIC)
        return self.get(location.removeprefix(PUBLIC))

    def _send(self, method: str, path: str) -> Answer:
        headers = {}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        answer = self.stage.anonymous.send(method, path, **headers)
        for name, cookie in answer.cookies.items():
            self.cookies[name] = cookie.value
        return answer


class Login:
    """Logs users in from the first page to the last."""

    def __init__(self, stage: Stage, provider: IdentityProvider) -> None:
        self.stage = stage
        self.provider = provider

    def form(
        self, browser: Browser, who: dict[str, object], redirect: str | None = None, **saml: Any
    ) -> Form:
        acs = f"{PUBLIC}{browser.path}/acs"
        self.provider.configure(user=who, acs=acs, saml=saml)
        return self.provider.log_in(browser.begin(redirect))

    def __call__(self, who: dict[str, object], redirect: str | None = None, **saml: Any) -> Answer:
        browser = Browser(self.stage)
        return browser.send_form(self.form(browser, who, redirect, **saml))


@pytest.fixture
def login(stage: Stage, provider: IdentityProvider) -> Login:
    return Login(stage, provider)


def outcome(answer: Answer) -> tuple[int, list[str]]:
    return answer.status, answer.codes


def users_named(stage: Stage, name: str) -> int:
    with stage.side_door.connection() as connection:
        query = b"SELECT count(*) FROM system_users WHERE external_identifier = %s"
        row = connection.execute(query, [name]).fetchone()
        assert row
        return int(row[0])


def test_a_user_of_the_provider_is_made_and_logged_in(stage: Stage, login: Login) -> None:
    answer = login(user("ada", groups=["writers", "editors"]))
    assert answer.status == 200, answer
    me = stage.anonymous.send(
        "GET", "/users/me", Cookie=f"cms_session_token={answer.cookies['cms_session_token'].value}"
    )
    assert me.status == 200
    columns = "first_name, last_name, provider, external_identifier, role::text"
    stored = of_user(stage, "ada@example.com", f"row({columns})::text")
    assert stored == f"(Ada,Lovelace,campus,ada,{EDITORS})"


def test_the_second_login_is_that_of_the_same_user_with_the_groups_of_now(
    stage: Stage, login: Login
) -> None:
    login(user("grace", groups=["editors"]))
    assert of_user(stage, "grace@example.com", "role::text") == EDITORS
    login(user("grace", groups=["writers"]))
    assert of_user(stage, "grace@example.com", "role::text") is None
    assert users_named(stage, "grace") == 1


def test_a_login_with_a_redirect_ends_there_with_a_cookie(login: Login) -> None:
    answer = login(user("edith"), APP)
    assert (answer.status, answer.headers["location"]) == (302, APP)
    assert answer.cookies["cms_session_token"].http_only


def test_the_activity_names_the_provider(stage: Stage, login: Login) -> None:
    login(user("mary"))
    identifier = of_user(stage, "mary@example.com", "id::text")
    rows = stage.admin.get(
        "/activity", **{"filter[item][_eq]": identifier, "filter[action][_eq]": "login"}
    ).data
    assert [row["comment"] for row in rows] == ["campus"]


RESPONSE_SIGNED = {"signResponse": True, "signAssertion": False}
ASSERTION_SIGNED = {"signResponse": False, "signAssertion": True}


@pytest.mark.parametrize("saml", [RESPONSE_SIGNED, ASSERTION_SIGNED], ids=["response", "assertion"])
def test_either_signature_is_enough(login: Login, saml: dict[str, Any]) -> None:
    assert login(user("katherine"), **saml).status == 200


def test_requests_are_signed_where_there_is_a_key(stage: Stage) -> None:
    signed = parse_qs(urlsplit(Browser(stage).begin()).query)
    assert signed["SigAlg"] == ["http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"]
    assert "Signature" not in parse_qs(urlsplit(Browser(stage, "plain").begin()).query)


def test_the_provider_accepts_the_signature(
    stage: Stage, provider: IdentityProvider, own_keys: KeyPair
) -> None:
    provider.configure(user=user("radia"), acs=ACS, saml={}, requestCert=own_keys.certificate)
    browser = Browser(stage)
    assert browser.send_form(provider.log_in(browser.begin())).status == 200


def test_an_encrypted_assertion_is_read(login: Login, own_keys: KeyPair) -> None:
    public = own_keys.certificate
    answer = login(
        user("joan"),
        encryptionCert=public,
        encryptionPublicKey=public_key_of(own_keys),
        encryptionAlgorithm="http://www.w3.org/2009/xmlenc11#aes256-gcm",
    )
    assert answer.status == 200, answer


def public_key_of(keys: KeyPair) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    key = x509.load_pem_x509_certificate(keys.certificate.encode()).public_key()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()


def test_the_metadata_name_the_addresses_and_the_certificate(
    stage: Stage, own_keys: KeyPair
) -> None:
    document = stage.anonymous.get("/auth/login/campus/metadata").text
    assert ACS in document
    assert f"{BASE}/metadata" in document
    assert own_keys.bare_certificate in document.replace("\n", "")


# What is refused


def test_an_answer_counts_once(stage: Stage, login: Login) -> None:
    browser = Browser(stage)
    form = login.form(browser, user("hedy"))
    again = browser.cookies.copy()
    assert browser.send_form(form).status == 200
    browser.cookies = again
    assert outcome(browser.send_form(form)) == REFUSED


def test_of_many_copies_at_once_one_counts(stage: Stage, login: Login) -> None:
    browser = Browser(stage)
    form = login.form(browser, user("annie"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: browser.post_form(form), range(8)))
    assert sorted(answer.status for answer in answers) == [303, *[401] * 7]


def test_the_answer_to_another_browser_is_refused(stage: Stage, login: Login) -> None:
    form = login.form(Browser(stage), user("mallory"))
    victim = Browser(stage)
    victim.begin()
    assert outcome(victim.send_form(form)) == REFUSED
    assert users_named(stage, "mallory") == 0


def test_the_answer_to_another_request_of_the_same_browser_is_refused(
    stage: Stage, login: Login
) -> None:
    browser = Browser(stage)
    first = login.form(browser, user("eve"))
    second = login.form(browser, user("eve"))
    mixed = Form(first.response, second.relay_state)
    assert outcome(browser.send_form(mixed)) == REFUSED


def test_an_answer_that_nobody_asked_for_is_refused(
    stage: Stage, provider: IdentityProvider, login: Login
) -> None:
    browser = Browser(stage)
    browser.begin()
    provider.configure(user=user("unasked"), acs=ACS, saml={"audience": f"{BASE}/metadata"})
    form = provider.log_in(f"{provider.address}/sso")
    assert outcome(browser.post_form(form)) == REFUSED


@pytest.mark.parametrize(
    "saml",
    [
        {"signAssertion": False},
        {"audience": "https://other.example.com"},
        {"recipient": f"{PUBLIC}/auth/login/plain/acs"},
        {"recipient": f"{ACS}.example.com"},
        {"recipient": None},
        {"destination": "https://other.example.com/acs", "signResponse": True},
        {"issuer": "urn:another:idp"},
        {"lifetimeInSeconds": -4000},
        {"signatureAlgorithm": "rsa-sha1", "digestAlgorithm": "sha1"},
        {"inResponseTo": "_another"},
        {"samlStatusCode": "urn:oasis:names:tc:SAML:2.0:status:Responder"},
    ],
    ids=str,
)
def test_an_answer_that_is_not_for_this_login_is_refused(
    stage: Stage, login: Login, saml: dict[str, Any]
) -> None:
    assert outcome(login(user("refused"), **saml)) == REFUSED
    assert users_named(stage, "refused") == 0


def test_an_answer_signed_with_another_key_is_refused(
    stage: Stage, login: Login, tmp_path: Path
) -> None:
    keys = new_key_pair()
    answer = login(user("refused"), key=keys.key, cert=keys.certificate)
    assert outcome(answer) == REFUSED


def test_a_refusal_goes_to_the_redirect_with_its_reason(stage: Stage, login: Login) -> None:
    browser = Browser(stage)
    # Two accounts with one address: the second one is not made.
    login(user("double"))
    second = user("second")
    cast(dict[str, object], second["attributes"])[f"{CLAIMS}/emailaddress"] = "double@example.com"
    answer = browser.send_form(login.form(browser, second, APP))
    assert (answer.status, answer.headers["location"]) == (302, f"{APP}?reason=INVALID_PROVIDER")


# Signature wrapping: a signed document, and beside it one that nobody has signed


def forged(original: Any, name: str) -> Any:
    """A copy of an assertion or a response about somebody else, without a signature."""
    evil = copy.deepcopy(original)
    for signature in evil.findall(".//ds:Signature", NS):
        signature.getparent().remove(signature)
    for name_id in evil.iter(f"{{{NS['a']}}}NameID"):
        name_id.text = name
    evil.set("ID", "_evil")
    return evil


def signature_of(element: Any) -> Any:
    return element.find("ds:Signature", NS)


def assertion_of(root: Any) -> Any:
    return root.find("a:Assertion", NS)


def response_in_signature(root: Any) -> Any:
    evil = forged(root, "admin")
    signature = copy.deepcopy(signature_of(root))
    original = copy.deepcopy(root)
    original.remove(signature_of(original))
    signature.append(original)
    evil.insert(1, signature)
    return evil


def response_beside_signature(root: Any) -> Any:
    evil = forged(root, "admin")
    signature = copy.deepcopy(signature_of(root))
    original = copy.deepcopy(root)
    original.remove(signature_of(original))
    evil.insert(1, original)
    evil.insert(2, signature)
    return evil


def assertion_before(root: Any) -> Any:
    original = assertion_of(root)
    root.insert(root.index(original), forged(original, "admin"))
    return root


def assertion_around(root: Any) -> Any:
    original = assertion_of(root)
    evil = forged(original, "admin")
    root.replace(original, evil)
    evil.append(original)
    return root


def signature_moved(root: Any) -> Any:
    original = assertion_of(root)
    evil = forged(original, "admin")
    signature = signature_of(original)
    original.remove(signature)
    evil.insert(1, signature)
    root.replace(original, evil)
    root.append(original)
    return root


def assertion_in_moved_signature(root: Any) -> Any:
    original = assertion_of(root)
    evil = forged(original, "admin")
    signature = signature_of(original)
    original.remove(signature)
    root.replace(original, evil)
    signature.append(original)
    evil.insert(1, signature)
    return root


def assertion_in_extensions(root: Any) -> Any:
    original = assertion_of(root)
    evil = forged(original, "admin")
    extensions = etree.Element(f"{{{NS['p']}}}Extensions")
    extensions.append(evil)
    root.insert(1, extensions)
    return root


def original_in_object(root: Any) -> Any:
    original = assertion_of(root)
    evil = forged(original, "admin")
    signature = signature_of(original)
    original.remove(signature)
    holder = etree.SubElement(signature, f"{{{NS['ds']}}}Object")
    root.replace(original, evil)
    holder.append(original)
    evil.insert(1, signature)
    return root


def with_same_id(attack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def same_id(root: Any) -> Any:
        identifier = assertion_of(root).get("ID")
        changed = attack(root)
        for element in changed.iter():
            if element.get("ID") == "_evil":
                element.set("ID", identifier)
        return changed

    same_id.__name__ = f"{attack.__name__}_same_id"
    return same_id


OF_RESPONSE = [response_in_signature, response_beside_signature]
OF_ASSERTION = [
    assertion_before,
    assertion_around,
    signature_moved,
    assertion_in_moved_signature,
    assertion_in_extensions,
    original_in_object,
]
ATTACKS = [
    *((attack, RESPONSE_SIGNED) for attack in OF_RESPONSE),
    *((attack, ASSERTION_SIGNED) for attack in OF_ASSERTION),
    *((with_same_id(attack), ASSERTION_SIGNED) for attack in OF_ASSERTION),
]


@pytest.mark.parametrize(
    ("attack", "saml"), ATTACKS, ids=[attack.__name__ for attack, _ in ATTACKS]
)
def test_a_wrapped_signature_is_refused(
    stage: Stage, login: Login, attack: Callable[[Any], Any], saml: dict[str, Any]
) -> None:
    browser = Browser(stage)
    form = login.form(browser, user("victim"), **saml)
    root = attack(etree.fromstring(base64.b64decode(form.response)))
    wrapped = Form(base64.b64encode(etree.tostring(root)).decode(), form.relay_state)
    answer = browser.send_form(wrapped)
    if answer.status == 200:
        # An attack that changes nothing: the user is the one whom the provider has signed for.
        assert users_named(stage, "victim") == 1
    else:
        assert outcome(answer) == REFUSED
    assert users_named(stage, "admin") == 0


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><r>&e;</r>',
        '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><r>&b;</r>',
        '<!DOCTYPE r SYSTEM "http://127.0.0.1:1/x.dtd"><r/>',
        "<r/>",
        "no xml",
        "",
        "\0",
        "<r>" * 5000,
        '<p:Response xmlns:p="urn:oasis:names:tc:SAML:2.0:protocol" Version="2.0" ID="a"/>',
    ],
    ids=range(9),
)
def test_rubbish_is_refused(stage: Stage, text: str) -> None:
    browser = Browser(stage)
    browser.begin()
    form = Form(base64.b64encode(text.encode()).decode(), "state")
    assert browser.post_form(form).status in (400, 401)
    assert browser.post_form(Form(text or "%", "state")).status in (400, 401)


def test_a_body_that_is_no_form_or_too_long_is_refused(stage: Stage) -> None:
    path = "/auth/login/campus/acs"
    assert stage.anonymous.post(path, {}).status == 415
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert stage.anonymous.send("POST", path, raw="a=" + "x" * 3_000_000, **form).status == 413
    assert stage.anonymous.send("POST", path, raw="a=1", **form).status == 400


# Single logout


def logged_in(login: Login, name: str) -> Answer:
    answer = login(user(name))
    assert answer.status == 200
    return answer


def test_a_logout_says_where_the_session_at_the_provider_ends(
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
