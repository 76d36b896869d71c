"""Plans of calls that write items: creates, changes, deletes.

Planning parses and completes the payload, and hashes its passwords, which takes long, before a
transaction holds any lock. A plan has two ways to run. `run_alone` is one statement
(cms/items/write/single_statement.py), for most calls that name no related item. `run` resolves,
authorizes and writes in a transaction (cms/items/write/nested.py), and then reads the items as the
caller may read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from cms.access.guard import view_of
from cms.database.connections import Transaction, single_value
from cms.errors import invalid_payload, not_found
from cms.items.write import single_statement
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.filtering import filtered_plan, has_filters
from cms.items.write.item_filters import check_deletion, filtered_set
from cms.items.write.nested import CompletePayload, write_tree
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.run.planning import plan_deletion
from cms.items.write.run.running import run_plan
from cms.items.write.stages.parsed import Expects, ParsedSet
from cms.items.write.stages.problems import WHOLE_ITEM, key_change_problem
from cms.items.write.stages.resolved_rows import StoredRows
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.named_keys import named_keys
from cms.items.write.transaction.preconditions import check_match, check_singleton
from cms.items.write.transaction.rows import as_stored
from cms.query.sql import locks
from cms.schema.payload import MISSING_KEY, REPEATED, invalid_item
from cms.store.write_plan import WritePlan

T = TypeVar("T")

MAX_REPEATED_ITEMS = 10_000
"""Related items that one call may write by naming them once for many items."""


class ParsedPayload(NamedTuple):
    """The parsed items of a call, and the parser that holds their problems."""

    parser: PayloadParser
    items: ParsedSet


# Creates


def plan_create(call: WriteCall, items: Sequence[object]) -> WritePlan[WrittenItems]:
    """Create items."""
    if has_filters(call, "create"):
        return filtered_plan(call, "create", lambda flow: plan_create(flow.call, flow.items(items)))
    payload = call.complete(*parse_payload(call, items, Expects.ABSENT))
    run = partial(_write_payload, call, payload)
    if payload.related is not None:
        return WritePlan(run)
    return WritePlan(run, single_statement.plan_insert(call, payload.root))


# Changes


def plan_update(call: WriteCall, key: str, item: object) -> WritePlan[WrittenItems]:
    """Change the item of a key."""
    if has_filters(call, "update"):
        return filtered_plan(
            call, "update", lambda flow: plan_update(flow.call, key, flow.item(item, [key]))
        )
    payload = complete_update(call, parse_payload(call, [item], Expects.PRESENT), [key])
    run = partial(_write_payload, call, payload)
    # A revert has a history action of its own, which only the transaction writes.
    if payload.related is not None or call.history_action:
        return WritePlan(run)
    return WritePlan(run, single_statement.plan_update(call, payload.root))


def plan_update_each(call: WriteCall, items: list[object]) -> WritePlan[WrittenItems]:
    """Change the items of an array, which hold their keys."""
    if has_filters(call, "update"):
        return filtered_plan(
            call, "update", lambda flow: plan_update_each(flow.call, flow.keyed_items(items))
        )
    return payload_plan(call, complete_each(call, items))


def complete_each(call: WriteCall, items: Sequence[object]) -> CompletePayload:
    """Return the payload of a change of items that hold their keys."""
    parser, parsed = parse_payload(call, items, Expects.PRESENT)
    key_field = parsed.key_field
    keys = [values.get(key_field) for values in parsed.row_values]
    # Going through all rows is left out where every key is there once, which is nearly always.
    if None in keys or len(set(keys)) < len(keys):
        _add_key_problems(call, parser, parsed)
    return call.complete(parser, parsed, StoredRows(dict(enumerate(keys))))


def _add_key_problems(call: WriteCall, parser: PayloadParser, parsed: ParsedSet) -> None:
    """Add a problem for each item without a key, and for each key that an item before it has."""
    seen: set[str] = set()
    for row in parsed.rows:
        key = row.values.get(parsed.key_field)
        reason = None
        if key is None:
            # A key that cannot be used has its own problem from parsing.
            if parsed.key_field not in row.invalid_fields:
                reason = MISSING_KEY
        elif key in seen:
            reason = REPEATED
        else:
            seen.add(key)
        if reason:
            problem = invalid_item(reason, call.collection.name, parsed.key_field)
            parser.problems.add(problem, row.position)


def plan_update_many(call: WriteCall, payload: Mapping[str, object]) -> WritePlan[WrittenItems]:
    """Give the items that `keys` or `query` name the values of `data`."""
    if has_filters(call, "update"):
        return filtered_plan(
            call, "update", lambda flow: plan_update_many(flow.call, flow.change(payload))
        )
    # Parsed before the transaction, so that hidden names are refused without one.
    parsed = parse_payload(call, [payload["data"]], Expects.PRESENT)
    return WritePlan(partial(_update_named, call, parsed, payload))


def _update_named(
    call: WriteCall,
    parsed: ParsedPayload,
    selection: Mapping[str, object],
    transaction: Transaction,
) -> WrittenItems:
    call, executor = call.in_transaction(transaction)
    keys = named_keys(executor, call.collection, selection)
    return _write_and_read(call, executor, complete_update(call, parsed, keys))


def plan_singleton(call: WriteCall, item: object) -> WritePlan[WrittenItems]:
    """Change the one item of a singleton, or create it."""
    return WritePlan(partial(_write_singleton, call, parse_payload(call, [item], Expects.ANY)))


def _write_singleton(
    call: WriteCall, parsed: ParsedPayload, transaction: Transaction
) -> WrittenItems:
    call, executor = call.in_transaction(transaction)
    return _write_and_read(call, executor, complete_singleton(call, executor, parsed))


def complete_singleton(
    call: WriteCall, executor: Executor, parsed: ParsedPayload
) -> CompletePayload:
    """Return the payload of a singleton, once it is known whether there is an item."""
    # An advisory lock, as there may be no row to lock: two calls would both create the one row.
    executor.transaction.run(locks.lock_singleton(call.collection))
    stored = executor.transaction.run(locks.singleton_key(call.collection))
    keys: dict[int, str | None] = {}
    if stored:
        key = str(single_value(stored))
        keys = dict.fromkeys(range(len(parsed.items.rows)), key)
        _check_singleton_key(call, parsed, key)
    stored_rows = StoredRows(keys)
    items = filtered_set(executor, parsed.parser, parsed.items, stored_rows)
    return call.complete(parsed.parser, items, stored_rows)


def _check_singleton_key(call: WriteCall, parsed: ParsedPayload, key: str) -> None:
    for row in parsed.items.rows:
        if row.values.get(parsed.items.key_field) not in (None, key):
            parsed.parser.problems.add(key_change_problem(call.collection), row.position)


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
    for row, key in zip(items.rows, keys, strict=True):
        if row.values.get(items.key_field) not in (None, key):
            parser.problems.add(key_change_problem(call.collection), WHOLE_ITEM)
            # Once for all keys: they share the one item that was sent.
            break
    return call.complete(parser, items, StoredRows(dict(enumerate(keys))))


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


def payload_plan(call: WriteCall, payload: CompletePayload) -> WritePlan[WrittenItems]:
    """Write a payload that is complete in a transaction."""
    return WritePlan(partial(_write_payload, call, payload))


def _write_payload(
    call: WriteCall, payload: CompletePayload, transaction: Transaction
) -> WrittenItems:
    call, executor = call.in_transaction(transaction)
    return _write_and_read(call, executor, payload)


# Deletes


def plan_delete(call: WriteCall, key: str) -> WritePlan[object]:
    """Delete the item of a key."""
    run = partial(_delete_item, call, key)
    # Flows can refuse it only in a transaction.
    if has_filters(call, "delete"):
        return WritePlan(run)
    return WritePlan(run, single_statement.plan_delete(call, key))


def plan_delete_many(call: WriteCall, selection: Mapping[str, object]) -> WritePlan[object]:
    """Delete the items that `keys` or `query` name."""
    return WritePlan(partial(_delete_named, call, selection))


def _delete_item(call: WriteCall, key: str, transaction: Transaction) -> None:
    call, executor = call.in_transaction(transaction)
    keys = as_stored(executor, call.collection, [key])
    delete_items(call, executor, list(keys.values()))


def _delete_named(
    call: WriteCall, selection: Mapping[str, object], transaction: Transaction
) -> None:
    call, executor = call.in_transaction(transaction)
    delete_items(call, executor, named_keys(executor, call.collection, selection))


def delete_items(call: WriteCall, executor: Executor, keys: Sequence[str]) -> None:
    """Delete the items of keys, as far as the caller may; one unknown key refuses them all."""
    fetch = executor.transaction.execute
    authorized = call.authorizer.authorize_delete(call.collection, keys, fetch)
    check_deletion(executor, call.collection, keys)
    run_plan(executor, plan_deletion(authorized))
    # Hooks look at what is left: deleting may not take the last administrator, for example.
    call.authorizer.run_after_hook(call.collection, fetch)


# If-Match


def with_item_precondition(
    call: WriteCall, plan: WritePlan[T], *, key: str, if_match: str | None
) -> WritePlan[T]:
    """Return a plan that runs only while an item has the version of an If-Match header, if any."""
    if if_match is None:
        return plan
    # Without `run_alone`: the version is compared under a lock, which takes a transaction.
    return WritePlan(partial(_run_if_item_matches, call, plan, key=key, if_match=if_match))


def _run_if_item_matches(
    call: WriteCall, plan: WritePlan[T], transaction: Transaction, *, key: str, if_match: str
) -> T:
    executor = call.in_transaction(transaction).executor
    check_match(executor, call.collection, key=key, if_match=if_match)
    return plan.run(transaction)


def with_singleton_precondition(
    call: WriteCall, plan: WritePlan[T], *, if_match: str
) -> WritePlan[T]:
    """Return a plan that runs only while a singleton has the version of an If-Match header."""
    return WritePlan(partial(_run_if_singleton_matches, call, plan, if_match=if_match))


def _run_if_singleton_matches(
    call: WriteCall, plan: WritePlan[T], transaction: Transaction, *, if_match: str
) -> T:
    executor = call.in_transaction(transaction).executor
    check_singleton(executor, call.collection, if_match=if_match)
    return plan.run(transaction)


# The answer


def _write_and_read(call: WriteCall, executor: Executor, payload: CompletePayload) -> WrittenItems:
    """Write a payload and return its items, in their order, as this caller may read them."""
    keys = write_tree(executor, call.authorizer, payload)
    if not keys:
        return []
    name = call.collection.name
    catalogue = executor.context.snapshot.catalogue
    policy = executor.context.actor.policy
    if view_of(name, catalogue=catalogue, policy=policy) is None:
        return None
    # The caller may write rows that it may not read: these are left out.
    items = executor.read_answer(name, call.parsed, keys)
    if len(items) < len(keys) and policy.is_admin:
        raise not_found()  # a trigger of the table may have moved or removed them
    return items or None
