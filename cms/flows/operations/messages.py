"""The operations `mail` and `notification`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from cms import jsontext
from cms.database.connections import Transaction
from cms.emails import Recipient, split_recipient, split_recipients
from cms.errors import forbidden
from cms.flows.definition.options import texts_of
from cms.flows.run import Rejected, RenderedOptions, Run
from cms.mail.mail_queue import GENERIC, BodyFormat, Mail, post
from cms.mail.notifications import Notification, notify
from cms.schema.system import NOTIFICATIONS
from cms.store.actors import find_actor

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
    to, cc, bcc = (_recipients(options.get(name)) for name in ("to", "cc", "bcc"))
    mail = Mail(
        _addresses(to),
        template=template,
        data=options.get("data") or {},
        subject=options["subject"],
        body=_body(options.get("body") or ""),
        kind=cast(BodyFormat, _FORMATS.get(kind, kind)),
        cc=_addresses(cc),
        bcc=_addresses(bcc),
        names={recipient.address: recipient.name for recipient in (*to, *cc) if recipient.name},
    )
    with run.open_transaction() as transaction:
        post(transaction.execute, mail)
    return None


def _body(value: object) -> str:
    if isinstance(value, str):
        return value
    return jsontext.dumps(value).decode()


def send_notification(options: RenderedOptions, run: Run) -> object:
    """Notify users, and return the ids of their notifications' recipients.

    Reject where one of them does not exist, or where the rights that the option `permissions` names
    do not suffice.
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
        if options.get("permissions"):
            _require_right(run, transaction, options["permissions"])
        return _notify_all(transaction, list(dict.fromkeys(recipients)), notification)


def _require_right(run: Run, transaction: Transaction, permissions: object) -> None:
    """Raise `Refused` FORBIDDEN where these rights do not allow to create notifications."""
    assert run.snapshot
    actor = find_actor(run.snapshot, run.identity_for(permissions), transaction.execute)
    if not actor.policy.is_admin and not actor.policy.granted(NOTIFICATIONS, "create"):
        raise forbidden()


def _notify_all(
    transaction: Transaction, recipients: list[str], notification: Notification
) -> list[str]:
    notified = notify(transaction.execute, recipients, notification)
    missing = sorted(set(recipients) - set(notified))
    if missing:
        raise Rejected({"message": f"There is no user {', '.join(missing)}."})
    return notified


def _addresses(recipients: Sequence[Recipient]) -> list[str]:
    return [recipient.address for recipient in recipients]


def _recipients(value: object) -> list[Recipient]:
    """Return the recipients of a list, or of a text with commas between them."""
    if value is None:
        return []
    if not isinstance(value, list):
        value = split_recipients(str(value))
    return [split_recipient(str(element)) for element in value]
