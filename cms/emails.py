"""Which e-mail addresses the service accepts, for accounts and in mail alike."""

from __future__ import annotations

import re

import idna

# # Nobody uses quoted local parts and address literals; a line break or a comma would be read as
# something else in the header of a mail.
_FORBIDDEN = r"\s\x00-\x1f\x7f-\x9f@<>()\[\],;:\\\""
_ADDRESS = re.compile(rf"[^{_FORBIDDEN}]{{1,64}}@[^{_FORBIDDEN}]{{1,255}}")


def split_address(text: str) -> tuple[str, str]:
    """Return the local part, and the domain in ASCII; raises ValueError for a malformed address."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError("it is not an e-mail address")
    local, domain = text.split("@")
    return local, _ascii(domain)


def is_email(text: object) -> bool:
    """Tell whether a value is an address to which mail can be sent."""
    try:
        return isinstance(text, str) and bool(split_address(text))
    except ValueError:
        return False


def _ascii(domain: str) -> str:
    if domain.isascii():
        return domain
    try:
        return idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise ValueError("its domain is not one") from None
