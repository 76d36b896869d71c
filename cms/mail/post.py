"""Letters: what the rest of the service hands over to be sent."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from cms.database.connections import Transaction
from cms.errors import invalid_payload
from cms.jobs.tasks import defer
from cms.mail.addresses import parse_address

TASK = "mail"
GENERIC = "generic"

BodyFormat = Literal["text", "markdown", "html"]

_TEMPLATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Mail:
    """A letter to all addresses of `to`, `cc` and `bcc`.

    `template` names files (docs/mail.md) that are filled with `data`, JSON values. The template `generic` shows
    `body`, which is of a `kind`; it needs a `subject`, which else the template has.
    """

    to: Sequence[str]
    template: str = GENERIC
    data: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    subject: str | None = None
    body: str = ""
    kind: BodyFormat = "markdown"
    cc: Sequence[str] = ()
    bcc: Sequence[str] = ()
    reply_to: Sequence[str] = ()


def post(transaction: Transaction, mail: Mail) -> None:
    """Have a letter sent once the transaction has committed; raises `Refused` INVALID_PAYLOAD when it cannot be."""
    if not [*mail.to, *mail.cc, *mail.bcc]:
        raise invalid_payload("A mail needs a recipient", field="to")
    for name in ("to", "cc", "bcc", "reply_to"):
        for address in getattr(mail, name):
            _check(address, name)
    if not _TEMPLATE_NAME.fullmatch(mail.template):
        raise invalid_payload(
            "The name of a mail template has letters, digits, - and _", field="template"
        )
    defer(transaction, TASK, to_payload(mail))


def post_decoy(transaction: Transaction, mail: Mail) -> None:
    """Cost what a letter costs, and have none sent: who asks must not learn whether somebody is written to."""
    defer(transaction, TASK, to_payload(mail))


def to_payload(mail: Mail) -> dict[str, object]:
    """Return a letter as its job holds it, with an id that stays the same however often it is tried."""
    return {
        "id": str(uuid.uuid4()),
        "to": list(mail.to),
        "template": mail.template,
        "data": dict(mail.data),
        "subject": mail.subject,
        "body": mail.body,
        "kind": mail.kind,
        "cc": list(mail.cc),
        "bcc": list(mail.bcc),
        "reply_to": list(mail.reply_to),
    }


def from_payload(payload: Mapping[str, Any]) -> tuple[str, Mail]:
    """Return the id and the letter of a job."""
    fields = dict(payload)
    return str(fields.pop("id")), Mail(**fields)


def _check(address: object, place: str) -> None:
    try:
        parse_address(address if isinstance(address, str) else "")
    except ValueError as fault:
        raise invalid_payload(
            f"An address of the mail cannot be used: {fault}", field=place
        ) from None
