"""Writes of collections with filter flows: what is written is what the flows make of it.

Such a write is planned in its transaction. What the flows return is parsed, completed and
authorized as if it had been sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from cms.database.connections import Transaction
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.calls import WriteCall
from cms.items.write.named_keys import named_keys
from cms.store.payload_filter import FilterEvent
from cms.store.write_plan import WritePlan

T = TypeVar("T")


class FilterFlows(NamedTuple):
    """The ids of the flows that a write has to pass, and its verb: create, update or delete."""

    ids: tuple[str, ...]
    verb: str


def filter_flows(call: WriteCall, verb: str) -> FilterFlows | None:
    """Return the flows that a call has to pass; None without any, or once it has passed them."""
    events = call.context.snapshot.events.of(call.collection.name)
    # Nearly all collections have none.
    if not events or call.is_filtered or call.client.depth is None:
        return None
    ids = events.filters(verb)
    return FilterFlows(ids, verb) if ids else None


class FlowFilter(NamedTuple):
    """The filter flows of one call, in its transaction; `call` is the call that is planned then."""

    call: WriteCall
    event: FilterEvent

    def item(self, item: object, keys: Sequence[object] = ()) -> object:
        """Return what flows make of an item; anything but an object is left to be refused."""
        if not isinstance(item, Mapping):
            return item
        return self.call.store.payload_filter(self.event, dict(item), keys)

    def items(self, items: Sequence[object]) -> list[object]:
        """Return what flows make of new items."""
        return [self.item(item) for item in items]

    def keyed_items(self, items: Sequence[object]) -> list[object]:
        """Return what flows make of items that hold their keys."""
        name = self.call.collection.primary_key
        filtered = []
        for item in items:
            # A key that is missing is refused later, with all else that is wrong.
            keys = [item[name]] if isinstance(item, Mapping) and name in item else []
            filtered.append(self.item(item, keys))
        return filtered

    def change(self, payload: Mapping[str, object]) -> Mapping[str, object]:
        """Return a change of items that `keys` or `query` name, with what flows make of `data`."""
        keys = self._named_keys(payload)
        return {"keys": keys, "data": self.item(payload["data"], keys)}

    def deletion(self, selection: Mapping[str, object]) -> Mapping[str, object]:
        """Return the deletion of items that `keys` or `query` name, which flows may refuse."""
        keys = self._named_keys(selection)
        self.check_deletion(keys)
        return {"keys": keys}

    def check_deletion(self, keys: Sequence[str]) -> None:
        """Raise `Refused` where a flow refuses that items are deleted."""
        self.call.store.payload_filter(self.event, list(keys), keys)

    def _named_keys(self, selection: Mapping[str, object]) -> list[str]:
        executor = self.call.executor(self.event.transaction)
        return list(named_keys(executor, self.call.collection, selection))


def filtered_plan(
    call: WriteCall, flows: FilterFlows, plan: Callable[[FlowFilter], WritePlan[T]]
) -> WritePlan[T]:
    """Return a write that `plan` plans in its transaction, where its flows can run."""
    return WritePlan(partial(_run_filtered, call, flows, plan))


def _run_filtered(
    call: WriteCall,
    flows: FilterFlows,
    plan: Callable[[FlowFilter], WritePlan[T]],
    transaction: Transaction,
) -> T:
    context = call.context._replace(fetch=transaction.execute)
    authorizer = WriteAuthorizer(call.store, context)
    filtered = call._replace(context=context, authorizer=authorizer, is_filtered=True)
    event = FilterEvent(
        transaction, context, call.client, flows.ids, call.collection.name, flows.verb
    )
    return plan(FlowFilter(filtered, event)).run(transaction)
