"""Which flows wait for which events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cms.schema.system import SYSTEM_PREFIX, is_system

ITEMS = "items"
AUTH = "auth"
ANY_COLLECTION = "*"


class Event(NamedTuple):
    """An event that flows wait for: `type` is filter or action, `verb` create, update and so on."""

    type: str
    verb: str


class CollectionEvents(NamedTuple):
    """The ids of the flows that wait for events of one collection, in the order of their creation.

    Without such flows `by_event` is empty.
    """

    by_event: Mapping[Event, tuple[str, ...]]

    def actions(self, verb: str) -> tuple[str, ...]:
        """Return the flows that run after a write of items."""
        return self.by_event.get(Event("action", verb), ())

    def filters(self, verb: str) -> tuple[str, ...]:
        """Return the flows that run before a write of items, inside its transaction."""
        return self.by_event.get(Event("filter", verb), ())


NO_EVENTS = CollectionEvents({})


class EventFlows(NamedTuple):
    """The active flows with an event trigger, by the collections whose events they wait for."""

    by_collection: Mapping[str, CollectionEvents]
    of_others: CollectionEvents = NO_EVENTS
    """For collections that no flow names: flows that wait for all collections but the system's."""

    def of(self, collection: str) -> CollectionEvents:
        """Return the flows that wait for events of a collection."""
        events = self.by_collection.get(collection)
        if events is not None:
            return events
        # The name is examined only where flows wait for all collections.
        if self.of_others.by_event and is_system(collection):
            return NO_EVENTS
        return self.of_others


NO_EVENT_FLOWS = EventFlows({})


class _Wait(NamedTuple):
    """A flow that waits for an event of a collection, or of `ANY_COLLECTION`."""

    flow: str
    collection: str
    event: Event


def event_flows(rows: object) -> EventFlows:
    """Return the event flows of a list of objects with `id` and `options`."""
    # [{"id": "…", "options": {"type": "action", "scope": ["items.create"], "collections": ["a"]}}]
    waits: list[_Wait] = []
    if isinstance(rows, list):
        for row in rows:
            waits += _waits(row)
    # `ANY_COLLECTION` is among them where a flow waits for all, and gets a list of its own.
    collections = {wait.collection for wait in waits}
    lists: dict[str, dict[Event, list[str]]] = {}
    for wait in waits:
        for collection in _collections_of(wait.collection, collections):
            flows = lists.setdefault(collection, {}).setdefault(wait.event, [])
            # The options of a flow may name the same event or collection twice, but it runs once.
            if wait.flow not in flows:
                flows.append(wait.flow)
    of_others = _frozen(lists.pop(ANY_COLLECTION, {}))
    by_collection = {name: _frozen(events) for name, events in lists.items()}
    return EventFlows(by_collection, of_others)


def _collections_of(name: str, collections: set[str]) -> Sequence[str]:
    """Return the collections of a name: one, or all collections of items that any flow names."""
    if name != ANY_COLLECTION:
        return [name]
    # `EventFlows.of` looks at one entry alone, so the entry of each named collection also holds the
    # flows of all collections. Those of the system run only for flows that name them.
    return [collection for collection in collections if not is_system(collection)]


def _frozen(events: Mapping[Event, list[str]]) -> CollectionEvents:
    return CollectionEvents({event: tuple(flows) for event, flows in events.items()})


def _waits(row: Mapping[str, Any]) -> Iterator[_Wait]:
    """Yield the events that a flow waits for."""
    options = row["options"] or {}
    for scope in options.get("scope") or ():
        subject, _, verb = scope.partition(".")
        event = Event(options.get("type", "action"), verb)
        # Logins are no writes of items: cms/auth/account_transactions.py finds their flows itself.
        if subject == AUTH:
            continue
        if subject != ITEMS:
            yield _Wait(row["id"], f"{SYSTEM_PREFIX}{subject}", event)
            continue
        for collection in options.get("collections") or [ANY_COLLECTION]:
            yield _Wait(row["id"], collection, event)
