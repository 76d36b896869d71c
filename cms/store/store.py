"""The store: every request reaches the database through it, under fresh structure and rights."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any

from cms.config import Config
from cms.database.connections import Database, single_values
from cms.database.statements import statement
from cms.hashing.passwords import Passwords
from cms.processes.slots import WaitSlots
from cms.query.language.paging import PageSizes
from cms.store.attempts import ATTEMPTS, ReadAttempt, Retries
from cms.store.foreign_changes import ForeignChangeMonitor, SnapshotSource
from cms.store.idempotency import Idempotency, StoredAnswer, find_stored_answer, lock_key
from cms.store.identity import Identity
from cms.store.json_path_record import JsonPathRecord
from cms.store.recent_writers import RecentWriters
from cms.store.refusals import without_success
from cms.store.replica import Replica
from cms.store.snapshot import Snapshot, Snapshots
from cms.store.table_hooks import PayloadFilter, TableHooks, no_filter
from cms.store.write_attempts import StructureChange, Write, require_admin


class Store:
    """The database of one application, with its process's snapshot of the structure."""

    def __init__(
        self,
        config: Config,
        database: Database | None = None,
        *,
        hooks: Mapping[str, TableHooks],
        writers: RecentWriters | None = None,
        secret: str = "",
        wait_slots: WaitSlots | None = None,
    ) -> None:
        self.database = database or Database(config)
        self.passwords = Passwords(
            config.hash_parameters,
            other_prefixes=partial(_other_prefixes, self.database),
            wait_slots=wait_slots,
        )
        self.hooks = hooks
        """The hooks of writes, by collection."""
        self.writers = writers
        """Callers who must not read from the replica, where there is one."""
        self.cursor_secret = hmac.digest(secret.encode(), b"cursors", "sha256")
        self.json_path_record = JsonPathRecord(self.database)
        self.page = PageSizes(config.query_limit_default, config.query_limit_max)
        self.depth = config.max_relational_depth
        self.max_answer_size = config.max_answer_size
        self.statement_timeout = config.db_statement_timeout
        self.payload_filter: PayloadFilter = no_filter
        on_structure_change = self.database.discard_prepared
        # A replica may lag behind: structure and rights are those of the primary.
        self._reader = self.database.reader
        self._replica: Replica | None = None
        if self.database.has_replica:
            self._reader = self.database.primary
            self._replica = Replica(self.database, writers, on_structure_change=on_structure_change)
        self.snapshots = Snapshots(self._reader.fetch, on_structure_change=on_structure_change)
        sources = [SnapshotSource(self.snapshots, self._reader.fetch)]
        if self._replica:
            # Last: the counter can be moved on the primary only, and a replica may lag.
            sources.append(SnapshotSource(self._replica.snapshots, self.database.fetch))
        self._monitor = ForeignChangeMonitor(self.database, sources)

    def primary_snapshot(self, flows: int) -> Snapshot:
        """Return a snapshot of the primary with at least this counter of flows."""
        snapshot = self.snapshots.current()
        if snapshot.version.flows < flows:
            snapshot = self.snapshots.refresh(snapshot)
        return snapshot

    def reads(
        self, identity: Identity, *, from_primary: bool = False, compares_version: bool = False
    ) -> Iterator[ReadAttempt]:
        """Yield attempts at a read, until one is done; see cms/store/attempts.py.

        Later ones lock the counters, which ends changes of structure and rights. Statements of
        reads select the counters; for others there is `unversioned_reads`.
        """
        if monotonic() >= self._monitor.next_check:
            self._monitor.check()
        reader = self.database.primary if from_primary else self._reader
        if self._replica and not from_primary:
            attempt = self._replica.attempt(identity, compares_version=compares_version)
            if attempt and attempt.begin():
                yield attempt
            if attempt and attempt.is_done:
                return
        retries = Retries(self.database, self.snapshots, reader.fetch)
        # Each connection may hold a prepared plan that is out of date, which costs an attempt.
        for number in range(ATTEMPTS + self.database.pool_size):
            snapshot = self.snapshots.current()
            attempt = ReadAttempt(retries, identity, snapshot, locked=number >= ATTEMPTS)
            attempt.reader = reader
            attempt.compares_version = compares_version
            if attempt.begin():
                yield attempt
            if attempt.is_done:
                return
        raise without_success(deadlocked=retries.deadlocked)

    def unversioned_reads(self, identity: Identity) -> Iterator[ReadAttempt]:
        """Yield attempts at a read by statements that do not select the counters."""
        return self.reads(identity, compares_version=True)

    def primary_reads(self, identity: Identity) -> Iterator[ReadAttempt]:
        """Yield attempts at a read that a write depends on: a replica may lag behind."""
        return self.reads(identity, from_primary=True, compares_version=True)

    def write(
        self,
        identity: Identity,
        *,
        idempotency: Idempotency | None = None,
        changes_rights: bool = False,
    ) -> Write[Any]:
        """Return a write, to iterate over its attempts.

        With `idempotency` a call that was answered before gets the same answer and writes nothing.
        A write that `changes_rights` locks the counters before it writes.
        """
        if monotonic() >= self._monitor.next_check:
            self._monitor.check()
        return Write(
            Retries(self.database, self.snapshots, self.database.fetch_primary),
            self.passwords,
            identity,
            idempotency=idempotency,
            changes_rights=changes_rights,
        )

    def structure_change(
        self, identity: Identity, *, idempotency: Idempotency | None = None
    ) -> StructureChange[Any]:
        """Return a change of the structure, to iterate over its attempts; FORBIDDEN for others.

        The right is asked before the lock: who lacks it must not hold up those who have it.
        """
        self.require_administrator(identity)
        retries = Retries(self.database, self.snapshots, self.database.fetch_primary)
        return StructureChange(retries, self.passwords, identity, idempotency=idempotency)

    def require_administrator(self, identity: Identity) -> None:
        """Raise `Refused` FORBIDDEN unless the caller is an administrator."""
        for attempt in self.primary_reads(identity):
            with attempt as context:
                require_admin(context.actor)

    def stored_answer(
        self, identity: Identity, idempotency: Idempotency | None
    ) -> StoredAnswer | None:
        """Return the stored answer of a call, for calls that cost much before they write."""
        if idempotency is None:
            return None
        for attempt in self.write(identity):
            with attempt:
                transaction = attempt.begin_transaction()
                # A call with the same key may be under way: its answer is stored once the lock is
                # free.
                lock_key(transaction, identity.name, idempotency)
                answer = find_stored_answer(transaction, identity.name, idempotency)
        return answer

    def reload_structure(
        self, identity: Identity, *, idempotency: Idempotency | None = None
    ) -> None:
        """Have every process load the structure again, for changes by other programs."""
        # A change that changes nothing still moves the counter.
        change = self.structure_change(identity, idempotency=idempotency)
        for attempt in change:
            with attempt:
                pass

    def close(self) -> None:
        self.database.close()


def _other_prefixes(database: Database, own_prefix: str) -> list[str]:
    rows = database.fetch_primary(statement("find_other_hash_prefixes"), (own_prefix + "$",))
    return single_values(rows)
