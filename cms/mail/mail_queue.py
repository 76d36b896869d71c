"""The queue of mails: the rest of the service posts them as jobs, which a worker sends."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from email.headerregistry import Address
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from cms.database.connections import Fetch
from cms.emails import split_address, split_recipient
from cms.errors import invalid_payload
from cms.jobs.task import defer, defer_all

TASK = "mail"
GENERIC = "generic"

BodyFormat = Literal["text", "markdown", "html"]

# No dots and slashes: the name becomes that of a file.
_TEMPLATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

# C0 and C1 controls and every blank, runs of them at once.
_CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail to all addresses of `to`, `cc` and `bcc`.

    `template` names files (docs/mail.md) that are filled with `data`, JSON values. The template
    `generic` shows `body`, whose format is `kind`. It needs a `subject`; other templates have their
    own. `names` are those of recipients, by their addresses.
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
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def recipients(self) -> list[str]:
        """All addresses that get the mail; none for a decoy (`post_decoy`)."""
        return [*self.to, *self.cc, *self.bcc]


class QueuedMail(NamedTuple):
    """A mail of a job in the queue; `id` is the same at every attempt."""

    id: str
    mail: Mail


def post(fetch: Fetch, mail: Mail) -> None:
    """Have a mail sent once the transaction of `fetch` has committed.

    Raises `Refused` INVALID_PAYLOAD for a mail that cannot be sent.
    """
    post_all(fetch, [mail])


def post_all(fetch: Fetch, mails: Sequence[Mail]) -> None:
    """Have mails sent once the transaction has committed, all or none; raises like `post`."""
    # Refused now: when a worker sends the mail, no caller waits for an answer.
    for mail in mails:
        _check(mail)
    if mails:
        defer_all(fetch, TASK, [to_payload(mail) for mail in mails])


def post_decoy(fetch: Fetch, mail: Mail) -> None:
    """Queue a mail that is never sent, at the same cost.

    The caller must not learn from the time whether somebody gets a mail.
    """
    defer(fetch, TASK, to_payload(mail))


def to_payload(mail: Mail) -> dict[str, object]:
    """Return the job's payload of a mail, with an id that stays the same over all attempts."""
    values = {each.name: getattr(mail, each.name) for each in fields(mail)}
    # JSON has no other mappings than these.
    values |= {"data": dict(mail.data), "names": dict(mail.names)}
    return {"id": str(uuid.uuid4()), **values}


def from_payload(payload: Mapping[str, Any]) -> QueuedMail:
    """Return the mail of a job's payload."""
    # The names of `to_payload` are those of the fields.
    values = dict(payload)
    return QueuedMail(str(values.pop("id")), Mail(**values))


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


def _check(mail: Mail) -> None:
    if not mail.recipients:
        raise invalid_payload("A mail needs a recipient", field="to")
    for name in ("to", "cc", "bcc", "reply_to"):
        for address in getattr(mail, name):
            try:
                # Templates of flows may put other values than texts there.
                parse_address(address if isinstance(address, str) else "")
            except ValueError as error:
                reason = f"An address of the mail cannot be used: {error}"
                raise invalid_payload(reason, field=name) from None
    if not _TEMPLATE_NAME.fullmatch(mail.template):
        raise invalid_payload(
            "The name of a mail template has letters, digits, - and _", field="template"
        )
