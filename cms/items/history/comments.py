"""Comments on items: activity that people write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from cms import jsontext
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, abbreviated, forbidden, invalid_payload, not_found
from cms.items.history.mentions import CommentText, notify_mentioned, readable_key
from cms.items.read.prepare import narrow_to_key
from cms.items.read.reads import parse_key, require_own_user, require_user
from cms.items.write.executor import Executor
from cms.items.write.preconditions import check_match
from cms.query.language.ast import Query, Slot
from cms.query.language.parse import parse_query_string
from cms.schema.system import ACTIVITY
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store

MAX_COMMENT = 100_000
"""Characters of one comment."""

T = TypeVar("T")


def comment(
    store: Store,
    identity: Identity,
    query_string: str,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Add a comment to an item that the caller can read.

    Returns the comment, or None when the caller may not read comments.
    """
    require_user(identity)
    texts = _parse_texts(payload, ("collection", "item", "comment"))
    work = partial(_insert, query_string=query_string, texts=texts)
    return _run(store, identity, work, idempotency=idempotency)


def _insert(executor: Executor, *, query_string: str, texts: Mapping[str, str]) -> bytes | None:
    # As PostgreSQL writes it: all comments on an item must have the same text for its key.
    item = readable_key(executor, texts["collection"], texts["item"])
    author = executor.client.author(executor.context.actor.user)
    rows = executor.transaction.execute(
        statement("insert_comment"), (*author, texts["collection"], item, texts["comment"])
    )
    notify_mentioned(executor, CommentText(texts["collection"], item, texts["comment"]))
    return _answer(executor, query_string, key=str(rows[0][0]))


def change_comment(
    store: Store,
    identity: Identity,
    query_string: str,
    *,
    key: str,
    payload: Mapping[str, object],
    if_match: str | None = None,
) -> bytes | None:
    """Give a comment another text; only its author and administrators may."""
    require_user(identity)
    text = _parse_texts(payload, ("comment",))["comment"]
    work = partial(_change, query_string=query_string, key=key, text=text, if_match=if_match)
    return _run(store, identity, work)


def _change(
    executor: Executor, *, query_string: str, key: str, text: str, if_match: str | None
) -> bytes | None:
    own = _lock_own(executor, key, if_match=if_match)
    executor.transaction.execute(statement("change_comment"), (own.key, text))
    notify_mentioned(executor, own.text._replace(text=text), before=own.text.text)
    return _answer(executor, query_string, key=own.key)


def delete_comment(
    store: Store, identity: Identity, *, key: str, if_match: str | None = None
) -> None:
    """Delete a comment; only its author and administrators may."""
    require_user(identity)
    _run(store, identity, partial(_delete, key=key, if_match=if_match))


def _delete(executor: Executor, *, key: str, if_match: str | None) -> None:
    own = _lock_own(executor, key, if_match=if_match)
    executor.transaction.execute(statement("delete_comment"), (own.key,))


def _run(
    store: Store,
    identity: Identity,
    work: Callable[[Executor], T],
    *,
    idempotency: Idempotency | None = None,
) -> T:
    """Do the work in a transaction, with the executor of that transaction."""
    in_transaction = partial(_with_executor, store, identity, work)
    return store.run_in_transaction(identity, in_transaction, idempotency=idempotency)


def _with_executor(
    store: Store,
    identity: Identity,
    work: Callable[[Executor], T],
    transaction: Transaction,
    context: RequestContext,
) -> T:
    # The token of a share has rights, but is no user who could be the author.
    require_own_user(context)
    return work(Executor(store, context, transaction, identity.client))


def _parse_texts(payload: Mapping[str, object], names: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a body, all of which are required; a key may be a number."""
    problems = []
    # An unknown field is refused, because it would be lost silently.
    for name in payload.keys() - {*names}:
        problems.append(_problem(name, payload, "there is no such field"))
    texts: dict[str, str] = {}
    for name in names:
        value = payload.get(name)
        # A boolean is an int to Python, but no key.
        if name == "item" and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value.strip() and len(value) <= MAX_COMMENT:
            texts[name] = value
        else:
            reason = f"it must be a text of 1 to {MAX_COMMENT} characters"
            problems.append(_problem(name, payload, reason))
    if problems:
        raise Refused(problems)
    return texts


def _problem(name: str, payload: Mapping[str, object], reason: str) -> Problem:
    sent = {"value": abbreviated(payload[name])} if name in payload else {}
    return invalid_payload(f'"{name}": {reason}', field=name, **sent).problems[0]


class _OwnComment(NamedTuple):
    """A comment that the caller may change."""

    key: str
    text: CommentText


def _lock_own(executor: Executor, key: str, *, if_match: str | None) -> _OwnComment:
    """Return a comment that the caller may change, locked.

    Raises `Refused`: FORBIDDEN for one that the caller can merely read, NOT_FOUND for one that it
    cannot, PRECONDITION_FAILED for one that has changed since.
    """
    activity = executor.context.snapshot.catalogue.collections[ACTIVITY]
    parsed_key = parse_key(activity, key)
    rows = executor.transaction.execute(statement("lock_comment"), (parsed_key,))
    actor = executor.context.actor
    # The first column is the author.
    if rows and (actor.policy.is_admin or str(rows[0][0]) == actor.user):
        check_match(executor, activity, key=parsed_key, if_match=if_match)
        return _OwnComment(parsed_key, CommentText(*rows[0][1:]))
    # NOT_FOUND for a caller who may not even read it.
    readable_key(executor, ACTIVITY, parsed_key)
    raise forbidden() if rows else not_found()


def _answer(executor: Executor, query_string: str, *, key: str) -> bytes | None:
    """Return a comment as the caller may read it, or None for a caller who may not."""
    parsed = parse_query_string(query_string, executor.store.page)
    # Filter, sort and page of the query string are for lists; here they would hide the comment.
    output = Query(
        picks=parsed.query.picks,
        deep=parsed.query.deep,
        checked_only=parsed.query.checked_only,
    )
    query = narrow_to_key(output, Slot(len(parsed.literals)))
    literals = (*parsed.literals, key)
    try:
        items = executor.read(ACTIVITY, query, literals)
    except Refused as refused:
        # Whoever may comment on an item may still not be allowed to read comments.
        if refused.problems[0].code != "FORBIDDEN":
            raise
        return None
    return jsontext.dumps({"data": items[0]}) if items else None
