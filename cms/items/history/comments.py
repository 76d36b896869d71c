"""Comments on items: activity that people write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cms.database.connections import single_values
from cms.database.statements import statement
from cms.errors import Refused, forbidden, invalid_payload, not_found
from cms.items.history.comment_payloads import parse_change, parse_changes, parse_new_comments
from cms.items.history.mentions import (
    CommentText,
    WrittenComment,
    notify_mentioned,
    require_readable,
)
from cms.items.read.answers import json_body
from cms.items.read.prepare import RowTest
from cms.items.read.reads import parse_key, require_own_user, require_user
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.named_keys import named_keys, require_selection, selection_of
from cms.items.write.transaction.preconditions import check_match
from cms.items.write.writes import WriteTarget
from cms.query.language.parse import parse_query_string
from cms.schema.model import Collection
from cms.schema.system import ACTIVITY
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import Write, WriteAttempt

ONLY_COMMENTS = (RowTest("action", "_eq", "comment"),)

# New comments


def comment(
    store: Store,
    identity: Identity,
    query_string: str,
    payload: object,
    *,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Add a comment to an item that the caller can read, or several comments of an array.

    Returns what was written, or None when the caller may not read comments.
    """
    require_user(identity)
    single = not isinstance(payload, list)
    texts = parse_new_comments(payload if isinstance(payload, list) else [payload])
    write: Write[bytes | None] = store.write(identity, idempotency=idempotency)
    for attempt in write:
        with attempt as context:
            executor = _executor(store, identity, attempt, context)
            write.answer = _insert(executor, query_string=query_string, texts=texts, single=single)
    return write.answer


def _insert(
    executor: Executor, *, query_string: str, texts: Sequence[CommentText], single: bool
) -> bytes | None:
    keys: list[str] = []
    texts = _on_stored_items(executor, texts)
    if texts:
        author = executor.client.author(executor.context.actor.user)
        # An array for each column: one statement inserts all comments.
        columns = map(list, zip(*texts, strict=True))
        rows = executor.transaction.execute(statement("insert_comments"), (*author, *columns))
        keys = single_values(rows)
    notify_mentioned(executor, [WrittenComment(text) for text in texts])
    return _answer(executor, query_string, keys, single=single)


def _on_stored_items(executor: Executor, texts: Sequence[CommentText]) -> list[CommentText]:
    """Return comments with the keys of their items as PostgreSQL writes them.

    All comments on an item must have the same text for its key. Raises `Refused` for an item that
    the caller cannot read.
    """
    items: dict[str, list[str]] = {}
    for text in texts:
        items.setdefault(text.collection, []).append(text.item)
    stored: dict[str, dict[str, str]] = {}
    for collection, keys in items.items():
        stored[collection] = require_readable(executor, collection, keys)
    return [text._replace(item=stored[text.collection][text.item]) for text in texts]


# Changes


def change_comment(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    *,
    key: str,
    payload: Mapping[str, object],
) -> bytes | None:
    """Give a comment another text; only its author and administrators may."""
    require_user(identity)
    text = parse_change(payload)
    write: Write[bytes | None] = store.write(identity, idempotency=target.idempotency)
    for attempt in write:
        with attempt as context:
            executor = _executor(store, identity, attempt, context)
            row_key = parse_key(_activity(executor), key)
            own = _lock_own(executor, [row_key], if_match=target.if_match)
            _write_texts(executor, own, {row_key: text})
            write.answer = _answer(executor, target.query_string, [row_key], single=True)
    return write.answer


def change_comments(
    store: Store, identity: Identity, target: WriteTarget, payload: object
) -> bytes | None:
    """Change comments by an array of objects with their keys, or by `data` with `keys` or `query`.

    One comment that the caller may not change refuses them all.
    """
    require_user(identity)
    write: Write[bytes | None] = store.write(identity, idempotency=target.idempotency)
    for attempt in write:
        with attempt as context:
            executor = _executor(store, identity, attempt, context)
            changes = _changes(executor, payload)
            _write_texts(executor, _lock_own(executor, list(changes)), changes)
            write.answer = _answer(executor, target.query_string, list(changes), single=False)
    return write.answer


def _changes(executor: Executor, payload: object) -> dict[str, str]:
    """Return the new texts of comments by their keys."""
    if isinstance(payload, list):
        return parse_changes(_activity(executor), payload)
    if not isinstance(payload, Mapping) or "data" not in payload:
        reason = (
            "The body must be an array of comments with their keys, or hold data with keys or query"
        )
        raise invalid_payload(reason)
    selection = require_selection(payload, "data")
    text = parse_change(payload["data"])
    return dict.fromkeys(_named(executor, selection), text)


def _write_texts(
    executor: Executor, own: Mapping[str, CommentText], changes: Mapping[str, str]
) -> None:
    if not changes:
        return
    arguments = (list(changes), list(changes.values()))
    executor.transaction.execute(statement("change_comments"), arguments)
    written = [
        WrittenComment(own[key]._replace(text=text), before=own[key].text)
        for key, text in changes.items()
    ]
    notify_mentioned(executor, written)


# Deletions


def delete_comment(store: Store, identity: Identity, target: WriteTarget, *, key: str) -> None:
    """Delete a comment; only its author and administrators may."""
    require_user(identity)
    write: Write[None] = store.write(identity, idempotency=target.idempotency)
    for attempt in write:
        with attempt as context:
            executor = _executor(store, identity, attempt, context)
            row_key = parse_key(_activity(executor), key)
            _delete(executor, [row_key], if_match=target.if_match)


def delete_comments(store: Store, identity: Identity, target: WriteTarget, payload: object) -> None:
    """Delete comments by an array of keys, by `keys`, or by `query`.

    One comment that the caller may not delete refuses them all.
    """
    require_user(identity)
    write: Write[None] = store.write(identity, idempotency=target.idempotency)
    for attempt in write:
        with attempt as context:
            executor = _executor(store, identity, attempt, context)
            _delete(executor, _named(executor, selection_of(payload)))


def _delete(executor: Executor, keys: Sequence[str], *, if_match: str | None = None) -> None:
    own = _lock_own(executor, keys, if_match=if_match)
    executor.transaction.execute(statement("delete_comments"), (list(own),))


# The transaction


def _executor(
    store: Store, identity: Identity, attempt: WriteAttempt, context: RequestContext
) -> Executor:
    """Return what writes in the transaction of an attempt, for a caller who is a user."""
    # The token of a share has rights, but is no user who could be the author.
    require_own_user(context)
    return Executor(store, context, attempt.begin_transaction(), identity.client)


def _activity(executor: Executor) -> Collection:
    return executor.context.snapshot.catalogue.collections[ACTIVITY]


def _named(executor: Executor, selection: Mapping[str, object]) -> list[str]:
    """Return the keys of the comments that a payload names by `keys` or `query`."""
    return named_keys(executor, _activity(executor), selection, only=ONLY_COMMENTS)


def _lock_own(
    executor: Executor, keys: Sequence[str], *, if_match: str | None = None
) -> dict[str, CommentText]:
    """Return comments that the caller may change, locked, by their keys.

    Raises `Refused`: NOT_FOUND if one of them is missing or cannot be read, FORBIDDEN for those
    that the caller can merely read, PRECONDITION_FAILED for one that has changed since.
    """
    if not keys:
        return {}
    rows = executor.transaction.execute(statement("lock_comments"), (list(keys),))
    actor = executor.context.actor
    own: dict[str, CommentText] = {}
    for key, author, *text in rows:
        if actor.policy.is_admin or author == actor.user:
            own[key] = CommentText(*text)
    others = [key for key in keys if key not in own]
    if others:
        # NOT_FOUND for a caller who may not even read them.
        require_readable(executor, ACTIVITY, others)
        raise forbidden() if len(rows) == len(keys) else not_found()
    for key in own:
        check_match(executor, _activity(executor), key=key, if_match=if_match)
    return own


# The answer


def _answer(
    executor: Executor, query_string: str, keys: Sequence[str], *, single: bool
) -> bytes | None:
    """Return comments as the caller may read them, or None for a caller who may not."""
    parsed = parse_query_string(query_string, executor.store.page)
    if not keys:
        return json_body({"data": []}, executor.store.max_answer_size)
    try:
        # The caller may write comments that it may not read: these are left out.
        items = executor.read_answer(ACTIVITY, parsed, keys)
    except Refused as refused:
        # A caller who may comment on an item may still not be allowed to read comments.
        if refused.problems[0].code != "FORBIDDEN":
            raise
        return None
    if not items:
        return None
    data = items[0] if single else items
    # Inside the transaction: a body that is too large undoes the write.
    return json_body({"data": data}, executor.store.max_answer_size)
