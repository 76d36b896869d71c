"""What a process keeps in memory of the database, and how it learns that it is out of date (design, section 3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from cachebox import LRUCache

from cms import jsontext
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
    "parts",
    "actions",
    "indexes",
    "checks",
    "collections",
    "fields",
    "relations",
    "extensions",
    "dropped",
)

Plan = tuple[Statement, tuple[object, ...]]


def _weight(statement: Statement) -> int:
    """A short one counts for as much as lets only PLANS_KEPT stay; one of more than all room takes it all."""
    return min(max(len(statement.text), PLANS_ROOM // PLANS_KEPT), PLANS_ROOM)


def _statements() -> LRUCache[Hashable, Statement]:
    return LRUCache(PLANS_ROOM, getsizeof=lambda _, statement: _weight(statement))


def _plans() -> LRUCache[Hashable, Plan]:
    return LRUCache(PLANS_ROOM, getsizeof=lambda _, plan: _weight(plan[0]))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The catalogue at one version, with the actors, policies and plans that were made under it and go with it."""

    version: Version
    catalogue: Catalogue
    mark: str
    """That of the structure: see `cms.store.watch`."""
    actors: LRUCache[Hashable, Actor] = field(default_factory=lambda: LRUCache(ACTORS_KEPT))
    policies: LRUCache[str, Policy] = field(default_factory=lambda: LRUCache(ACTORS_KEPT))
    said: LRUCache[Hashable, Plan] = field(default_factory=_plans)
    plans: LRUCache[Hashable, Statement] = field(default_factory=_statements)
    estimates: LRUCache[Hashable, Estimate] = field(default_factory=lambda: LRUCache(PLANS_KEPT))
    """What PostgreSQL expects of reads that could nest many rows."""
    kept: LRUCache[Hashable, Any] = field(default_factory=lambda: LRUCache(PLANS_KEPT))
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
    loaded: dict[str, Any] = {key: jsontext.stored(raw) for key, raw in zip(_LISTS, lists, strict=True)}
    return Snapshot(Version(structure, access), build({"structure": structure, **loaded}), mark)
