"""Manual sorting: an item moves to the position of another in the sort field of its collection.

A move does not go through the stages of other writes: it has no items to parse or complete, and
changes the positions of items between the two that the caller may not even see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cms.access.guard import writable_collection
from cms.database.connections import Transaction, single_value
from cms.errors import Problem, Refused, abbreviated, invalid_payload, not_found
from cms.fragment import Fragment, commas, param
from cms.items.read.reads import parse_key
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.transaction.event_runs import json_keys, queue_event_runs
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.preconditions import check_match
from cms.items.write.writes import WriteTarget
from cms.query.sql import locks, sorting
from cms.query.sql.arguments import AUTHOR_TYPES
from cms.schema.keys import may_be_key
from cms.schema.model import Collection, Field
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import Write


class _MoveKeys(NamedTuple):
    """The keys of the item that moves, and of the one whose position it takes."""

    item: str
    to: str


class _Positions(NamedTuple):
    """The positions of the item that moves and of the other one; None for an item without any."""

    item: str | None
    to: str | None


def move_item(
    store: Store, identity: Identity, target: WriteTarget, payload: Mapping[str, object]
) -> None:
    """Move `item` to the position of `to`; the items between them move by one.

    The caller needs the permission to change the sort field of `item` and `to`, but not of the
    items between them. Raises `Refused`: INVALID_PAYLOAD for a collection without a sort field of
    whole numbers, NOT_FOUND for an item that does not exist, PRECONDITION_FAILED for an `item` that
    has changed since.
    """
    write: Write[None] = store.write(identity, idempotency=target.idempotency)
    for attempt in write:
        with attempt as context:
            transaction = attempt.begin_transaction()
            _move_authorized(store, identity, target, payload, transaction, context)


def _move_authorized(
    store: Store,
    identity: Identity,
    target: WriteTarget,
    payload: Mapping[str, object],
    transaction: Transaction,
    context: RequestContext,
) -> None:
    collection = writable_collection(
        target.collection,
        catalogue=context.snapshot.catalogue,
        policy=context.actor.policy,
        actions=("update",),
    )
    # A singleton has no items to name by key.
    if collection.is_singleton:
        raise not_found()
    sort_field = _sort_field(collection)
    keys = _parse_keys(collection, payload)
    authorizer = WriteAuthorizer(store, context)
    authorizer.authorize_column(collection, keys, sort_field.name, transaction.execute)
    # One item moves at a time in a collection: the positions stay as they are read here. It is the
    # lock by which singletons are written, which have no order to change.
    transaction.run(locks.lock_collection(collection))
    executor = Executor(store, context, transaction, identity.client)
    check_match(executor, collection, key=keys.item, if_match=target.if_match)
    author_values = identity.client.author(context.actor.user)
    author_params = map(param, author_values, AUTHOR_TYPES)
    _move(transaction, collection, sort_field, keys, author=commas(author_params))
    moved, other = json_keys(collection, keys)
    event_data = {"payload": {"item": moved, "to": other}, "keys": [moved]}
    queue_event_runs(executor, collection, verb="sort", data=event_data)


def _sort_field(collection: Collection) -> Field:
    if collection.sort_field:
        field = collection.fields[collection.sort_field]
        if field.type.is_whole_number:
            return field
    raise invalid_payload(
        f'"{collection.name}" has no sort field of whole numbers', collection=collection.name
    )


def _parse_keys(collection: Collection, payload: Mapping[str, object]) -> _MoveKeys:
    problems: list[Problem] = []
    for name in ("item", "to"):
        value = payload.get(name)
        is_key = isinstance(value, str | int | list) and may_be_key(collection, value)
        if not is_key or isinstance(value, bool):
            sent = {"value": abbreviated(value)} if name in payload else {}
            reason = f'"{name}" must be the key of an item'
            problems += invalid_payload(reason, field=name, **sent).problems
    for name in payload.keys() - {"item", "to"}:
        message = f'Invalid payload. There is no "{name}".'
        problems.append(Problem("INVALID_PAYLOAD", message, {"field": name}))
    if problems:
        raise Refused(problems)
    return _MoveKeys(parse_key(collection, payload["item"]), parse_key(collection, payload["to"]))


def _move(
    transaction: Transaction,
    collection: Collection,
    sort_field: Field,
    keys: _MoveKeys,
    *,
    author: Fragment,
) -> None:
    """Move an item; all items are numbered first if some share a position or have none."""
    positions = _positions(transaction, collection, sort_field, keys)
    if _is_ambiguous(transaction, collection, sort_field, positions):
        # With equal positions there is no "between": all items get positions of their own first.
        transaction.run(sorting.renumber(collection, sort_field, author=author))
        positions = _positions(transaction, collection, sort_field, keys)
    source = positions.item
    target = positions.to
    if source is not None and target is not None and source != target:
        move = sorting.move(
            collection, sort_field, key=keys.item, source=source, target=target, author=author
        )
        transaction.run(move)


def _is_ambiguous(
    transaction: Transaction, collection: Collection, sort_field: Field, positions: _Positions
) -> bool:
    """Tell whether items from one position to the other share a position or have none."""
    # An item without a position counts as 0 here: it makes the order ambiguous anyway.
    low, high = sorted((positions.item or "0", positions.to or "0"), key=int)
    question = sorting.has_ambiguous_order(collection, sort_field, low, high)
    return bool(single_value(transaction.run(question)))


def _positions(
    transaction: Transaction, collection: Collection, sort_field: Field, keys: _MoveKeys
) -> _Positions:
    return _Positions(
        _position(transaction, collection, sort_field, keys.item),
        _position(transaction, collection, sort_field, keys.to),
    )


def _position(
    transaction: Transaction, collection: Collection, sort_field: Field, key: str
) -> str | None:
    rows = transaction.run(sorting.position_of(collection, sort_field, key))
    if not rows:
        raise not_found()
    position = single_value(rows)
    return None if position is None else str(position)
