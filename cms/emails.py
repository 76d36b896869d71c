"""Which e-mail addresses the service accepts, for accounts and in mail alike."""

from __future__ import annotations

import re
from typing import NamedTuple

import idna

# Nobody uses quoted local parts and address literals; a line break or a comma would be read as
# something else in the header of a mail.
_FORBIDDEN = r"\s\x00-\x1f\x7f-\x9f@<>()\[\],;:\\\""
NO_ADDRESS = "it is not an e-mail address"
_ADDRESS = re.compile(rf"[^{_FORBIDDEN}]{{1,64}}@[^{_FORBIDDEN}]{{1,255}}")


class AddressParts(NamedTuple):
    """The parts of an address before and after the @; the domain is in ASCII."""

    local: str
    domain: str


def split_address(text: str) -> AddressParts:
    """Return the parts of an address; raises ValueError for a malformed one."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError(NO_ADDRESS)
    # The pattern allows one @ only.
    local, domain = text.split("@")
    return AddressParts(local, _ascii(domain))


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
        # As browsers do (UTS 46): capital and full-width letters become small ones first.
        return idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise ValueError("its domain is not one") from None
