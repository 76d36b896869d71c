"""Snapshots: the catalogue of the database in the memory of a process, and when it is reloaded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from cachebox import LRUCache

from cms import jsontext
from cms.access.policy import Actor, Policy
from cms.access.recorded_lookups import changed_collections
from cms.caches import bounded_cache, weight_of
from cms.database.connections import Fetch, Row, Transaction
from cms.database.statements import statement
from cms.processes.memory import note_memory_use
from cms.query.sql.statement import Statement
from cms.schema.build import NO_STRUCTURE, Structure, build_structure
from cms.schema.model import Catalogue, Version
from cms.store.current_version import current_version
from cms.store.event_flows import NO_EVENT_FLOWS, EventFlows, event_flows

log = logging.getLogger("cms.store")

MAX_ACTORS = 5_000
MAX_PERMISSIONS_BYTES = 8_000_000
"""Bytes of the permissions that cached policies are made of."""
MAX_DOCUMENT_BYTES = 16_000_000
"""Bytes of the cached descriptions of a snapshot for its callers."""

_CATALOGUE_LISTS = (
    "fingerprints",
    "tables",
    "columns",
    "keys",
    "parts",
    "actions",
    "indexes",
    "search_indexes",
    "nondeterministic_columns",
    "builds",
    "checks",
    "collections",
    "fields",
    "relations",
    "extensions",
    "dropped",
    "service_tables",
)
"""The lists that the statement `load_catalogue` returns as JSON, in the order of its columns."""

PreparedRead = tuple[Statement, tuple[object, ...]]
"""A finished statement, and the literals of the request that it was compiled for."""


MAX_STATEMENTS = 2_000
MAX_STATEMENT_CHARACTERS = 8_000_000
"""Weight of all cached statements: one with many relations is as long as hundreds of others."""


class CachedStatement(NamedTuple):
    """A statement, and the literals of the read that it was made for.

    It is the same as long as none of the collections changes that were `looked_up` for it; None for
    one that may depend on all of the structure. Other rights are another key.
    """

    statement: Statement
    looked_up: Set[str] | None
    literals: tuple[object, ...] = ()

    def outlives(self, changed: Set[str]) -> bool:
        """Tell whether the statement is the same after these collections have changed."""
        return self.looked_up is not None and self.looked_up.isdisjoint(changed)


StatementCache = LRUCache[Hashable, CachedStatement]


def statement_cache() -> StatementCache:
    """Return an empty cache of statements."""
    return LRUCache(MAX_STATEMENT_CHARACTERS, getsizeof=_weight)


def _weight(key: Hashable, cached: CachedStatement) -> int:
    """Return the share of the cache that a statement takes, with its key and its literals.

    The weight of a short one is so high that at most `MAX_STATEMENTS` stay. One that is longer than
    the cache weighs as much as all of it, or the cache would not take it.
    """
    lowest_weight = MAX_STATEMENT_CHARACTERS // MAX_STATEMENTS
    weight = len(cached.statement.text) + weight_of(key) + weight_of(cached.literals)
    return min(max(weight, lowest_weight), MAX_STATEMENT_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The catalogue at one version of the counters, with the caches that depend on it.

    A new version is a new snapshot, so that nothing in the caches is ever out of date. They begin
    with what still holds of those before (`_carried_over`).
    """

    version: Version
    structure: Structure
    fingerprint: str
    """The fingerprint of the structure: see `cms.store.foreign_changes`."""
    events: EventFlows = NO_EVENT_FLOWS
    actors: LRUCache[Hashable, Actor] = field(default_factory=lambda: LRUCache(MAX_ACTORS))
    policies: LRUCache[Hashable, Policy] = field(
        default_factory=lambda: bounded_cache(MAX_PERMISSIONS_BYTES, lambda _: 0)
    )
    """Policies by all that they are made of, so that they are the same under any snapshot."""
    share_actors: LRUCache[Hashable, Actor] = field(default_factory=lambda: LRUCache(MAX_ACTORS))
    """Callers with a token of a share, whose policies belong to one structure."""
    share_policies: LRUCache[str, Policy] = field(default_factory=lambda: LRUCache(MAX_ACTORS))
    prepared_reads: StatementCache = field(default_factory=statement_cache)
    """Statements by the query strings of reads."""
    statements: StatementCache = field(default_factory=statement_cache)
    """Statements of reads by their queries."""
    write_statements: StatementCache = field(default_factory=statement_cache)
    """Statements of writes by their shapes."""
    derived: LRUCache[Hashable, Any] = field(default_factory=lambda: LRUCache(MAX_STATEMENTS))
    """Values that writes derive from the fields of a collection: rules, parsers and so on.
    """
    documents: LRUCache[Hashable, bytes] = field(
        default_factory=lambda: bounded_cache(MAX_DOCUMENT_BYTES)
    )
    """Descriptions of the service for callers: OpenAPI, types of clients."""

    catalogue: Catalogue = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "catalogue", self.structure.catalogue)

    def statement_texts(self) -> Set[str]:
        """Return the texts of all cached statements."""
        texts: set[str] = set()
        # Copies, because other threads change the caches meanwhile.
        for cache in (self.prepared_reads, self.statements, self.write_statements):
            texts.update(cached.statement.text for cached in cache.copy().values())
        return texts


class Snapshots:
    """The current snapshot of one process, loaded at first use and when the counters have moved.

    `on_structure_change` is called when a new snapshot has another structure than the one before,
    with the texts of the statements that have not changed.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        on_structure_change: Callable[[Set[str]], None] = lambda texts: None,
    ) -> None:
        self._fetch = fetch
        self._on_structure_change = on_structure_change
        self._current: Snapshot | None = None
        # Held while loading, so that threads that need a newer snapshot load it together.
        self._lock = threading.Lock()

    @property
    def loaded(self) -> Snapshot | None:
        """The snapshot in memory, None before the first use."""
        return self._current

    def current(self) -> Snapshot:
        """Return the snapshot in memory, which may be out of date.

        Every answer comes with the counters, which are compared with the snapshot's version.
        """
        # No lock is taken: reading one attribute is atomic, and every request comes here.
        return self._current or self.refresh(None)

    def refresh(self, stale: Snapshot | None) -> Snapshot:
        """Return a newer snapshot than the stale one."""
        with self._lock:
            before = self._current
            # Another thread has loaded a newer one while this one waited for the lock.
            if before is not None and before is not stale:
                return before
            current = self._with_same_structure(before) or self._load(before)
            return self._replace(before, current)

    def adopt(self, snapshot: Snapshot) -> None:
        """Take a snapshot that a transaction has loaded after its last change of structure.

        It must be committed by now, and have locked the counters: these stand for what it loaded.
        """
        with self._lock:
            before = self._current
            if before is None or before.version.structure < snapshot.version.structure:
                self._replace(before, snapshot)

    def _replace(self, before: Snapshot | None, current: Snapshot) -> Snapshot:
        if before is not None:
            current = _carried_over(before, current)
        self._current = current
        _warn_about_reserved_tables(current, before)
        # Other prepared statements of the former structure are hardly used again.
        if before and before.version.structure != current.version.structure:
            self._on_structure_change(current.statement_texts())
        return current

    def _load(self, before: Snapshot | None) -> Snapshot:
        # One statement, so that the counters and all lists are of the same moment.
        rows = self._fetch(statement("load_catalogue"), (_collection_fingerprints(before),))
        return _snapshot(rows[0], before)

    def _with_same_structure(self, before: Snapshot | None) -> Snapshot | None:
        """Return a snapshot with the same catalogue if only rights or flows have changed.

        To load the catalogue takes much longer.
        """
        if before is None:
            return None
        now = current_version(self._fetch)
        # With equal counters the snapshot is stale for another reason (PostgreSQL did not know a
        # name or a type of a statement), so it is loaded anew.
        if now == before.version or now.structure != before.version.structure:
            return None
        if now.flows == before.version.flows:
            return _with_rights(now, before, before.events)
        # The counters may move again meanwhile. Then the flows are newer than `now`, and the next
        # request, which meets the newer counters, loads them once more.
        events = _event_flows(self._fetch(statement("find_event_flows"), ())[0][0])
        current = _with_rights(now, before, events)
        if now.access != before.version.access:
            return current
        # Reads and rights do not depend on flows. Callers are carried over.
        return replace(
            current,
            share_actors=before.share_actors,
            share_policies=before.share_policies,
            documents=before.documents,
        )


def _with_rights(version: Version, before: Snapshot, events: EventFlows) -> Snapshot:
    """Return a snapshot of the same structure: the keys of statements name the rights."""
    return Snapshot(
        version,
        before.structure,
        before.fingerprint,
        events,
        prepared_reads=before.prepared_reads,
        statements=before.statements,
        write_statements=before.write_statements,
    )


def _carried_over(before: Snapshot, current: Snapshot) -> Snapshot:
    """Return a new snapshot, with the valid entries of the one before in its caches.

    After a change of structure these are the statements for which no changed collection was looked
    up. After a change of rights they are all: their keys name the policies by what these grant.
    """
    # If the counters are the same, the snapshot before was found stale for another reason.
    if current.version == before.version:
        return current
    # Snapshots of one structure share their statements.
    if current.structure is not before.structure:
        changed = changed_collections(before.catalogue, current.catalogue)
        _carry_statements(before.prepared_reads, current.prepared_reads, changed)
        _carry_statements(before.statements, current.statements, changed)
        _carry_statements(before.write_statements, current.write_statements, changed)
    return _with_callers(before, current)


def _carry_statements(old: StatementCache, new: StatementCache, changed: Set[str]) -> None:
    # The statements that were used longest ago come first, so they are still the first to be
    # dropped.
    for key, cached in old.copy().items():
        if cached.outlives(changed):
            new.setdefault(key, cached)


def _with_callers(before: Snapshot, current: Snapshot) -> Snapshot:
    """Return a snapshot with the policies of the one before, and with its callers if it may.

    To look up a caller with many permissions, and to parse these, takes longer than to load a
    changed collection. Both snapshots then share the caches.
    """
    current = replace(current, policies=before.policies)
    if before.version.access != current.version.access:
        return current
    return replace(current, actors=before.actors)


def _warn_about_reserved_tables(current: Snapshot, before: Snapshot | None) -> None:
    """Log each table that is new and is no collection because of its name."""
    for table in current.catalogue.reserved_tables:
        if before is None or table not in before.catalogue.reserved_tables:
            log.warning(
                'the table "%s" is no collection: '
                'names that start with "system_" are the service\'s own',
                table,
            )


def load_snapshot(transaction: Transaction, *, before: Snapshot | None = None) -> Snapshot:
    """Return a snapshot as a transaction sees the database, its own changes included.

    Only collections that differ from those of `before`, or of the last snapshot that this
    transaction has loaded, are loaded.
    """
    cached = transaction.loaded.get("snapshot")
    if isinstance(cached, Snapshot):
        return cached
    last = transaction.last_loaded.get("snapshot")
    if isinstance(last, Snapshot):
        before = last
    # Not kept for the process yet: the transaction may still be rolled back.
    rows = transaction.read(statement("load_catalogue"), (_collection_fingerprints(before),))
    snapshot = _snapshot(rows[0], before)
    transaction.loaded["snapshot"] = snapshot
    transaction.last_loaded["snapshot"] = snapshot
    return snapshot


def snapshot_after_advance(
    transaction: Transaction, version: Version, *, before: Snapshot | None
) -> Snapshot:
    """Return the snapshot of a transaction that has only moved the counter of structure so far.

    Loading the structure takes long. It is that of `before` if all counters were the same and no
    other program has changed it since.
    """
    if before is not None and before.version == version._replace(structure=version.structure - 1):
        ((_, fingerprint),) = transaction.execute(statement("find_fingerprint"))
        if fingerprint == before.fingerprint:
            snapshot = Snapshot(version, before.structure, fingerprint, before.events)
            transaction.last_loaded["snapshot"] = snapshot
            return snapshot
    return load_snapshot(transaction, before=before)


def _collection_fingerprints(before: Snapshot | None) -> str:
    """Return the fingerprints of collections that are in memory, as JSON."""
    if before is None:
        return "{}"
    return jsontext.dumps(before.structure.fingerprints).decode()


def _snapshot(row: Row, before: Snapshot | None) -> Snapshot:
    # The columns of the statement `load_catalogue`.
    structure, access, flows, fingerprint, events, *lists = row
    texts = dict(zip(_CATALOGUE_LISTS, lists, strict=True))
    note_memory_use(sum(map(len, lists)))

    def loaded(name: str) -> Any:
        return jsontext.loads_stored(texts[name])

    version = Version(structure, access, flows)
    built = build_structure(structure, loaded, before.structure if before else NO_STRUCTURE)
    return Snapshot(version, built, fingerprint, _event_flows(events))


def _event_flows(raw: str | None) -> EventFlows:
    if raw is None:
        return NO_EVENT_FLOWS
    return event_flows(jsontext.loads_stored(raw))
