"""Notifications: rows for their recipients, and mails to those who want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.mail.post import Mail, post_all


class Notification(NamedTuple):
    """What users are told, about an item or about nothing; `message` is Markdown."""

    subject: str
    message: str | None = None
    collection: str | None = None
    item: str | None = None
    sender: str | None = None


def notify(fetch: Fetch, recipients: Sequence[str], notification: Notification) -> list[str]:
    """Notify users, and return the ids of those who exist.

    Mails are posted with the transaction of `fetch`, one for each user: nobody learns who else gets one.
    """
    subject, message, collection, item, sender = notification
    values = (list(recipients), sender, subject, message, collection, item)
    rows = fetch(statement("insert_notifications"), values)
    # The statement gives no address for users who want no mails.
    mails = [Mail([address], subject=subject, body=message or "") for _, address in rows if address]
    post_all(fetch, mails)
    return [identifier for identifier, _ in rows]


def mail_notifications(fetch: Fetch, keys: Sequence[str]) -> None:
    """Post mails of notifications that have been written to those recipients who want them."""
    rows = fetch(statement("find_notification_mails"), (list(keys),))
    post_all(
        fetch,
        [Mail([address], subject=subject, body=message) for address, subject, message in rows],
    )
