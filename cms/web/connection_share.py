"""How many connections each worker has, so that a new one goes to a worker with fewer.

Whichever worker is free first accepts a connection, and keeps it as long as the client does. Few
clients that ask all the time would often end up on one worker, and wait there beside idle ones.
"""

from __future__ import annotations

import mmap
import time

MAX_WORKERS = 64
STALE_SECONDS = 2.0
"""A worker that has published nothing for so long is dead, or hangs: it is not waited for."""

_DOUBLE = 8


class ConnectionCounts:
    """The counts of all workers, in memory that processes share which are forked afterwards."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 * MAX_WORKERS * _DOUBLE)
        numbers = memoryview(self._memory).cast("d")
        self.counts = numbers[:MAX_WORKERS]
        self.times = numbers[MAX_WORKERS:]


class ConnectionShare:
    """The count of one worker beside those of the others; `number` differs from worker to worker.

    More workers than `MAX_WORKERS` share places, which only makes their shares less even.
    """

    def __init__(self, all_counts: ConnectionCounts, number: int) -> None:
        self._all = all_counts
        self._index = number % MAX_WORKERS

    def publish(self, count: int) -> None:
        """Publish how many connections this worker has; at least once a second."""
        self._all.counts[self._index] = count
        self._all.times[self._index] = time.monotonic()

    def end(self) -> None:
        """Tell the others that this worker accepts no more."""
        self._all.times[self._index] = 0.0

    def is_above_another(self, count: int) -> bool:
        """Tell whether another worker has fewer connections than `count`."""
        fresh = time.monotonic() - STALE_SECONDS
        counts = self._all.counts
        for index, time_of_count in enumerate(self._all.times):
            # A worker that has ended, or hangs, leaves its last count behind.
            if index != self._index and time_of_count > fresh and counts[index] < count:
                return True
        return False
