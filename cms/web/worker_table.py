"""What workers tell each other: how many connections they have.

Whichever worker is free first accepts a connection, and keeps it as long as the client does. Few
clients that ask all the time would often end up on one worker, and wait there beside idle ones. So
a new connection goes to a worker with fewer.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator

MAX_WORKERS = 64
STALE_SECONDS = 2.0
"""A worker that has published nothing for so long is dead, or hangs: it is not waited for."""

_DOUBLE = 8


class WorkerTable:
    """The entries of all workers, in memory that processes share which are forked afterwards."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 * MAX_WORKERS * _DOUBLE)
        numbers = memoryview(self._memory).cast("d")
        self.counts = numbers[:MAX_WORKERS]
        self.times = numbers[MAX_WORKERS:]
        self._last_index = MAX_WORKERS - 1

    def new_entry(self) -> WorkerEntry:
        """Return the entry of a worker that is about to be forked.

        More workers than `MAX_WORKERS` share entries, which only makes their shares less even.
        """
        indexes = [(self._last_index + step) % MAX_WORKERS for step in range(1, MAX_WORKERS + 1)]
        serving = set(self.serving())
        # In turns, because workers that still start have not published anything; and around those
        # that have served while all the others were replaced.
        self._last_index = next((index for index in indexes if index not in serving), indexes[0])
        return WorkerEntry(self, self._last_index)

    def serving(self) -> Iterator[int]:
        """Yield the indexes of the workers that serve."""
        fresh = time.monotonic() - STALE_SECONDS
        for index, time_of_count in enumerate(self.times):
            # A worker that has ended, or hangs, leaves its last numbers behind.
            if time_of_count > fresh:
                yield index


class WorkerEntry:
    """What one worker publishes, beside what the others do."""

    def __init__(self, table: WorkerTable, index: int) -> None:
        self._table = table
        self._index = index

    def publish(self, count: int) -> None:
        """Publish how many connections this worker has; at least once a second."""
        self._table.counts[self._index] = count
        self._table.times[self._index] = time.monotonic()

    def end(self) -> None:
        """Tell the others that this worker accepts no more."""
        self._table.times[self._index] = 0.0

    def is_above_another(self, count: int) -> bool:
        """Tell whether another worker has fewer connections than `count`."""
        others = (index for index in self._table.serving() if index != self._index)
        return any(self._table.counts[index] < count for index in others)
