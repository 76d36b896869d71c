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
from cms.database.connections import Row, Transaction
from cms.database.statements import statement
from cms.query.plan.estimate import Estimate
from cms.query.sql.statement import Statement
from cms.schema.build import build_catalogue
from cms.schema.model import Catalogue, Version

log = logging.getLogger("cms.store")

MAX_STATEMENTS = 2_000
MAX_ACTORS = 5_000
MAX_STATEMENT_CHARACTERS = 8_000_000
"""How many characters kept statements may have in all; one that opens everything is as long as hundreds."""

_CATALOGUE_LISTS = (
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

PreparedRead = tuple[Statement, tuple[object, ...]]


def _statement_weight(statement: Statement) -> int:
    """A short one counts for as much as lets only PLANS_KEPT stay; one of more than all room takes it all."""
    return min(
        max(len(statement.text), MAX_STATEMENT_CHARACTERS // MAX_STATEMENTS),
        MAX_STATEMENT_CHARACTERS,
    )


def _statement_cache() -> LRUCache[Hashable, Statement]:
    return LRUCache(
        MAX_STATEMENT_CHARACTERS, getsizeof=lambda _, statement: _statement_weight(statement)
    )


def _read_cache() -> LRUCache[Hashable, PreparedRead]:
    return LRUCache(MAX_STATEMENT_CHARACTERS, getsizeof=lambda _, plan: _statement_weight(plan[0]))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The catalogue at one version, with the actors, policies and plans that were made under it and go with it."""

    version: Version
    catalogue: Catalogue
    fingerprint: str
    """That of the structure: see `cms.store.foreign_changes`."""
    actors: LRUCache[Hashable, Actor] = field(default_factory=lambda: LRUCache(MAX_ACTORS))
    policies: LRUCache[str, Policy] = field(default_factory=lambda: LRUCache(MAX_ACTORS))
    prepared_reads: LRUCache[Hashable, PreparedRead] = field(default_factory=_read_cache)
    statements: LRUCache[Hashable, Statement] = field(default_factory=_statement_cache)
    estimates: LRUCache[Hashable, Estimate] = field(
        default_factory=lambda: LRUCache(MAX_STATEMENTS)
    )
    """What PostgreSQL expects of reads that could nest many rows."""
    derived: LRUCache[Hashable, Any] = field(default_factory=lambda: LRUCache(MAX_STATEMENTS))
    """What writes have found out of a collection: its rules, its duties, the readers of its items."""


class Snapshots:
    """The current snapshot of one process; loaded at first use and whenever the counters have moved.

    `on_structure_change` is called when it is of another structure than the one before.
    """

    def __init__(
        self,
        fetch: Callable[[str], list[Row]],
        *,
        on_structure_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._fetch = fetch
        self._moved = on_structure_change
        self._current: Snapshot | None = None
        self._lock = threading.Lock()

    @property
    def loaded(self) -> Snapshot | None:
        """The snapshot at hand, none before the first use."""
        return self._current

    def current(self) -> Snapshot:
        """Return the snapshot at hand; whoever uses it compares the counters of the answer with its version."""
        return self._current or self.refresh(None)

    def refresh(self, stale: Snapshot | None) -> Snapshot:
        """Return a newer snapshot than the given one; threads that ask together load it once."""
        with self._lock:
            before = self._current
            if before is not None and before is not stale:
                return before
            current = self._with_new_rights(before) or self._load()
            self._current = current
            _warn_about_reserved_tables(current, before)
            if before and before.version.structure != current.version.structure:
                self._moved()
            return current

    def _load(self) -> Snapshot:
        return _snapshot(self._fetch(statement("load_catalogue"))[0])

    def _with_new_rights(self, before: Snapshot | None) -> Snapshot | None:
        """Return a snapshot of the same structure where only rights have moved: loading it takes much longer."""
        now = Version(*self._fetch(statement("find_version"))[0]) if before else None
        if (
            before is None
            or now is None
            or now == before.version
            or now.structure != before.version.structure
        ):
            return None
        return Snapshot(now, before.catalogue, before.fingerprint)


def _warn_about_reserved_tables(current: Snapshot, before: Snapshot | None) -> None:
    """Log once which tables are no collections though somebody has made them."""
    for table in current.catalogue.reserved_tables:
        if before is None or table not in before.catalogue.reserved_tables:
            log.warning(
                'the table "%s" is no collection: names that start with "system_" are the service\'s own',
                table,
            )


def load_snapshot(transaction: Transaction) -> Snapshot:
    """Return the snapshot as a transaction sees it, its own changes included."""
    return _snapshot(transaction.execute(statement("load_catalogue"))[0])


def _snapshot(row: Row) -> Snapshot:
    structure, access, fingerprint, *lists = row
    loaded: dict[str, Any] = {
        key: jsontext.loads_stored(raw) for key, raw in zip(_CATALOGUE_LISTS, lists, strict=True)
    }
    return Snapshot(
        Version(structure, access), build_catalogue({"structure": structure, **loaded}), fingerprint
    )
