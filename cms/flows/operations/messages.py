"""The operations `mail` and `notification`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from uuid import UUID

from cms.database.connections import Transaction
from cms.flows.definition.options import texts_of
from cms.flows.run import Rejected, RenderedOptions, Run
from cms.mail.mail_queue import GENERIC, BodyFormat, Mail, post
from cms.mail.notifications import Notification, notify

_TEMPLATE_TYPE = "template"
_FORMATS: Mapping[str, str] = {"wysiwyg": "html", _TEMPLATE_TYPE: "markdown"}
"""The formats of bodies whose type is called otherwise."""


def send_mail(options: RenderedOptions, run: Run) -> object:
    """Post a mail, which a worker sends; the result is null."""
    kind = str(options.get("type") or "markdown")
    template = GENERIC
    # A body that is written for this mail goes before a template, unless the type asks for one.
    if kind == _TEMPLATE_TYPE or not options.get("body"):
        template = options.get("template") or GENERIC
    mail = Mail(
        _addresses(options["to"]),
        template=template,
        data=options.get("data") or {},
        subject=options["subject"],
        body=options.get("body") or "",
        kind=cast(BodyFormat, _FORMATS.get(kind, kind)),
        cc=_addresses(options.get("cc")),
        bcc=_addresses(options.get("bcc")),
    )
    with run.open_transaction() as transaction:
        post(transaction.execute, mail)
    return None


def send_notification(options: RenderedOptions, run: Run) -> object:
    """Notify users, and return the ids of their notifications' recipients.

    Reject where one of them does not exist.
    """
    # In PostgreSQL's form of a UUID, so that what comes back can be compared.
    recipients = [str(UUID(text)) for text in texts_of(options["recipient"])]
    item = options.get("item")
    if item is not None:
        item = str(item)
    notification = Notification(
        options["subject"],
        options.get("message"),
        options.get("collection"),
        item,
        sender=run.user,
    )
    with run.open_transaction() as transaction:
        return _notify_all(transaction, list(dict.fromkeys(recipients)), notification)


def _notify_all(
    transaction: Transaction, recipients: list[str], notification: Notification
) -> list[str]:
    notified = notify(transaction.execute, recipients, notification)
    missing = sorted(set(recipients) - set(notified))
    if missing:
        raise Rejected({"message": f"There is no user {', '.join(missing)}."})
    return notified


def _addresses(value: object) -> list[str]:
    """Return the addresses of a list, or of a text with commas between them."""
    if value is None:
        return []
    if not isinstance(value, list):
        value = str(value).split(",")
    return [str(element).strip() for element in value]
