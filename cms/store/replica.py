"""Reads from a replica that lags behind, with the structure and the rights of the primary.

The rows of a replica may be old, but permissions are not: a withdrawn permission, a suspended user
and an ended session count from the next request on (docs/deployment.md).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TypeVar

from cms.database.connections import Database
from cms.database.error_mapping import Stale, UnexpectedError
from cms.errors import Refused
from cms.store.actors import find_actor
from cms.store.attempts import is_unavailable
from cms.store.context import RequestContext
from cms.store.current_version import current_version
from cms.store.identity import Identity
from cms.store.recent_writers import RecentWriters
from cms.store.snapshot import Snapshot, Snapshots

T = TypeVar("T")


class Behind(Exception):
    """The replica lacks something that this read needs: the primary has it."""


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
        self._reader = database.reader
        self.snapshots = Snapshots(database.fetch, on_structure_change=on_structure_change)

    def read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do a read once; raises `Behind` where the primary has to be asked instead.

        The primary is asked for callers who have just written, while the replica has another
        structure or other rights, and whenever an answer of the replica is in doubt.
        """
        if self._writers and self._writers.includes(identity):
            raise Behind
        snapshot = self._current_snapshot()
        try:
            # A session moves no counter, and a new one may be unknown to the replica.
            actor = find_actor(snapshot, identity, self._database.fetch_primary)
            return work(RequestContext(snapshot, actor, self._reader.fetch, self._reader))
        except Stale:
            self.snapshots.refresh(snapshot)
            raise Behind from None
        except (Refused, UnexpectedError) as refusal:
            if is_unavailable(refusal) or self._has_version_of(snapshot):
                raise
            raise Behind from None

    def _current_snapshot(self) -> Snapshot:
        """Return the snapshot of the replica; raises `Behind` if it is not that of the primary."""
        version = current_version(self._database.fetch_primary)
        snapshot = self.snapshots.current()
        if snapshot.version == version:
            return snapshot
        # Compared first: otherwise each request would load the structure until the replica catches
        # up.
        if current_version(self._reader.fetch) == version:
            snapshot = self.snapshots.refresh(snapshot)
        if snapshot.version != version:
            raise Behind
        return snapshot

    def _has_version_of(self, snapshot: Snapshot) -> bool:
        return current_version(self._reader.fetch) == snapshot.version
