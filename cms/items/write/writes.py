"""The calls that write items (docs/writes.md), each in one transaction or in one statement.

Every function here plans its call before its transaction begins (cms/items/write/plans.py), and
does so again after a change of structure or rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from cms.database.connections import Transaction
from cms.errors import invalid_payload
from cms.items.read.answers import json_body, unlimited_body
from cms.items.read.reads import Item, parse_key, require_own_user, require_user
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
from cms.items.write.plans import (
    plan_create,
    plan_delete,
    plan_delete_many,
    plan_singleton,
    plan_update,
    plan_update_each,
    plan_update_many,
    with_item_precondition,
    with_singleton_precondition,
)
from cms.items.write.transaction.named_keys import require_selection, selection_of
from cms.query.language.ast import EMPTY_QUERY
from cms.query.language.parse import parse_query_string
from cms.schema.system import PERMISSIONS, ROLES, SETTINGS, USERS
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import Write
from cms.store.write_plan import WritePlan

_RIGHTS_COLLECTIONS = frozenset({ROLES, PERMISSIONS, SETTINGS})
"""Collections of which every change moves the counter of rights, by triggers in sql/schema.sql."""

_RIGHTS_FIELDS = frozenset({"role", "status", "token", "password", "email", "tfa_secret"})
"""Fields of users whose change moves the counter of rights (`system_bump_for_users`)."""

T = TypeVar("T")


class WriteTarget(NamedTuple):
    """The collection that is written, and the query string, which shapes the answer.

    `if_match` and `idempotency` are the conditions of the call.
    """

    collection: str
    query_string: str = ""
    if_match: str | None = None
    idempotency: Idempotency | None = None


class WriteOperation(NamedTuple, Generic[T]):
    """What a call does.

    `intent` says which permissions it takes, `plan` plans it. Of `payload` only the names of its
    fields count, to find out whether the write changes rights (`_changes_rights`). It answers
    one item, `of_one_item`, or several; of a singleton it is always one.
    """

    intent: WriteIntent
    plan: Callable[[WriteCall], WritePlan[T]]
    payload: object = None
    of_one_item: bool = True


# Create


def create(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    payload: object,
) -> bytes | None:
    """Create one item, or several of an array, and answer them as the query string asks."""
    plan = partial(_plan_create, payload=payload)
    operation = WriteOperation(CREATE, plan, of_one_item=not isinstance(payload, list))
    return _run(store, identity, target, operation)


def _plan_create(call: WriteCall, *, payload: object) -> WritePlan[bytes | None]:
    if isinstance(payload, list):
        return _body_plan(call, plan_create(call, payload), single=False)
    return _body_plan(call, plan_create(call, [payload]), single=True)


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
    plan = partial(_plan_update_one, key=key, payload=payload, if_match=target.if_match)
    return _run(store, identity, target, WriteOperation(CHANGE, plan, payload))


def _plan_update_one(
    call: WriteCall, *, key: str, payload: object, if_match: str | None
) -> WritePlan[bytes | None]:
    key = parse_key(call.collection, key)
    return _plan_conditional_update(call, key=key, payload=payload, if_match=if_match)


def _plan_conditional_update(
    call: WriteCall, *, key: str, payload: object, if_match: str | None
) -> WritePlan[bytes | None]:
    plan = plan_update(call, key, payload)
    return _body_plan(
        call, with_item_precondition(call, plan, key=key, if_match=if_match), single=True
    )


def update_me(
    store: Store, identity: Identity, target: WriteTarget, *, payload: object
) -> bytes | None:
    """Change the caller's own user; raises `Refused` INVALID_CREDENTIALS without credentials."""
    require_user(identity)
    plan = partial(_plan_update_me, payload=payload, if_match=target.if_match)
    return _run(store, identity, target, WriteOperation(CHANGE, plan, payload))


def _plan_update_me(
    call: WriteCall, *, payload: object, if_match: str | None
) -> WritePlan[bytes | None]:
    require_own_user(call.context)
    # The key comes from the credentials: it needs no parsing as one of a URL does.
    key = str(call.context.actor.user)
    return _plan_conditional_update(call, key=key, payload=payload, if_match=if_match)


def restore(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    *,
    key: str,
    payload: object,
) -> bytes | None:
    """Give an item the values of one of its revisions; the history records a revert."""
    plan = partial(_plan_restore, key=key, payload=payload, if_match=target.if_match)
    operation = WriteOperation(RESTORE, plan, payload)
    return _run(store, identity, target, operation)


def _plan_restore(
    call: WriteCall, *, key: str, payload: object, if_match: str | None
) -> WritePlan[bytes | None]:
    key = parse_key(call.collection, key)
    # A singleton has a plan of its own, with the lock under which it gets its one row.
    if call.collection.is_singleton:
        return _plan_singleton(call, payload, if_match=if_match)
    return _plan_conditional_update(call, key=key, payload=payload, if_match=if_match)


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
    plan = partial(_plan_update_many, payload=payload, if_match=target.if_match)
    return _run(store, identity, target, WriteOperation(PUT, plan, payload, of_one_item=False))


def _plan_update_many(
    call: WriteCall, *, payload: object, if_match: str | None
) -> WritePlan[bytes | None]:
    if call.collection.is_singleton:
        # The payload is the item itself, whatever names its fields have: `data` may be one of them.
        return _plan_singleton(call, payload, if_match=if_match)
    if isinstance(payload, list):
        return _body_plan(call, plan_update_each(call, payload), single=False)
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload(
            "The body must be an array of items with their keys, or hold data with keys or query"
        )
    selection = require_selection(payload, "data")
    return _body_plan(call, plan_update_many(call, selection), single=False)


def _plan_singleton(
    call: WriteCall, payload: object, *, if_match: str | None
) -> WritePlan[bytes | None]:
    plan: WritePlan[WrittenItems] = plan_singleton(call, payload)
    if if_match is not None:
        plan = with_singleton_precondition(call, plan, if_match=if_match)
    return _body_plan(call, plan, single=True)


# Delete


def delete_one(store: Store, identity: Identity, target: WriteTarget, *, key: str) -> None:
    """Delete one item."""
    plan = partial(_plan_delete_one, key=key, if_match=target.if_match)
    _run(store, identity, target, WriteOperation(DELETE, plan))


def _plan_delete_one(call: WriteCall, *, key: str, if_match: str | None) -> WritePlan[object]:
    key = parse_key(call.collection, key)
    return with_item_precondition(call, plan_delete(call, key), key=key, if_match=if_match)


def delete_many(store: Store, identity: Identity, target: WriteTarget, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""
    operation = WriteOperation(DELETE, partial(_plan_delete_many, payload=payload))
    _run(store, identity, target, operation)


def _plan_delete_many(call: WriteCall, *, payload: object) -> WritePlan[object]:
    return plan_delete_many(call, selection_of(payload))


# The run


def _run(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    operation: WriteOperation[T],
) -> T:
    write: Write[T] = store.write(
        identity,
        idempotency=target.idempotency,
        changes_rights=_changes_rights(target.collection, operation),
    )
    for attempt in write:
        with attempt as context:
            write.answer = attempt.run(_plan(store, identity, target, operation, context))
    return write.answer


def _plan(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    operation: WriteOperation[T],
    context: RequestContext,
) -> WritePlan[T]:
    call = new_call(
        store,
        context,
        identity.client,
        name=target.collection,
        parsed=EMPTY_QUERY,
        intent=operation.intent,
    )
    is_one = operation.of_one_item or call.collection.is_singleton
    call = call._replace(parsed=replace(EMPTY_QUERY, of_one_item=is_one))
    # Parsed only now: a hidden collection is refused before a query string that is wrong.
    if target.query_string:
        parsed = parse_query_string(target.query_string, store.page, of_one_item=is_one)
        call = call._replace(parsed=parsed)
    return operation.plan(call)


def _changes_rights(name: str, operation: WriteOperation[T]) -> bool:
    """Tell whether a write moves the counter of rights, as far as collection and fields tell.

    A write that moves it unforeseen, such as a nested one, may have to wait for others and be done
    again: `Store.write` lets it share a lock that it then needs alone.
    """
    # A new user moves no counter: no process remembers anything about it yet.
    if name != USERS or operation.intent is CREATE:
        return name in _RIGHTS_COLLECTIONS
    if operation.intent is DELETE:
        return True
    for item in _sent_items(operation.payload):
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


def _body_plan(
    call: WriteCall, plan: WritePlan[WrittenItems], *, single: bool
) -> WritePlan[bytes | None]:
    """Return a plan whose answer is a body: `single` holds one item, otherwise an array."""
    run = partial(_body, call, plan, single=single)
    if plan.run_alone is None:
        return WritePlan(run)
    return WritePlan(run, partial(_body_alone, plan.run_alone, single=single))


def _body(
    call: WriteCall, plan: WritePlan[WrittenItems], transaction: Transaction, *, single: bool
) -> bytes | None:
    items = plan.run(transaction)
    if items is None:
        return None
    # Inside the transaction: a body that is too large undoes the write.
    return json_body(_answer(items, single=single), call.store.max_answer_size)


def _body_alone(run_alone: Callable[[], WrittenItems], *, single: bool) -> bytes | None:
    items = run_alone()
    if items is None:
        return None
    # The write is done and cannot be refused any more; its plan has kept the answer small.
    return unlimited_body(_answer(items, single=single))


def _answer(items: list[Item], *, single: bool) -> dict[str, object]:
    return {"data": items[0] if single else items}
