"""Signed answers with a document type: entities, and references to what is outside of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.people import outcome
from tests.sso.saml.identity_provider import Form, IdentityProvider
from tests.sso.saml.logins import REFUSED, Browser, Login, user, users_named
from tests.sso.saml.pipes import unopened_pipe
from tests.sso.saml.signing import encoded, signed_text
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]

NAME_ID = b"between.two"


def form_with(
    stage: Stage, provider: IdentityProvider, login: Login, doctype: str, name: bytes
) -> tuple[Browser, Form]:
    """Return a browser, and the form of a signed answer with another head and name of the user.

    The signature is over what the text becomes once its entities are replaced: who does so would
    find it right.
    """
    browser = Browser(stage)
    form = login.form(browser, user(NAME_ID.decode()))
    text = signed_text(provider, form, lambda root: None)
    assert NAME_ID in text
    return browser, encoded(form, doctype.encode() + text.replace(NAME_ID, name))


def test_without_a_document_type_the_same_answer_counts(
    stage: Stage, provider: IdentityProvider, login: Login
) -> None:
    browser, form = form_with(stage, provider, login, "", NAME_ID)
    assert browser.send_form(form).status == 200


@pytest.mark.parametrize(
    ("doctype", "name"),
    [
        ("<!DOCTYPE r>", NAME_ID),
        ('<!DOCTYPE r [<!ENTITY e "between">]>', b"&e;.two"),
        ('<!DOCTYPE r [<!ENTITY % e "<!ELEMENT r ANY>"> %e;]>', NAME_ID),
        ('<!DOCTYPE r [<!ATTLIST r a CDATA "b">]>', NAME_ID),
    ],
    ids=["nothing in it", "an entity", "an entity of itself", "an attribute"],
)
def test_an_answer_with_a_document_type_is_refused(
    stage: Stage, provider: IdentityProvider, login: Login, doctype: str, name: bytes
) -> None:
    browser, form = form_with(stage, provider, login, doctype, name)
    assert outcome(browser.post_form(form)) == REFUSED


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE r SYSTEM "{url}">',
        '<!DOCTYPE r [<!ENTITY e SYSTEM "{url}">]>',
        '<!DOCTYPE r [<!ENTITY % e SYSTEM "{url}"> %e;]>',
    ],
    ids=["the type", "an entity", "an entity of the type"],
)
def test_nothing_outside_of_an_answer_is_opened(
    stage: Stage, provider: IdentityProvider, login: Login, doctype: str, tmp_path: Path
) -> None:
    name = b"&e;between.two" if "ENTITY e" in doctype else NAME_ID
    with unopened_pipe(tmp_path) as pipe:
        browser, form = form_with(stage, provider, login, doctype.format(url=pipe.as_uri()), name)
        assert outcome(browser.post_form(form)) == REFUSED


def test_an_entity_that_grows_is_refused_at_once(
    stage: Stage, provider: IdentityProvider, login: Login
) -> None:
    levels = [f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10)]
    doctype = f'<!DOCTYPE r [<!ENTITY e0 "x">{"".join(levels)}]>'
    browser, form = form_with(stage, provider, login, doctype, b"&e9;")
    assert outcome(browser.post_form(form)) == REFUSED
    assert users_named(stage, "x") == 0
