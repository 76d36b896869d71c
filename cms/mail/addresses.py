"""E-mail addresses: how they look in a header and on the way to the mail server."""

from __future__ import annotations

import re
from email.headerregistry import Address

from cms.emails import parts_of

_NAMED = re.compile(r"(?s)(.*)<([^<>]*)>\s*")
_CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def parsed(text: str, *, name: str = "") -> Address:
    """Return an address with its domain in ASCII; raises ValueError when it is none."""
    return Address(one_line(name), *parts_of(text))


def sender(text: str, *, otherwise: str) -> Address:
    """Return the address of EMAIL_FROM, `address` or `Name <address>`; `otherwise` is the name where it has none."""
    found = _NAMED.fullmatch(text)
    if found is None:
        return parsed(text, name=otherwise)
    return parsed(found[2], name=found[1].strip().strip('"') or otherwise)


def bare(address: Address) -> str:
    """Return an address as it goes to the mail server, without a name."""
    return f"{address.username}@{address.domain}"


def one_line(text: str) -> str:
    """Return a text that can stand in a header: nothing in it begins another line."""
    return _CONTROLS.sub(" ", text).strip()
