"""What a process keeps in memory of the database, and how it learns that it is out of date (design, section 3)."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from cms.access.policy import Actor, Policy
from cms.query.estimate import Estimate
from cms.query.statement import Statement
from cms.schema.build import build
from cms.schema.model import Catalogue, Version
from cms.store.database import Row, Transaction
from cms.store.statements import statement

log = logging.getLogger("cms.store")

PLANS_KEPT = 2_000
ACTORS_KEPT = 5_000
PLANS_ROOM = 8_000_000
"""How many characters kept statements may have in all; one that opens everything is as long as hundreds."""

_LISTS = (
    "tables",
    "columns",
    "keys",
    "indexes",
    "checks",
    "collections",
    "fields",
    "relations",
    "extensions",
    "dropped",
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(Generic[V]):
    """What a cache holds under a key: how much it weighs, and when it was used last, as a number that grows."""

    __slots__ = ("used", "value", "weight")

    def __init__(self, value: V, weight: int, used: int) -> None:
        self.value = value
        self.weight = weight
        self.used = used


class Bounded(Generic[K, V]):
    """A cache of at most `bound` entries, of which those used longest ago make room; safe between threads.

    With `weigh` they weigh `room` at most, all together; one that is heavier is not kept.

    A hit is one look into a dict, without a lock. Many keys are whole queries, which take microseconds to hash;
    `cachetools.LRUCache` hashes the key of a hit twice, and so does an OrderedDict whose entry is moved to the end,
    both under a lock: that takes two to ten times as long. So an entry only notes its use, and what was used
    longest ago is looked for when the cache is full, for a sixteenth of it at once.
    """

    def __init__(self, bound: int, *, room: int = 0, weigh: Callable[[V], int] = lambda _: 0) -> None:
        self._bound = bound
        self._room = room
        self._weigh = weigh
        self._weight = 0
        self._entries: dict[K, _Entry[V]] = {}
        self._uses = itertools.count()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry, made when it is missing; threads that miss it together each make their own."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.used = next(self._uses)
            return entry.value
        value = make()
        with self._lock:
            self._keep(key, value)
        return value

    def _keep(self, key: K, value: V) -> None:
        weight = self._weigh(value)
        if weight > self._room:
            return
        self._forget(key)
        if not self._takes(weight):
            self._make_room(weight)
        self._entries[key] = _Entry(value, weight, next(self._uses))
        self._weight += weight

    def _takes(self, weight: int, *, spare: int = 0) -> bool:
        """Tell whether one more entry of this weight fits, and some entries and their share of the room stay free."""
        room = self._room - self._room * spare // self._bound
        return len(self._entries) < self._bound - spare and self._weight + weight <= room

    def _make_room(self, weight: int) -> None:
        spare = self._bound // 16
        for key, _ in sorted(self._entries.items(), key=lambda item: item[1].used):
            if self._takes(weight, spare=spare):
                return
            self._forget(key)

    def _forget(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight

    def __len__(self) -> int:
        return len(self._entries)


Plan = tuple[Statement, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The catalogue at one version, with the actors, policies and plans that were made under it and go with it."""

    version: Version
    catalogue: Catalogue
    mark: str
    """That of the structure: see `cms.store.watch`."""
    actors: Bounded[Hashable, Actor] = field(default_factory=lambda: Bounded(ACTORS_KEPT))
    policies: Bounded[str, Policy] = field(default_factory=lambda: Bounded(ACTORS_KEPT))
    said: Bounded[Hashable, Plan] = field(
        default_factory=lambda: Bounded(PLANS_KEPT, room=PLANS_ROOM, weigh=lambda plan: len(plan[0].text))
    )
    plans: Bounded[Hashable, Statement] = field(
        default_factory=lambda: Bounded(PLANS_KEPT, room=PLANS_ROOM, weigh=lambda statement: len(statement.text))
    )
    estimates: Bounded[Hashable, Estimate] = field(default_factory=lambda: Bounded(PLANS_KEPT))
    """What PostgreSQL expects of reads that could nest many rows."""
    kept: Bounded[Hashable, Any] = field(default_factory=lambda: Bounded(PLANS_KEPT))
    """What writes have found out of a collection: its rules, its duties, the readers of its items."""


class Snapshots:
    """The current snapshot of one process; loaded at first use and whenever the counters have moved.

    `moved` is called when it is of another structure than the one before.
    """

    def __init__(self, fetch: Callable[[str], list[Row]], *, moved: Callable[[], None] = lambda: None) -> None:
        self._fetch = fetch
        self._moved = moved
        self._current: Snapshot | None = None
        self._lock = threading.Lock()

    @property
    def loaded(self) -> Snapshot | None:
        """The snapshot at hand, none before the first use."""
        return self._current

    def current(self) -> Snapshot:
        """Return the snapshot at hand; whoever uses it compares the counters of the answer with its version."""
        return self._current or self.renew(None)

    def renew(self, stale: Snapshot | None) -> Snapshot:
        """Return a newer snapshot than the given one; threads that ask together load it once."""
        with self._lock:
            before = self._current
            if before is not None and before is not stale:
                return before
            current = self._with_other_rights(before) or self._loaded()
            self._current = current
            _warn_of_reserved(current, before)
            if before and before.version.structure != current.version.structure:
                self._moved()
            return current

    def _loaded(self) -> Snapshot:
        return _snapshot(self._fetch(statement("load_catalogue"))[0])

    def _with_other_rights(self, before: Snapshot | None) -> Snapshot | None:
        """Return a snapshot of the same structure where only rights have moved: loading it takes much longer."""
        now = Version(*self._fetch(statement("find_version"))[0]) if before else None
        if before is None or now is None or now == before.version or now.structure != before.version.structure:
            return None
        return Snapshot(now, before.catalogue, before.mark)


def _warn_of_reserved(current: Snapshot, before: Snapshot | None) -> None:
    """Log once which tables are no collections though somebody has made them."""
    for table in current.catalogue.reserved:
        if before is None or table not in before.catalogue.reserved:
            log.warning(
                'the table "%s" is no collection: names that start with "system_" are the service\'s own', table
            )


def load_within(transaction: Transaction) -> Snapshot:
    """Return the snapshot as a transaction sees it, its own changes included."""
    return _snapshot(transaction.execute(statement("load_catalogue"))[0])


def _snapshot(row: Row) -> Snapshot:
    structure, access, mark, *lists = row
    loaded: dict[str, Any] = {key: orjson.loads(raw) for key, raw in zip(_LISTS, lists, strict=True)}
    return Snapshot(Version(structure, access), build({"structure": structure, **loaded}), mark)
