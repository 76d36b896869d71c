"""What a signed answer must state of its addresses, times and requests, one by one.

The provider's own answers state all of it, so each is changed in one place and signed again.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.people import outcome
from tests.sso.saml.identity_provider import IdentityProvider
from tests.sso.saml.logins import (
    ACS,
    BASE,
    NS,
    PUBLIC,
    REFUSED,
    Browser,
    Login,
    user,
    users_named,
)
from tests.sso.saml.signing import Change, attribute, signed_again, time_from_now, without
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]

SUBJECT = "a:Assertion/a:Subject"
DATA = f"{SUBJECT}/a:SubjectConfirmation/a:SubjectConfirmationData"
CONDITIONS = "a:Assertion/a:Conditions"


def assert_refused(stage: Stage, provider: IdentityProvider, login: Login, change: Change) -> None:
    browser = Browser(stage)
    form = login.form(browser, user("refused"))
    answer = browser.post_form(signed_again(provider, form, change))
    assert outcome(answer) == REFUSED
    assert users_named(stage, "refused") == 0


def nothing(root: Any) -> None:
    """Change nothing: the answer is only signed again."""


def times(condition: float, subject: float) -> Change:
    """Return what sets the ends of the conditions and of the subject, in minutes from now."""

    def change(root: Any) -> None:
        time_from_now(CONDITIONS, "NotOnOrAfter", condition)(root)
        time_from_now(DATA, "NotOnOrAfter", subject)(root)

    return change


@pytest.mark.parametrize(
    "change",
    [
        nothing,
        attribute(".", "Destination", None),
        time_from_now(CONDITIONS, "NotBefore", 3),
        times(-3, 5),
    ],
    ids=["the same", "no destination", "begins in 3 minutes", "ended 3 minutes ago"],
)
def test_an_answer_with_all_required_conditions_counts(
    stage: Stage, provider: IdentityProvider, login: Login, change: Change
) -> None:
    """The clocks of both may differ by five minutes."""
    browser = Browser(stage)
    form = login.form(browser, user("counted"))
    assert browser.send_form(signed_again(provider, form, change)).status == 200
    assert users_named(stage, "counted") == 1


REFUSED_CHANGES = {
    "destination that begins with the address": attribute(".", "Destination", f"{ACS}/more"),
    "destination with a query": attribute(".", "Destination", f"{ACS}?a=b"),
    "destination of another provider": attribute(
        ".", "Destination", f"{PUBLIC}/auth/login/plain/acs"
    ),
    "empty destination": attribute(".", "Destination", ""),
    "recipient that begins with the address": attribute(DATA, "Recipient", f"{ACS}/more"),
    "no recipient": attribute(DATA, "Recipient", None),
    "begins in an hour": time_from_now(CONDITIONS, "NotBefore", 60),
    "conditions that ended an hour ago": times(-60, 5),
    "subject that ended a minute ago": times(5, -1),
    "subject without end": attribute(DATA, "NotOnOrAfter", None),
    "subject that begins in an hour": time_from_now(DATA, "NotBefore", 60),
    "no conditions": without(CONDITIONS),
    "no audience": without(f"{CONDITIONS}/a:AudienceRestriction"),
    "response to no request": attribute(".", "InResponseTo", None),
    "response to another request": attribute(".", "InResponseTo", "_another"),
    "assertion for no request": attribute(DATA, "InResponseTo", None),
    "assertion for another request": attribute(DATA, "InResponseTo", "_another"),
    "no subject": without(SUBJECT),
    "no login at the provider": without("a:Assertion/a:AuthnStatement"),
    "another version": attribute(".", "Version", "1.1"),
}


@pytest.mark.parametrize("name", REFUSED_CHANGES)
def test_an_answer_without_a_condition_or_with_that_of_others_is_refused(
    stage: Stage, provider: IdentityProvider, login: Login, name: str
) -> None:
    assert_refused(stage, provider, login, REFUSED_CHANGES[name])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{CONDITIONS}/a:AudienceRestriction/a:Audience", f"{BASE}/metadata/more"),
        ("a:Issuer", "urn:test:idp:more"),
        ("a:Assertion/a:Issuer", "urn:test:idp:more"),
    ],
)
def test_names_are_compared_as_a_whole(
    stage: Stage, provider: IdentityProvider, login: Login, path: str, text: str
) -> None:
    def change(root: Any) -> None:
        root.find(path, NS).text = text

    assert_refused(stage, provider, login, change)


def test_of_two_assertions_none_counts(
    stage: Stage, provider: IdentityProvider, login: Login
) -> None:
    """Both are signed, with the answer around them: which of them would be the user?"""

    def change(root: Any) -> None:
        second = copy.deepcopy(root.find("a:Assertion", NS))
        second.set("ID", "_second")
        root.append(second)

    assert_refused(stage, provider, login, change)
