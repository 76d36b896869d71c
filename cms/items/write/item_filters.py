"""The filter flows of items that are about to be written, run in the transaction of the write.

Writes of related items, imports, singletons and files come here once it is known which items are
new; so do deletions. The items that other calls name go through their flows before they are parsed
(cms/items/write/filtering.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from cms.errors import Refused
from cms.hashing.passwords import hashing_again
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.parse.payload_parser import PayloadParser
from cms.items.write.stages.parsed import ParsedRow, ParsedSet
from cms.items.write.stages.problems import (
    WHOLE_ITEM,
    PayloadPosition,
    key_change_problem,
    with_position,
)
from cms.items.write.stages.resolved_rows import StoredRows
from cms.items.write.transaction.event_runs import event_verbs, has_filter, json_keys
from cms.items.write.transaction.executor import Executor
from cms.schema.model import Collection
from cms.store.event_flows import CollectionEvents
from cms.store.table_hooks import FilterEvent

_NO_VALUES: Mapping[int, str] = {}


class ItemFilter(NamedTuple):
    """The filter flows for a write to items of one collection.

    `checks_rights` is not set where the service writes on behalf of a caller without permissions.
    """

    executor: Executor
    collection: Collection
    events: CollectionEvents
    checks_rights: bool = True

    def waits_for(self, verb: str) -> bool:
        """Tell whether any flow waits for create, update or delete."""
        return has_filter(self.events, self.collection, verb)

    def item(
        self,
        item: Mapping[str, object],
        *,
        verb: str,
        keys: Sequence[str] = (),
        position: PayloadPosition = WHOLE_ITEM,
    ) -> Mapping[str, object]:
        """Return an item as the flows change it; raises `Refused` with its position."""
        payload: object = dict(item)
        if not self.waits_for(verb):
            return item
        try:
            # First: a later refusal would not undo the effects of a flow, such as a mail.
            if self.checks_rights:
                self._check_rights(keys, verb=verb)
            for event_verb in event_verbs(self.collection, verb):
                payload = self._run(payload, keys, verb=event_verb)
        except Refused as refused:
            locate = partial(with_position, position=position)
            raise refused.map_problems(locate) from refused
        assert isinstance(payload, Mapping)
        return payload

    def _check_rights(self, keys: Sequence[str], *, verb: str) -> None:
        executor = self.executor
        authorizer = WriteAuthorizer(executor.store, executor.context)
        authorizer.check_before_flows(self.collection, keys, verb, executor.transaction.execute)

    def check_deletion(self, keys: Sequence[str]) -> None:
        """Raise `Refused` where a flow refuses that items are deleted."""
        self._run(json_keys(self.collection, keys), keys, verb="delete")

    def _run(self, payload: object, keys: Sequence[str], *, verb: str) -> object:
        flows = self.events.filters(verb)
        if not flows:
            return payload
        executor = self.executor
        event = FilterEvent(
            executor.transaction,
            executor.context,
            executor.client,
            flows,
            self.collection.name,
            verb,
        )
        payload_filter = executor.store.payload_filter
        return payload_filter(event, payload, json_keys(self.collection, keys))


def item_filter(executor: Executor, collection: Collection) -> ItemFilter | None:
    """Return the filter flows of a collection; None where it has none."""
    events = executor.context.snapshot.events.of(collection.name)
    # Nearly all collections have none.
    if not events.by_event or executor.client.depth is None:
        return None
    return ItemFilter(executor, collection, events)


def check_deletion(executor: Executor, collection: Collection, keys: Sequence[str]) -> None:
    """Raise `Refused` where a flow refuses that items are deleted."""
    filters = item_filter(executor, collection)
    if filters and keys:
        filters.check_deletion(keys)


def filtered_set(
    executor: Executor,
    parser: PayloadParser,
    parsed: ParsedSet,
    stored: StoredRows,
    *,
    owner_values: Mapping[int, str] = _NO_VALUES,
) -> ParsedSet:
    """Return a set with its rows as the flows change them; rows keep their numbers.

    `owner_values` are what elements of lists hold in the field that points to their owner, by the
    owners' numbers. A payload that is refused already passes no flows.
    """
    filters = item_filter(executor, parsed.collection)
    if filters is None or parser.problems.entries:
        return parsed
    filtering = _SetFilter(filters, parsed, stored, owner_values)
    items: dict[int, Mapping[str, object]] = {}
    for number in range(len(parsed.rows)):
        if filtering.is_waited_for(number):
            items[number] = filtering.item(number)
    if not items:
        return parsed
    # Checked as if the flows had sent the items: what they return may be invalid, too.
    with hashing_again(in_vain=False):
        filtered = parser.parse_again(parsed, items)
    _refuse_other_keys(parser, parsed, filtered, stored)
    return filtered


class _SetFilter(NamedTuple):
    """The rows of a set on their way through its flows."""

    filters: ItemFilter
    parsed: ParsedSet
    stored: StoredRows
    owner_values: Mapping[int, str]

    def is_waited_for(self, number: int) -> bool:
        """Tell whether flows wait for the event of a row."""
        return self.filters.waits_for(self._verb(number)) and self._is_written(number)

    def item(self, number: int) -> Mapping[str, object]:
        """Return a row as the flows change it."""
        row = self.parsed.rows[number]
        key = self.stored.keys.get(number)
        # Flows see an element of a list like an item that names its owner itself.
        payload = {**row.sent, **self._owner_reference(row)}
        keys = [] if key is None else [key]
        item = self.filters.item(payload, verb=self._verb(number), keys=keys, position=row.position)
        filtered: dict[str, object] = {}
        for name, value in item.items():
            # The reference to the owner was only shown: the list sets it, and nobody has sent it.
            if name in row.sent or payload.get(name) != value:
                filtered[name] = value
        return filtered

    def _verb(self, number: int) -> str:
        return "update" if number in self.stored.keys else "create"

    def _is_written(self, number: int) -> bool:
        """Tell whether a row is changed: related items may be named by their keys only."""
        # New rows are written in any case, and so are the items of the call.
        if number not in self.stored.keys or not self.parsed.level:
            return True
        row = self.parsed.rows[number]
        return bool(self.stored.changes(self.parsed.collection, number, row.values))

    def _owner_reference(self, row: ParsedRow) -> dict[str, object]:
        """Return the value of a list element in the field that points to its owner."""
        owner = row.owner
        if owner is None or owner.field is None or owner.number not in self.owner_values:
            return {}
        field = owner.field
        # As reads show the value: a number, and not the text of one.
        return {field.name: field.type.read_default(self.owner_values[owner.number])}


def _refuse_other_keys(
    parser: PayloadParser, parsed: ParsedSet, filtered: ParsedSet, stored: StoredRows
) -> None:
    collection = parsed.collection
    for number, key in stored.keys.items():
        row = filtered.rows[number]
        values = parsed.rows[number].values
        stored_values = {} if key is None else collection.key_values(key)
        for name in collection.key_names:
            value = row.values.get(name)
            # A flow may put another key into an item, which stays the one that was named.
            if value not in (None, values.get(name), stored_values.get(name)):
                parser.problems.add(key_change_problem(collection), row.position)
