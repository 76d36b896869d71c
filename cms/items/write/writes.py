"""The calls that write items (docs/writes.md), each in one transaction or in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from cms.errors import invalid_payload
from cms.items.read.answers import json_body
from cms.items.read.reads import parse_key, require_own_user, require_user
from cms.items.write import item_writes
from cms.items.write.calls import (
    CHANGE,
    CREATE,
    DELETE,
    PUT,
    RESTORE,
    WriteCall,
    WriteIntent,
    WrittenItems,
    new_call,
)
from cms.items.write.transaction.named_keys import require_selection, selection_of
from cms.query.language.ast import EMPTY_QUERY
from cms.query.language.parse import parse_query_string
from cms.schema.system import PERMISSIONS, ROLES, SETTINGS, USERS
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import Write, WriteAttempt

_RIGHTS_COLLECTIONS = frozenset({ROLES, PERMISSIONS, SETTINGS})
"""Collections of which every change moves the counter of rights, by triggers in sql/schema.sql."""

_RIGHTS_FIELDS = frozenset({"role", "status", "token", "password", "email", "tfa_secret"})
"""Fields of users whose change moves the counter of rights (`system_bump_for_users`)."""


class WriteTarget(NamedTuple):
    """The collection that is written, and the query string, which shapes the answer.

    `if_match` and `idempotency` are the conditions of the call.
    """

    collection: str
    query_string: str = ""
    if_match: str | None = None
    idempotency: Idempotency | None = None


# Create


def create(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    payload: object,
) -> bytes | None:
    """Create one item, or several of an array, and answer them as the query string asks."""
    single = not isinstance(payload, list)
    items = payload if isinstance(payload, list) else [payload]
    write = _new_write(store, identity, target, CREATE)
    for attempt in write:
        with attempt as context:
            call = _call(store, target, attempt, context, CREATE, of_one_item=single)
            write.answer = _body(call, item_writes.create(call, items), single=single)
    return write.answer


# Update


def update_one(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    *,
    key: str,
    payload: object,
) -> bytes | None:
    """Change one item; raises `Refused` NOT_FOUND when there is none for this caller."""
    write = _new_write(store, identity, target, CHANGE, payload)
    for attempt in write:
        with attempt as context:
            call = _call(store, target, attempt, context, CHANGE)
            item_key = parse_key(call.collection, key)
            items = item_writes.update(call, item_key, payload, if_match=target.if_match)
            write.answer = _body(call, items, single=True)
    return write.answer


def update_me(
    store: Store, identity: Identity, target: WriteTarget, *, payload: object
) -> bytes | None:
    """Change the caller's own user; raises `Refused` INVALID_CREDENTIALS without credentials."""
    require_user(identity)
    write = _new_write(store, identity, target, CHANGE, payload)
    for attempt in write:
        with attempt as context:
            call = _call(store, target, attempt, context, CHANGE)
            require_own_user(context)
            # The key comes from the credentials: it needs no parsing as one of a URL does.
            key = str(context.actor.user)
            items = item_writes.update(call, key, payload, if_match=target.if_match)
            write.answer = _body(call, items, single=True)
    return write.answer


def restore(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    *,
    key: str,
    payload: object,
) -> bytes | None:
    """Give an item the values of one of its revisions; the history records a revert."""
    write = _new_write(store, identity, target, RESTORE, payload)
    for attempt in write:
        with attempt as context:
            call = _call(store, target, attempt, context, RESTORE)
            item_key = parse_key(call.collection, key)
            # A singleton has a lock of its own, under which it gets its one row.
            if call.collection.is_singleton:
                items = item_writes.update_singleton(call, payload, if_match=target.if_match)
            else:
                items = item_writes.update(call, item_key, payload, if_match=target.if_match)
            write.answer = _body(call, items, single=True)
    return write.answer


def update_many(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    payload: object,
) -> bytes | None:
    """Change items by an array of objects with their keys, or by `data` with `keys` or `query`.

    On a singleton the payload is the item itself, which is created if there is none. `if_match` is
    compared for singletons only: several items have no common version.
    """
    write = _new_write(store, identity, target, PUT, payload)
    for attempt in write:
        with attempt as context:
            call = _call(store, target, attempt, context, PUT, of_one_item=False)
            write.answer = _update_many(call, payload, target)
    return write.answer


def _update_many(call: WriteCall, payload: object, target: WriteTarget) -> bytes | None:
    if call.collection.is_singleton:
        # The payload is the item itself, whatever names its fields have: `data` may be one of them.
        items = item_writes.update_singleton(call, payload, if_match=target.if_match)
        return _body(call, items, single=True)
    if isinstance(payload, list):
        return _body(call, item_writes.update_each(call, payload), single=False)
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload(
            "The body must be an array of items with their keys, or hold data with keys or query"
        )
    selection = require_selection(payload, "data")
    return _body(call, item_writes.update_many(call, selection), single=False)


# Delete


def delete_one(store: Store, identity: Identity, target: WriteTarget, *, key: str) -> None:
    """Delete one item."""
    for attempt in _new_write(store, identity, target, DELETE):
        with attempt as context:
            call = _call(store, target, attempt, context, DELETE)
            item_key = parse_key(call.collection, key)
            item_writes.delete(call, item_key, if_match=target.if_match)


def delete_many(store: Store, identity: Identity, target: WriteTarget, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""
    for attempt in _new_write(store, identity, target, DELETE):
        with attempt as context:
            call = _call(store, target, attempt, context, DELETE)
            item_writes.delete_many(call, selection_of(payload))


# The call


def _new_write(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    intent: WriteIntent,
    payload: object = None,
) -> Write[bytes | None]:
    """Return the write of a call; of its payload only the names of the fields count."""
    changes_rights = _changes_rights(target.collection, intent, payload)
    return store.write(identity, idempotency=target.idempotency, changes_rights=changes_rights)


def _call(
    store: Store,
    target: WriteTarget,
    attempt: WriteAttempt,
    context: RequestContext,
    intent: WriteIntent,
    *,
    of_one_item: bool = True,
) -> WriteCall:
    """Return the call of an attempt, which answers one item, as singletons do, or several."""
    client = attempt.identity.client
    call = new_call(store, context, client, attempt, name=target.collection, intent=intent)
    is_one = of_one_item or call.collection.is_singleton
    # Parsed only now: a hidden collection is refused before a query string that is wrong.
    parsed = replace(EMPTY_QUERY, of_one_item=is_one)
    if target.query_string:
        parsed = parse_query_string(target.query_string, store.page, of_one_item=is_one)
    return call._replace(parsed=parsed)


def _changes_rights(name: str, intent: WriteIntent, payload: object) -> bool:
    """Tell whether a write moves the counter of rights, as far as collection and fields tell.

    A write that moves it unforeseen, such as a nested one, may have to wait for others and be done
    again: `Store.write` lets it share a lock that it then needs alone.
    """
    # A new user moves no counter: no process remembers anything about it yet.
    if name != USERS or intent is CREATE:
        return name in _RIGHTS_COLLECTIONS
    if intent is DELETE:
        return True
    for item in _sent_items(payload):
        if isinstance(item, Mapping) and not _RIGHTS_FIELDS.isdisjoint(item):
            return True
    return False


def _sent_items(payload: object) -> list[object]:
    """Return what may be items in a payload that is not parsed yet."""
    # `data` of a call with `keys`, an array of items, or one item.
    if isinstance(payload, Mapping):
        payload = payload.get("data", payload)
    return payload if isinstance(payload, list) else [payload]


# The body of the answer


def _body(call: WriteCall, items: WrittenItems, *, single: bool) -> bytes | None:
    """Return the body of an answer: `single` holds one item, otherwise an array."""
    if items is None:
        return None
    answer = {"data": items[0] if single else items}
    if call.attempt.has_begun:
        # Inside the transaction: a body that is too large undoes the write.
        return json_body(answer, call.store.max_answer_size)
    # The write is done and cannot be refused any more; its statement has kept the answer small.
    return json_body(answer, None)
