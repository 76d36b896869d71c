"""Changes of structure by other programs, found by comparing fingerprints once a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from cms.database.connections import Database, Fetch
from cms.database.error_mapping import Stale, UnexpectedError
from cms.database.statements import statement
from cms.errors import Refused
from cms.store.snapshot import Snapshots

log = logging.getLogger("cms.store")

CHECK_SECONDS = 60.0
"""Seconds between two comparisons of a process, or more where no request comes."""

RETRY_SECONDS = 1.0
"""Seconds until the next comparison if the counter could not be moved."""


class SnapshotSource(NamedTuple):
    """The snapshots of a server, and the function that reads from it."""

    snapshots: Snapshots
    fetch: Fetch


class ForeignChangeMonitor:
    """Compares the structure with that of the snapshot, at the first request after a minute.

    If they differ although the counter is the same, it increases the counter, so that every process
    loads the structure again. Changes by the service increase the counter themselves, and the next
    snapshot has their fingerprint.
    """

    def __init__(self, database: Database, sources: Sequence[SnapshotSource]) -> None:
        self._database = database
        self._sources = sources
        self._lock = threading.Lock()
        self.next_check = monotonic() + CHECK_SECONDS
        """When `check` is to be called next, on the clock `monotonic`."""

    def check(self) -> None:
        """Compare; one thread does so, the others go on."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            # The time is set first, so that the next request does not repeat a comparison that
            # fails.
            self.next_check = monotonic() + CHECK_SECONDS
            self._compare()
        except (Refused, Stale, UnexpectedError) as error:
            # The request goes on; if the error concerns it, its own statement fails.
            log.warning("the structure could not be looked at: %s", error)
        finally:
            self._lock.release()

    def _compare(self) -> None:
        for source in self._sources:
            snapshot = source.snapshots.loaded
            if snapshot is None:  # nobody has used this source yet
                continue
            # One source is enough: a replica has the structure of its primary.
            ((structure, fingerprint),) = source.fetch(statement("find_fingerprint"), ())
            # If the counter differs, the next request loads the structure again in any case.
            if structure == snapshot.version.structure and fingerprint != snapshot.fingerprint:
                self._advance_counter(structure)
            return

    def _advance_counter(self, structure: int) -> None:
        """Increase the counter, unless another process or a change of structure does."""
        with self._database.transaction() as transaction:
            rows = transaction.execute(statement("advance_structure_from"), (str(structure),))
        if rows:
            log.info("another program has changed the structure; every process loads it again")
        else:
            self.next_check = monotonic() + RETRY_SECONDS
