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


# A name before the address; (?s) lets it have line breaks, which are removed from headers.
_NAME_AND_ADDRESS = re.compile(r"(?s)(.*)<([^<>]*)>\s*")
# A comma inside of quotes is a part of a name.
_PIECE = re.compile(r'"[^"]*"|[^,"]+|"|,')


class Recipient(NamedTuple):
    """The address of a mail, and the name before it; an empty one where there is none."""

    name: str
    address: str


def split_recipients(text: str) -> list[str]:
    """Return the parts of a text with commas between recipients."""
    recipients = [""]
    for piece in _PIECE.findall(text):
        if piece == ",":
            recipients.append("")
        else:
            recipients[-1] += piece
    return recipients


def split_recipient(text: str) -> Recipient:
    """Return the parts of `address` or `Name <address>`, unchecked."""
    match = _NAME_AND_ADDRESS.fullmatch(text)
    if match is None:
        return Recipient("", text.strip())
    return Recipient(match[1].strip().strip('"'), match[2].strip())


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
