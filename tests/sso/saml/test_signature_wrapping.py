"""Signed documents with others around them that nobody has signed: XML signature wrapping."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.people import of_user, outcome
from tests.sso.saml.identity_provider import (
    Form,
)
from tests.sso.saml.logins import (
    ASSERTION_SIGNED,
    NS,
    REFUSED,
    RESPONSE_SIGNED,
    Browser,
    Login,
    user,
    users_named,
)
from tests.sso.saml.pipes import unopened_pipe
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


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


def test_a_comment_cuts_nothing_off(stage: Stage, login: Login) -> None:
    """Comments are not signed: a name that ends at one would be that of another user."""
    browser = Browser(stage)
    form = login.form(browser, user("anna.evil"))
    response = base64.b64decode(form.response)
    assert response.count(b"anna.evil") >= 2
    changed = response.replace(b"anna.evil", b"anna<!-- -->.evil")
    answer = browser.send_form(Form(base64.b64encode(changed).decode(), form.relay_state))
    assert answer.status == 200, answer
    assert users_named(stage, "anna") == 0
    assert users_named(stage, "anna.evil") == 1
    assert of_user(stage, "anna.evil@example.com", "external_identifier") == "anna.evil"


def test_a_message_opens_no_file(stage: Stage, login: Login, tmp_path: Path) -> None:
    """The library would open it before it finds that nobody has signed the message."""
    browser = Browser(stage)
    form = login.form(browser, user("victim"), signResponse=True, signAssertion=False)
    root = etree.fromstring(base64.b64decode(form.response))
    reference = copy.deepcopy(root.find(".//ds:Reference", NS))
    with unopened_pipe(tmp_path) as pipe:
        reference.set("URI", pipe.as_uri())
        holder = etree.SubElement(signature_of(root), f"{{{NS['ds']}}}Object")
        etree.SubElement(holder, f"{{{NS['ds']}}}Manifest").append(reference)
        forged_form = Form(base64.b64encode(etree.tostring(root)).decode(), form.relay_state)
        assert outcome(browser.post_form(forged_form)) == REFUSED
