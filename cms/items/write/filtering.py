"""Writes of collections with filter flows, which may change what is written.

The payload that the flows return is parsed, completed and authorized as if the caller had sent it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cms.errors import Refused
from cms.items.write.calls import WriteCall
from cms.items.write.item_filters import ItemFilter
from cms.items.write.stages.problems import (
    WHOLE_ITEM,
    PayloadPosition,
    key_change_problem,
    with_position,
)
from cms.items.write.transaction.event_runs import has_filter
from cms.items.write.transaction.named_keys import named_keys
from cms.mappings import without
from cms.schema.keys import sent_key, text_of_key


def has_filters(call: WriteCall, verb: str) -> bool:
    """Tell whether a call has to pass filter flows: before it creates, updates or deletes."""
    events = call.context.snapshot.events.of(call.collection.name)
    # Nearly all collections have none, and a call passes them once.
    if not events.by_event or call.is_filtered or call.client.depth is None:
        return False
    return has_filter(events, call.collection, verb)


class FlowFilter(NamedTuple):
    """The filter flows of one call, in its transaction; `call` is the call that goes on then."""

    call: WriteCall
    filters: ItemFilter
    verb: str

    def item(
        self,
        item: object,
        keys: Sequence[str] = (),
        position: PayloadPosition = WHOLE_ITEM,
    ) -> object:
        """Return an item as the flows change it; anything but an object is left to be refused."""
        if not isinstance(item, Mapping):
            return item
        filtered = self.filters.item(item, verb=self.verb, keys=keys, position=position)
        names = self.call.collection.key_names
        key = {name: item[name] for name in names if name in item}
        if self.verb != "update" or not key:
            return self.call.check_filtered(filtered)
        # The key of an item of an array only names it.
        if any(filtered.get(name, value) != value for name, value in key.items()):
            problem = key_change_problem(self.call.collection)
            raise Refused(with_position(problem, position))
        # The key goes back to its item, which is found by it.
        return {**key, **self.call.check_filtered(without(filtered, key))}

    def items(self, items: Sequence[object]) -> list[object]:
        """Return new items as the flows change them."""
        filtered: list[object] = []
        for index, item in enumerate(items):
            filtered.append(self.item(item, position=_position(items, index)))
        return filtered

    def keyed_items(self, items: Sequence[object]) -> list[object]:
        """Return items that hold their keys, as the flows change them."""
        collection = self.call.collection
        filtered = []
        for index, item in enumerate(items):
            key = sent_key(collection, item) if isinstance(item, Mapping) else None
            # Without a key the item is refused later, with all else that is wrong.
            if key is not None:
                keys = [text_of_key(key)]
                filtered.append(self.item(item, keys, _position(items, index)))
            else:
                filtered.append(item)
        return filtered

    def change(self, payload: Mapping[str, object]) -> Mapping[str, object]:
        """Return a change of items that `keys` or `query` name, `data` as the flows change it."""
        keys = list(named_keys(self.filters.executor, self.call.collection, payload))
        # By keys from here on: after the flows, a query might select other items.
        return {"keys": keys, "data": self.item(payload["data"], keys)}


def _position(items: Sequence[object], index: int) -> PayloadPosition:
    if len(items) > 1:
        return PayloadPosition(index)
    return WHOLE_ITEM


def flow_filter(call: WriteCall, verb: str) -> FlowFilter | None:
    """Return the filter flows that a call has to pass, in its transaction; None without any."""
    if not has_filters(call, verb):
        return None
    call, executor = call.begun()
    events = call.context.snapshot.events.of(call.collection.name)
    filters = ItemFilter(executor, call.collection, events)
    return FlowFilter(call._replace(is_filtered=True), filters, verb)
