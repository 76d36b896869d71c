"""Answers of the provider with something changed, and then signed again with the provider's key."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lxml import etree
from onelogin.saml2.utils import OneLogin_Saml2_Utils

from tests.sso.saml.identity_provider import Form, IdentityProvider
from tests.sso.saml.logins import NS

Change = Callable[[Any], None]


def signed_again(provider: IdentityProvider, form: Form, change: Change) -> Form:
    """Return the form of an answer with a change that the provider has signed."""
    return encoded(form, signed_text(provider, form, change))


def signed_text(provider: IdentityProvider, form: Form, change: Change) -> bytes:
    """Return the changed answer itself, which is signed as a whole."""
    root = etree.fromstring(base64.b64decode(form.response))
    for signature in root.findall(".//ds:Signature", NS):
        signature.getparent().remove(signature)
    change(root)
    signed = OneLogin_Saml2_Utils.add_sign(
        etree.tostring(root), provider.keys.key, provider.keys.certificate
    )
    return signed if isinstance(signed, bytes) else signed.encode()


def encoded(form: Form, text: bytes) -> Form:
    """Return the form with another answer."""
    return Form(base64.b64encode(text).decode(), form.relay_state)


def attribute(path: str, name: str, value: str | None) -> Change:
    """Return what sets an attribute of the element at a path, or removes it."""

    def change(root: Any) -> None:
        element = root if path == "." else root.find(path, NS)
        if value is None:
            del element.attrib[name]
        else:
            element.set(name, value)

    return change


def without(path: str) -> Change:
    """Return what removes the element at a path."""

    def change(root: Any) -> None:
        element = root.find(path, NS)
        element.getparent().remove(element)

    return change


def time_from_now(path: str, name: str, minutes: float) -> Change:
    """Return what sets an attribute to a time, in minutes from when the answer is changed."""

    def change(root: Any) -> None:
        time = datetime.now(UTC) + timedelta(minutes=minutes)
        attribute(path, name, time.strftime("%Y-%m-%dT%H:%M:%SZ"))(root)

    return change
