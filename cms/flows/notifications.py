"""Notifications: rows for their recipients, and mails to those who want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.mail.post import Mail, post_all


class Notification(NamedTuple):
    """What users are told, about an item or about nothing; `message` is Markdown."""

    subject: str
    message: str | None = None
    collection: str | None = None
    item: str | None = None
    sender: str | None = None


def notify(
    transaction: Transaction, recipients: Sequence[str], notification: Notification
) -> list[str]:
    """Notify users, and return the ids of those who exist.

    Mails are posted with the transaction, one for each user: nobody learns who else gets one.
    """
    subject, message, collection, item, sender = notification
    values = (list(recipients), sender, subject, message, collection, item)
    rows = transaction.execute(statement("insert_notifications"), values)
    mails = [Mail([address], subject=subject, body=message or "") for _, address in rows if address]
    post_all(transaction, mails)
    return [identifier for identifier, _ in rows]
