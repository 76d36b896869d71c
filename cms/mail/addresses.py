"""E-mail addresses: which are taken, and how they look in a header and on the way to the mail server."""

from __future__ import annotations

import re
from email.headerregistry import Address

import idna

# Quoted local parts and address literals are nobody's; a line break or a comma would be read as something else.
_FORBIDDEN = r"\s\x00-\x1f\x7f-\x9f@<>()\[\],;:\\\""
_ADDRESS = re.compile(rf"[^{_FORBIDDEN}]{{1,64}}@[^{_FORBIDDEN}]{{1,255}}")
_NAMED = re.compile(r"(?s)(.*)<([^<>]*)>\s*")
_CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def parsed(text: str, *, name: str = "") -> Address:
    """Return an address with its domain in ASCII; raises ValueError when it is none."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError("it is not an e-mail address")
    local, domain = text.split("@")
    return Address(one_line(name), local, _ascii(domain))


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


def _ascii(domain: str) -> str:
    if domain.isascii():
        return domain
    try:
        return idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise ValueError("its domain is not one") from None
