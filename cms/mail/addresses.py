"""E-mail addresses, as headers write them and as the mail server takes them."""

from __future__ import annotations

import re
from email.headerregistry import Address

from cms.emails import split_address, split_recipient

# C0 and C1 controls and every blank, runs of them at once.
_CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def parse_address(text: str, *, name: str = "") -> Address:
    """Return an address with its domain in ASCII; raises ValueError for text that is no address."""
    return Address(one_line(name), *split_address(text))


def sender(text: str, *, default_name: str) -> Address:
    """Return the address of EMAIL_FROM, which is `address` or `Name <address>`.

    `default_name` is the sender's name where EMAIL_FROM has none.
    """
    recipient = split_recipient(text)
    # `Address` quotes a name again where that is necessary.
    return parse_address(recipient.address, name=recipient.name or default_name)


def address_spec(address: Address) -> str:
    """Return an address as the mail server takes it, without a name."""
    return f"{address.username}@{address.domain}"


def one_line(text: str) -> str:
    """Return a text for a header: without line breaks, which would begin another header."""
    return _CONTROLS.sub(" ", text).strip()
