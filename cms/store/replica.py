"""Reads from a replica that lags behind, with the structure and the rights of the primary.

The rows of a replica may be old, but permissions are not: a withdrawn permission, a suspended user
and an ended session count from the next request on (docs/deployment.md).
"""

from __future__ import annotations

from collections.abc import Callable, Set

from cms.database.connections import Database
from cms.database.error_mapping import Stale
from cms.store.actors import find_actor
from cms.store.attempts import ReadAttempt, Retries
from cms.store.context import RequestContext
from cms.store.current_version import current_version
from cms.store.identity import Identity
from cms.store.recent_writers import RecentWriters
from cms.store.snapshot import Snapshot, Snapshots


class Replica:
    """The replica, with this process's snapshot of its structure."""

    def __init__(
        self,
        database: Database,
        writers: RecentWriters | None,
        *,
        on_structure_change: Callable[[Set[str]], None],
    ) -> None:
        self._database = database
        self._writers = writers
        self.reader = database.reader
        self.snapshots = Snapshots(database.fetch, on_structure_change=on_structure_change)

    def attempt(self, identity: Identity, *, compares_version: bool) -> ReadAttempt | None:
        """Return the one attempt at a read on the replica; None where the primary has to be asked.

        The primary is asked for callers who have just written, while the replica has another
        structure or other rights, and whenever an answer of the replica is in doubt: then the
        attempt ends without being done.
        """
        if self._writers and self._writers.includes(identity):
            return None
        snapshot = self._current_snapshot()
        if snapshot is None:
            return None
        retries = Retries(self._database, self.snapshots, self.reader.fetch)
        attempt = _ReplicaAttempt(retries, identity, snapshot, locked=False)
        attempt.reader = self.reader
        attempt.compares_version = compares_version
        return attempt

    def _current_snapshot(self) -> Snapshot | None:
        """Return the snapshot of the replica, if it is that of the primary."""
        version = current_version(self._database.fetch_primary)
        snapshot = self.snapshots.current()
        if snapshot.version == version:
            return snapshot
        # Compared first: otherwise each request would load the structure until the replica catches
        # up.
        if current_version(self.reader.fetch) == version:
            snapshot = self.snapshots.refresh(snapshot)
        return snapshot if snapshot.version == version else None


class _ReplicaAttempt(ReadAttempt):
    """The attempt at a read on the replica: its errors are those of the primary, or in doubt."""

    def _open(self) -> RequestContext:
        # A session moves no counter, and a new one may be unknown to the replica.
        actor = find_actor(self._snapshot, self.identity, self._retries.database.fetch_primary)
        return RequestContext(self._snapshot, actor, self.reader.fetch, self.reader, self.identity)

    def _retry_after(self, failure: Exception) -> None:
        if isinstance(failure, Stale):
            self._retries.snapshots.refresh(self._snapshot)
        elif self._retries.is_final(failure, self._snapshot, locked=False):
            raise failure
