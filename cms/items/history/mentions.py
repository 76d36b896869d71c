"""Mentions of users in comments, `@` and the id of a user: whoever is mentioned is notified."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from cms.access.guard import readable_collection
from cms.errors import Refused, not_found
from cms.items.read.prepare import narrow_to_key
from cms.items.read.reads import parse_key
from cms.items.write.executor import Executor
from cms.mail.notifications import Notification, notify
from cms.query.language.ast import Query, RowOutput, Slot
from cms.store.actors import cached_actor
from cms.store.identity import Identity

MAX_MENTIONS = 50
"""Users whom one comment notifies; others that it names are only named."""

# `@` and a UUID; nothing may follow that could be part of a longer word.
_MENTION = re.compile(r"@([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-z-])", re.IGNORECASE)


class CommentText(NamedTuple):
    """The text of a comment, and the item that it is about."""

    collection: str
    item: str
    text: str


def mentioned_users(text: str) -> list[str]:
    """Return the ids of users that a text mentions, each once."""
    return list(dict.fromkeys(user.lower() for user in _MENTION.findall(text)))


def notify_mentioned(executor: Executor, comment: CommentText, *, before: str = "") -> None:
    """Notify the users whom a comment mentions, without those whom it mentioned before.

    Nobody is told of an item that they may not read, and nobody of their own comment.
    """
    excluded = {*mentioned_users(before), executor.context.actor.user}
    mentioned = [user for user in mentioned_users(comment.text) if user not in excluded]
    recipients = list(_readers(executor, comment, mentioned[:MAX_MENTIONS]))
    if recipients:
        notification = Notification(
            f"You are mentioned in a comment on {comment.collection}",
            comment.text,
            comment.collection,
            comment.item,
            sender=executor.context.actor.user,
        )
        notify(executor.transaction.execute, recipients, notification)


def _readers(executor: Executor, comment: CommentText, users: list[str]) -> Iterator[str]:
    """Yield the users who may read the item of a comment."""
    context = executor.context
    for user in users:
        try:
            # Wherever that user calls from: `admit` would look at addresses.
            actor = cached_actor(
                context.snapshot, Identity(user=user), executor.transaction.execute
            )
            reader = replace(executor, context=context._replace(actor=actor))
            readable_key(reader, comment.collection, comment.item)
        # No such user, an inactive one, or one who may not read the item.
        except Refused:
            continue
        yield user


def readable_key(executor: Executor, collection: str, key: str) -> str:
    """Return the key of an item as PostgreSQL writes it; raises `Refused` if it is unreadable."""
    context = executor.context
    owner = readable_collection(
        collection, catalogue=context.snapshot.catalogue, policy=context.actor.policy
    )
    if owner.primary_key is None:
        raise not_found()
    # Read with the caller's rights: no answer tells whether a hidden item exists.
    query = narrow_to_key(Query(), Slot(0))
    keys = executor.read_row_texts(RowOutput.KEY, collection, query, (parse_key(owner, key),))
    if not keys:
        raise not_found()
    return keys[0]
