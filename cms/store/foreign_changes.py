"""Changes of structure that other programs make, found by a look at PostgreSQL's catalogue once a minute at most."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from cms.database.connections import Database, Row
from cms.database.error_mapping import Stale, UnexpectedError
from cms.database.statements import statement
from cms.errors import Refused
from cms.store.snapshot import Snapshots

log = logging.getLogger("cms.store")

CHECK_SECONDS = 60.0
"""How long a process goes without a look."""

RETRY_SECONDS = 1.0
"""How long until the next one, where the counter could not be moved at once."""

Fetch = Callable[[str], list[Row]]


class ForeignChangeMonitor:
    """Looks, with the first request after a while, whether the structure is still what the snapshot was made of.

    Where it is not, though the counter stands where it stood, the counter moves, and every process loads it again.
    Changes that the service makes move the counter themselves, and are in the snapshot together with their marks.
    """

    def __init__(self, database: Database, sources: Sequence[tuple[Snapshots, Fetch]]) -> None:
        self._database = database
        self._sources = sources
        self._lock = threading.Lock()
        self._next_check = monotonic() + CHECK_SECONDS

    def look(self) -> None:
        """Look if it is time to; one thread does, the others go on."""
        if monotonic() < self._next_check or not self._lock.acquire(blocking=False):
            return
        try:
            self._next_check = monotonic() + CHECK_SECONDS
            self._compare()
        except (
            Refused,
            Stale,
            UnexpectedError,
        ) as fault:  # the request itself finds out what it means for it
            log.warning("the structure could not be looked at: %s", fault)
        finally:
            self._lock.release()

    def _compare(self) -> None:
        for snapshots, fetch in self._sources:
            snapshot = snapshots.loaded
            if snapshot is None:
                continue
            ((structure, fingerprint),) = fetch(statement("find_mark"))
            if structure == snapshot.version.structure and fingerprint != snapshot.fingerprint:
                self._advance_counter(structure)
            return

    def _advance_counter(self, structure: int) -> None:
        """Move the counter, unless another process has, or a change of structure is under way."""
        with self._database.transaction() as transaction:
            moved = transaction.execute(statement("move_structure_from"), (str(structure),))
        if moved:
            log.info("another program has changed the structure; every process loads it again")
        else:
            self._next_check = monotonic() + RETRY_SECONDS
