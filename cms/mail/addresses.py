"""E-mail addresses: how they look in a header and on the way to the mail server."""

from __future__ import annotations

import re
from email.headerregistry import Address

from cms.emails import split_address

_NAME_AND_ADDRESS = re.compile(r"(?s)(.*)<([^<>]*)>\s*")
_CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def parse_address(text: str, *, name: str = "") -> Address:
    """Return an address with its domain in ASCII; raises ValueError when it is none."""
    return Address(one_line(name), *split_address(text))


def sender(text: str, *, default_name: str) -> Address:
    """Return the address of EMAIL_FROM, `address` or `Name <address>`; `default_name` is the name where it has none."""
    found = _NAME_AND_ADDRESS.fullmatch(text)
    if found is None:
        return parse_address(text, name=default_name)
    return parse_address(found[2], name=found[1].strip().strip('"') or default_name)


def address_spec(address: Address) -> str:
    """Return an address as it goes to the mail server, without a name."""
    return f"{address.username}@{address.domain}"


def one_line(text: str) -> str:
    """Return a text that can stand in a header: nothing in it begins another line."""
    return _CONTROLS.sub(" ", text).strip()
