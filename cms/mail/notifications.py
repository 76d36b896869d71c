"""Notifications: rows for their recipients, and mails to those who want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.mail.mail_queue import Mail, post_all


class Notification(NamedTuple):
    """A message to users, which may be about an item; it is in Markdown."""

    subject: str
    message: str | None = None
    collection: str | None = None
    item: str | None = None
    sender: str | None = None


class Notice(NamedTuple):
    """A notification, and the ids of the users who get it."""

    notification: Notification
    recipients: Sequence[str]


def notify(fetch: Fetch, recipients: Sequence[str], notification: Notification) -> list[str]:
    """Notify users, and return the ids of those who exist; mails are posted as by `notify_all`."""
    return notify_all(fetch, [Notice(notification, recipients)])


def notify_all(fetch: Fetch, notices: Sequence[Notice]) -> list[str]:
    """Notify users of several things in one statement, and return the ids of those who exist.

    Mails are posted with the transaction of `fetch`, one a user: nobody learns of the others.
    """
    notifications = [notice.notification for notice in notices]
    recipients: list[str] = []
    numbers: list[int] = []
    for number, notice in enumerate(notices, 1):
        recipients += notice.recipients
        numbers += [number] * len(notice.recipients)
    names = ("sender", "subject", "message", "collection", "item")
    columns = [[getattr(each, name) for each in notifications] for name in names]
    rows = fetch(statement("insert_notifications"), (*columns, recipients, numbers))
    mails: list[Mail] = []
    # A dict instead of a set keeps the order.
    users: dict[str, None] = {}
    for number, user, address in rows:
        users[user] = None
        # The statement gives no address for users who want no mails.
        if address:
            notification = notifications[number - 1]
            body = notification.message or ""
            mails.append(Mail([address], subject=notification.subject, body=body))
    post_all(fetch, mails)
    return list(users)


def mail_notifications(fetch: Fetch, keys: Sequence[str]) -> None:
    """Post mails of notifications that have been written to those recipients who want them."""
    rows = fetch(statement("find_notification_mails"), (list(keys),))
    post_all(fetch, [Mail([row[0]], subject=row[1], body=row[2]) for row in rows])
