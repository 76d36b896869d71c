"""Logins by SAML against an identity provider that nobody here wrote (docs/sso.md)."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.people import of_user, outcome
from tests.sso.saml.identity_provider import (
    Form,
    IdentityProvider,
    KeyPair,
    new_key_pair,
)
from tests.sso.saml.logins import (
    ACS,
    APP,
    ASSERTION_SIGNED,
    BASE,
    CLAIMS,
    EDITORS,
    PUBLIC,
    REFUSED,
    RESPONSE_SIGNED,
    Browser,
    Login,
    user,
    users_named,
)
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


def test_a_user_of_the_provider_is_made_and_logged_in(stage: Stage, login: Login) -> None:
    answer = login(user("ada", groups=["writers", "editors"]))
    assert answer.status == 200, answer
    assert answer.data.keys() == {"access_token", "expires", "refresh_token"}
    me = stage.anonymous.bearing(answer.data["access_token"]).get("/users/me")
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


def test_an_encrypted_assertion_that_nobody_has_signed_is_refused(
    stage: Stage, login: Login, own_keys: KeyPair
) -> None:
    """Whoever reads the metadata can encrypt for this service."""
    answer = login(
        user("refused"),
        signAssertion=False,
        encryptionCert=own_keys.certificate,
        encryptionPublicKey=public_key_of(own_keys),
        encryptionAlgorithm="http://www.w3.org/2009/xmlenc11#aes256-gcm",
    )
    assert outcome(answer) == REFUSED
    assert users_named(stage, "refused") == 0


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


def test_an_answer_that_counts_until_the_end_of_time_is_refused(stage: Stage, login: Login) -> None:
    left = datetime(9999, 12, 31, 23, 59, tzinfo=UTC) - datetime.now(UTC)
    assert outcome(login(user("refused"), lifetimeInSeconds=int(left.total_seconds()))) == REFUSED


def test_an_answer_without_the_identifier_of_the_user_is_the_fault_of_the_provider(
    login: Login,
) -> None:
    assert outcome(login(user("x" * 1_001))) == (503, ["SERVICE_UNAVAILABLE"])


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


def test_a_browser_with_a_session_logs_in_again(stage: Stage, login: Login) -> None:
    """With cookies of SameSite=None the form from another site comes with the cookie."""
    first = login(user("again"), APP).cookies["cms_session_token"].value
    browser = Browser(stage)
    form = login.form(browser, user("again"))
    answer = stage.anonymous.send(
        "POST",
        "/auth/login/campus/acs",
        raw=urlencode({"SAMLResponse": form.response, "RelayState": form.relay_state}),
        **{
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": f"cms_session_token={first}",
            "Origin": "https://idp.example.com",
        },
    )
    assert answer.status == 303, answer
