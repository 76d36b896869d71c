"""Plans of writes that answer the keys of their items, whether or not the caller may read these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cms.database.connections import Transaction
from cms.items.write.calls import WriteCall
from cms.items.write.filtering import FlowFilter, filtered_plan, has_filters
from cms.items.write.nested import CompletePayload, write_tree
from cms.items.write.plans import (
    ParsedPayload,
    complete_each,
    complete_singleton,
    complete_update,
    delete_items,
    parse_payload,
)
from cms.items.write.stages.parsed import Expects
from cms.items.write.transaction.event_runs import json_keys
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.named_keys import named_keys
from cms.store.write_plan import WritePlan

AnsweredKeys = list[object]
"""Primary keys as answers show them."""


def plan_keyed_create(call: WriteCall, items: Sequence[object]) -> WritePlan[AnsweredKeys]:
    """Create items."""
    if has_filters(call, "create"):
        return filtered_plan(
            call, "create", lambda flow: plan_keyed_create(flow.call, flow.items(items))
        )
    payload = call.complete(*parse_payload(call, items, Expects.ABSENT))
    return WritePlan(partial(_write_payload, call, payload))


def plan_keyed_update(
    call: WriteCall, selection: Mapping[str, object], item: object
) -> WritePlan[AnsweredKeys]:
    """Give the items that `keys` or `query` name the values of a payload.

    The one item of a singleton needs no name.
    """
    # A singleton passes its flows later, when it is known whether there is an item.
    if call.collection.is_singleton:
        return _plan_keyed_singleton(call, item)
    if has_filters(call, "update"):
        change = {**selection, "data": item}
        return filtered_plan(call, "update", partial(_plan_filtered_update, change=change))
    parsed = parse_payload(call, [item], Expects.PRESENT)
    return WritePlan(partial(_update_named, call, parsed, selection))


def plan_keyed_update_each(call: WriteCall, items: Sequence[object]) -> WritePlan[AnsweredKeys]:
    """Change the items of a list, which hold their keys."""
    if has_filters(call, "update"):
        return filtered_plan(
            call,
            "update",
            lambda flow: plan_keyed_update_each(flow.call, flow.keyed_items(items)),
        )
    return WritePlan(partial(_write_payload, call, complete_each(call, items)))


def _plan_filtered_update(
    flow: FlowFilter, *, change: Mapping[str, object]
) -> WritePlan[AnsweredKeys]:
    filtered = flow.change(change)
    return plan_keyed_update(flow.call, {"keys": filtered["keys"]}, filtered["data"])


def _plan_keyed_singleton(call: WriteCall, item: object) -> WritePlan[AnsweredKeys]:
    parsed = parse_payload(call, [item], Expects.ANY)
    return WritePlan(partial(_write_singleton, call, parsed))


def plan_keyed_deletion(
    call: WriteCall, selection: Mapping[str, object]
) -> WritePlan[AnsweredKeys]:
    """Delete the items that `keys` or `query` name."""
    # Without `filtered_plan`: `delete_items` runs the flows, once the keys are known.
    return WritePlan(partial(_delete_named, call, selection))


# The runs


def _write_payload(
    call: WriteCall, payload: CompletePayload, transaction: Transaction
) -> AnsweredKeys:
    call, executor = call.in_transaction(transaction)
    return _write_tree(call, executor, payload)


def _write_tree(call: WriteCall, executor: Executor, payload: CompletePayload) -> AnsweredKeys:
    return json_keys(call.collection, write_tree(executor, call.authorizer, payload))


def _update_named(
    call: WriteCall,
    parsed: ParsedPayload,
    selection: Mapping[str, object],
    transaction: Transaction,
) -> AnsweredKeys:
    call, executor = call.in_transaction(transaction)
    keys = named_keys(executor, call.collection, selection)
    # Also for no item at all: problems of the payload are refused in any case.
    payload = complete_update(call, parsed, keys)
    if not keys:
        return []
    return _write_tree(call, executor, payload)


def _write_singleton(
    call: WriteCall, parsed: ParsedPayload, transaction: Transaction
) -> AnsweredKeys:
    call, executor = call.in_transaction(transaction)
    return _write_tree(call, executor, complete_singleton(call, executor, parsed))


def _delete_named(
    call: WriteCall, selection: Mapping[str, object], transaction: Transaction
) -> AnsweredKeys:
    call, executor = call.in_transaction(transaction)
    keys = named_keys(executor, call.collection, selection)
    delete_items(call, executor, keys)
    return json_keys(call.collection, keys)
