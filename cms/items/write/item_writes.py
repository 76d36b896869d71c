"""Writes of items: creates, changes and deletes, each for one call.

Parsing and completing a payload, and hashing its passwords, takes long, and happens before a
transaction holds any lock. Most calls that name no related item are then one statement
(cms/items/write/single_statement.py). All others resolve, authorize and write in a transaction
(cms/items/write/nested.py), and then read the items as the caller may read them.

A write answers its items, or by the functions called `…_keys` their keys, whether or not the caller
may read the items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cms.access.guard import view_of
from cms.access.guarded_rules import UNRESTRICTED
from cms.database.connections import single_value
from cms.errors import invalid_payload, not_found
from cms.hashing.passwords import rehearsals
from cms.items.write import single_statement
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.filtering import flow_filter, has_filters
from cms.items.write.item_filters import check_deletion, filtered_set
from cms.items.write.nested import CompletePayload, write_tree
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.run.mutation_sequence import deletion_sequence
from cms.items.write.run.running import run_sequence
from cms.items.write.stages.parsed import Expects, ParsedSet, PendingKey
from cms.items.write.stages.resolved_rows import StoredRows
from cms.items.write.transaction.event_runs import json_keys
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.named_keys import named_keys
from cms.items.write.transaction.preconditions import check_match, check_singleton
from cms.items.write.transaction.rows import as_stored
from cms.query.sql import locks
from cms.schema.model import Collection
from cms.schema.payload import MISSING_KEY, REPEATED, RowValues, invalid_item

AnsweredKeys = list[object]
"""Primary keys as answers show them."""

MAX_REPEATED_ITEMS = 10_000
"""Related items that one call may write by naming them once for many items."""


class ParsedPayload(NamedTuple):
    """The parsed items of a call, and the parser that holds their problems."""

    parser: PayloadParser
    items: ParsedSet


class ReadyWrite(NamedTuple):
    """A call and its payload, ready to be written; flows may have put it into its transaction."""

    call: WriteCall
    payload: CompletePayload


# Creates


def create(call: WriteCall, items: Sequence[object]) -> WrittenItems:
    """Create items."""
    call, payload = _ready_creation(call, items)
    if _may_be_one_statement(call, payload):
        written = single_statement.insert(call, payload.root)
        if written:
            return written.items
    return write_payload(call, payload)


def create_keys(call: WriteCall, items: Sequence[object]) -> AnsweredKeys:
    """Create items, and return their keys."""
    return _write_keys(*_ready_creation(call, items))


def _ready_creation(call: WriteCall, items: Sequence[object]) -> ReadyWrite:
    flow = flow_filter(call, "create")
    if flow:
        call = flow.call
        items = flow.items(items)
    for _ in rehearsals():
        payload = call.complete(*parse_payload(call, items, Expects.ABSENT))
    return ReadyWrite(call, payload)


# Changes


def update(call: WriteCall, key: str, item: object, *, if_match: str | None = None) -> WrittenItems:
    """Change the item of a key, if it has the version of an If-Match header."""
    flow = flow_filter(call, "update")
    if flow:
        call = require_match(flow.call, key, if_match)
        item = flow.item(item, [key])
    for _ in rehearsals():
        payload = complete_update(call, parse_payload(call, [item], Expects.PRESENT), [key])
    if flow is None and if_match is not None:
        call = require_match(call, key, if_match)
    if _may_be_one_statement(call, payload):
        written = single_statement.update(call, payload.root)
        if written:
            return written.items
    return write_payload(call, payload)


def update_each(call: WriteCall, items: Sequence[object]) -> WrittenItems:
    """Change the items of an array, which hold their keys."""
    return write_payload(*_ready_changes(call, items))


def update_each_keys(call: WriteCall, items: Sequence[object]) -> AnsweredKeys:
    """Change the items of an array, which hold their keys, and return these."""
    return _write_keys(*_ready_changes(call, items))


def _ready_changes(call: WriteCall, items: Sequence[object]) -> ReadyWrite:
    flow = flow_filter(call, "update")
    if flow:
        call = flow.call
        items = flow.keyed_items(items)
    for _ in rehearsals():
        payload = _complete_each(call, items)
    return ReadyWrite(call, payload)


def _complete_each(call: WriteCall, items: Sequence[object]) -> CompletePayload:
    """Return the payload of a change of items that hold their keys."""
    parser, parsed = parse_payload(call, items, Expects.PRESENT)
    keys = _named_keys(parsed.collection, parsed.row_values)
    # Going through all rows is left out where every key is there once, which is nearly always.
    if None in keys or len(set(keys)) < len(keys):
        _add_key_problems(call, parser, parsed)
    return call.complete(parser, parsed, StoredRows(dict(enumerate(keys))))


def _named_keys(collection: Collection, rows: Sequence[RowValues]) -> list[str | None]:
    # An array may have thousands of items, which mostly have keys of one column.
    if collection.key_name:
        return collection.keys_of(rows)
    return [_named_key(collection, values) for values in rows]


def _named_key(collection: Collection, values: RowValues) -> str | None:
    """Return the key by which an item names its row; an object of a related item is none."""
    if any(isinstance(values.get(name), PendingKey) for name in collection.key_names):
        return None
    return collection.key_of(values)


def _add_key_problems(call: WriteCall, parser: PayloadParser, parsed: ParsedSet) -> None:
    """Add a problem for each item without a key, and for each key that an item before it has."""
    seen: set[str] = set()
    for row in parsed.rows:
        key = _named_key(parsed.collection, row.values)
        reason = None
        if key is None:
            # A key that cannot be used has its own problem from parsing.
            if row.invalid_fields.isdisjoint(parsed.collection.key_names):
                reason = MISSING_KEY
        elif key in seen:
            reason = REPEATED
        else:
            seen.add(key)
        if reason:
            problem = invalid_item(reason, call.collection.name, parsed.collection.key_name)
            parser.problems.add(problem, row.position)


def update_many(call: WriteCall, payload: Mapping[str, object]) -> WrittenItems:
    """Give the items that `keys` or `query` name the values of `data`."""
    return write_payload(*_ready_change(call, payload))


def update_many_keys(
    call: WriteCall, selection: Mapping[str, object], item: object
) -> AnsweredKeys:
    """Give the items that `keys` or `query` name the values of a payload; return their keys.

    The one item of a singleton needs no name.
    """
    # A singleton passes its flows later, when it is known whether there is an item.
    if call.collection.is_singleton:
        return _write_keys(*_ready_singleton(call, item))
    return _write_keys(*_ready_change(call, {**selection, "data": item}))


def _ready_change(call: WriteCall, payload: Mapping[str, object]) -> ReadyWrite:
    flow = flow_filter(call, "update")
    if flow:
        call = flow.call
        payload = flow.change(payload)
    # Parsed before the transaction, so that hidden names are refused without one.
    parsed = parse_payload(call, [payload["data"]], Expects.PRESENT)
    call, executor = call.begun()
    keys = named_keys(executor, call.collection, payload)
    # Also for no item at all: problems of the payload are refused in any case.
    return ReadyWrite(call, complete_update(call, parsed, keys))


def update_singleton(call: WriteCall, item: object, *, if_match: str | None = None) -> WrittenItems:
    """Change the one item of a singleton, or create it, if it has the version of If-Match."""
    return write_payload(*_ready_singleton(call, item, if_match=if_match))


def _ready_singleton(call: WriteCall, item: object, *, if_match: str | None = None) -> ReadyWrite:
    parsed = parse_payload(call, [item], Expects.ANY)
    call, executor = call.begun()
    if if_match is not None:
        check_singleton(executor, call.collection, if_match=if_match)
    return ReadyWrite(call, _complete_singleton(call, executor, parsed))


def _complete_singleton(
    call: WriteCall, executor: Executor, parsed: ParsedPayload
) -> CompletePayload:
    """Return the payload of a singleton, once it is known whether there is an item."""
    # An advisory lock, as there may be no row to lock: two calls would both create the one row.
    executor.transaction.run(locks.lock_collection(call.collection))
    stored = executor.transaction.run(locks.singleton_key(call.collection))
    keys: dict[int, str | None] = {}
    if stored:
        key = str(single_value(stored))
        keys = dict.fromkeys(range(len(parsed.items.rows)), key)
    stored_rows = StoredRows(keys, named_by_key=False)
    items = filtered_set(executor, parsed.parser, parsed.items, stored_rows)
    return call.complete(parsed.parser, items, stored_rows)


# Payloads


def parse_payload(call: WriteCall, items: Sequence[object], expects: Expects) -> ParsedPayload:
    """Parse the items of a call; what is wrong with them is kept in the parser.

    Raises `Refused` for hidden names, and for payloads that are nested too deeply.
    """
    parser = call.payload_parser()
    return ParsedPayload(parser, parser.parse(call.collection, items, expects))


def complete_update(call: WriteCall, parsed: ParsedPayload, keys: Sequence[str]) -> CompletePayload:
    """Return the payload of a change that gives the items of all keys the same values."""
    parser, items = parsed
    # Several keys share one parsed item; an item of the wrong shape has become no row at all.
    if len(keys) != len(items.rows):
        items = _one_row_for_each_key(call, parsed, len(keys))
    return call.complete(parser, items, StoredRows(dict(enumerate(keys)), named_by_key=False))


def _one_row_for_each_key(call: WriteCall, parsed: ParsedPayload, count: int) -> ParsedSet:
    """Return one row for each key; what is nested is written for each of them."""
    parser, items = parsed
    # Refused before the item is multiplied: each problem would be there once for every key.
    parser.problems.refuse()
    (row,) = items.rows
    if items.is_flat:
        return items._replace(rows=[row] * count)
    # Every item gets related items of its own, so the nested rows must be parsed for each.
    if count * items.related_count > MAX_REPEATED_ITEMS:
        raise invalid_payload(
            f"data names related items, which would be written {count} times: "
            f"there may be {MAX_REPEATED_ITEMS} in all",
            field="data",
            limit=MAX_REPEATED_ITEMS,
        )
    return parser.parse(call.collection, [row.sent] * count, Expects.PRESENT)


# Deletes


def delete(call: WriteCall, key: str, *, if_match: str | None = None) -> None:
    """Delete the item of a key, if it has the version of an If-Match header."""
    call = require_match(call, key, if_match)
    # Flows can refuse it only in a transaction.
    is_plain = not (call.attempt.has_begun or has_filters(call, "delete"))
    if is_plain and single_statement.delete(call, key):
        return
    call, executor = call.begun()
    keys = as_stored(executor, call.collection, [key])
    delete_items(call, executor, list(keys.values()))


def delete_many(call: WriteCall, selection: Mapping[str, object]) -> AnsweredKeys:
    """Delete the items that `keys` or `query` name, and return their keys."""
    call, executor = call.begun()
    keys = named_keys(executor, call.collection, selection)
    delete_items(call, executor, keys)
    return json_keys(call.collection, keys)


def delete_items(call: WriteCall, executor: Executor, keys: Sequence[str]) -> None:
    """Delete the items of keys, as far as the caller may; one unknown key refuses them all."""
    fetch = executor.transaction.execute
    authorized = call.authorizer.authorize_delete(call.collection, keys, fetch)
    check_deletion(executor, call.collection, keys)
    run_sequence(executor, deletion_sequence(authorized))
    # Hooks look at what is left: deleting may not take the last administrator, for example.
    call.authorizer.run_after_hook(call.collection, fetch)


def _may_be_one_statement(call: WriteCall, payload: CompletePayload) -> bool:
    """Tell whether a write may do without a transaction, if `single_statement` can do it."""
    # A revert has a history action of its own, which only the transaction writes.
    return not (payload.related or call.history_action or call.attempt.has_begun)


# If-Match


def require_match(call: WriteCall, key: str, if_match: str | None) -> WriteCall:
    """Raise `Refused` unless an item has the version of an If-Match header, if there is one.

    The version is compared under a lock: the call that is returned is in its transaction then.
    """
    if if_match is None:
        return call
    call, executor = call.begun()
    check_match(executor, call.collection, key=key, if_match=if_match)
    return call


# Writing, and what is answered


def write_payload(call: WriteCall, payload: CompletePayload) -> WrittenItems:
    """Write a payload in a transaction; return its items as the caller may read them, in order."""
    call, executor = call.begun()
    name = call.collection.name
    catalogue = executor.context.snapshot.catalogue
    policy = executor.context.actor.policy
    view = view_of(name, catalogue=catalogue, policy=policy)
    # Where all rows are answered, what would be undone afterwards is not even begun.
    if view and view.rule == UNRESTRICTED and len(payload.root.rows) > 1:
        executor.require_possible_answer(name, call.parsed, len(payload.root.rows))
    keys = write_tree(executor, call.authorizer, payload)
    if not keys:
        return []
    if view is None:
        return None
    # The caller may write rows that it may not read: these are left out.
    items = executor.read_answer(name, call.parsed, keys)
    if len(items) < len(keys) and policy.is_admin:
        raise not_found()  # a trigger of the table may have moved or removed them
    return items or None


def _write_keys(call: WriteCall, payload: CompletePayload) -> AnsweredKeys:
    call, executor = call.begun()
    return json_keys(call.collection, write_tree(executor, call.authorizer, payload))
