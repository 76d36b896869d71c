"""Mentions of users in comments, and which items a user can read, and so may comment on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from cms.access.guard import readable_collection
from cms.errors import Refused, invalid_payload, not_found
from cms.items.read.reads import parse_key
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import stored_keys
from cms.mail.notifications import Notice, Notification, notify_all
from cms.schema.model import Collection
from cms.store.actors import unchecked_actor
from cms.store.identity import Identity
from cms.text_shapes import UUID

MAX_MENTIONS = 50
"""Users whom one comment notifies; others that it names are only named."""

MAX_MENTIONS_OF_CALL = 1000
"""Mentions that may notify somebody in all comments of one call."""

# `@` and a UUID; nothing may follow that could be part of a longer word.
_MENTION = re.compile(rf"@({UUID})(?![0-9a-z-])", re.IGNORECASE)


class CommentText(NamedTuple):
    """The text of a comment, and the item that it is about."""

    collection: str
    item: str
    text: str


class WrittenComment(NamedTuple):
    """A comment as it was written, and its text before, which is empty for a new one."""

    comment: CommentText
    before: str = ""


class _Mention(NamedTuple):
    """A comment, and the users whom it mentions and did not mention before."""

    comment: CommentText
    users: list[str]


def mentioned_users(text: str) -> list[str]:
    """Return the ids of users that a text mentions, each once."""
    users = [user.lower() for user in _MENTION.findall(text)]
    return list(dict.fromkeys(users))


def notify_mentioned(executor: Executor, written: Sequence[WrittenComment]) -> None:
    """Notify the users whom comments mention, without those whom they mentioned before.

    Users get no notification of an item that they may not read, or of their own comment. Raises
    `Refused` INVALID_PAYLOAD for more than `MAX_MENTIONS_OF_CALL`.
    """
    mentions: list[_Mention] = []
    # Ids of unknown users count, too: otherwise the answer would reveal which users exist.
    count = 0
    for written_comment in written:
        mention = _mention(written_comment, author=executor.context.actor.user)
        if mention.users:
            mentions.append(mention)
            count += len(mention.users)
    if count > MAX_MENTIONS_OF_CALL:
        reason = f"The comments of one call mention users at most {MAX_MENTIONS_OF_CALL} times"
        raise invalid_payload(reason, field="comment", limit=MAX_MENTIONS_OF_CALL)
    notices = _notices(executor, mentions)
    if notices:
        notify_all(executor.transaction.execute, notices)


def _mention(written: WrittenComment, *, author: str | None) -> _Mention:
    excluded = {*mentioned_users(written.before), author}
    users = [user for user in mentioned_users(written.comment.text) if user not in excluded]
    return _Mention(written.comment, users[:MAX_MENTIONS])


def _notices(executor: Executor, mentions: Sequence[_Mention]) -> list[Notice]:
    """Return the notifications of comments, each for those who may read its item."""
    readable = _readable_items(executor, mentions)
    notices: list[Notice] = []
    for comment, users in mentions:
        item = (comment.collection, comment.item)
        recipients = [user for user in users if item in readable[user]]
        if recipients:
            notices.append(Notice(_notification(executor, comment), recipients))
    return notices


def _readable_items(
    executor: Executor, mentions: Sequence[_Mention]
) -> dict[str, set[tuple[str, str]]]:
    """Return which items of the comments that mention them users may read, by the users."""
    keys: dict[tuple[str, str], list[str]] = {}
    for comment, users in mentions:
        for user in users:
            keys.setdefault((user, comment.collection), []).append(comment.item)
    readable: dict[str, set[tuple[str, str]]] = {}
    for (user, collection), items in keys.items():
        readable_items = readable.setdefault(user, set())
        for item in _keys_for(executor, user, collection, items):
            readable_items.add((collection, item))
    return readable


def _keys_for(executor: Executor, user: str, collection: str, keys: Sequence[str]) -> list[str]:
    """Return those keys of items that a user may read."""
    context = executor.context
    try:
        # Not `admit`, which checks the address of a caller: this user does not call.
        actor = unchecked_actor(context.snapshot, Identity(user=user), executor.transaction.execute)
        reader = replace(executor, context=context._replace(actor=actor))
        return list(readable_keys(reader, collection, keys))
    # No such user, an inactive one, or one who may read nothing of the collection.
    except Refused:
        return []


def _notification(executor: Executor, comment: CommentText) -> Notification:
    return Notification(
        f"You are mentioned in a comment on {comment.collection}",
        comment.text,
        comment.collection,
        comment.item,
        sender=executor.context.actor.user,
    )


# The items that a user can read, and so may comment on and be notified of


def readable_keys(executor: Executor, collection: str, keys: Sequence[str]) -> dict[str, str]:
    """Return keys as PostgreSQL writes them, by the keys as sent; unreadable ones are left out.

    Raises `Refused` for a collection that the caller cannot read, or whose items have no key.
    """
    context = executor.context
    owner = readable_collection(
        collection, catalogue=context.snapshot.catalogue, policy=context.actor.policy
    )
    if owner.primary_key is None:
        raise not_found()
    parsed = _parsed_keys(owner, keys)
    if not parsed:
        return {}
    different = list(dict.fromkeys(parsed.values()))
    # Read with the caller's rights: no answer reveals whether a hidden item exists.
    readable = executor.readable_keys(collection, different)
    stored: dict[str, str] = {}
    others: list[str] = []
    for key in different:
        if key in readable:
            stored[key] = key
        else:
            others.append(key)
    # PostgreSQL may write a key otherwise than its type does here.
    if others:
        stored |= stored_keys(executor, owner, others)
    readable_by_sent: dict[str, str] = {}
    for sent_key, key in parsed.items():
        stored_key = stored.get(key)
        if stored_key in readable:
            readable_by_sent[sent_key] = stored_key
    return readable_by_sent


def require_readable(executor: Executor, collection: str, keys: Sequence[str]) -> dict[str, str]:
    """Return what `readable_keys` does; raises `Refused` NOT_FOUND if one of them is unreadable."""
    readable = readable_keys(executor, collection, keys)
    if not readable.keys() >= {*keys}:
        raise not_found()
    return readable


def _parsed_keys(collection: Collection, keys: Sequence[str]) -> dict[str, str]:
    """Return keys as their type writes them, by the keys as sent, without values that are none."""
    parsed: dict[str, str] = {}
    for key in keys:
        try:
            parsed[key] = parse_key(collection, key)
        except Refused:
            continue
    return parsed
