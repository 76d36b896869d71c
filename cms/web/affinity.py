"""Keeps a worker on one processor, and moves it to another one when that is idler."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from cms.processes import processors
from cms.web.worker_table import WorkerEntry

MIN_SECONDS = 3.0
MAX_SECONDS = 6.0  # a range, so that two workers on one processor do not move at once
MIN_GAIN = 0.25
"""How much idler another processor must be, in parts of its time; less varies by itself.
"""


class Affinity:
    """The processor of one worker; `review` is called about once a second."""

    def __init__(self, first: int | None, entry: WorkerEntry) -> None:
        """Begin on a processor; None where none can be chosen.

        By `entry` the workers of one service know where the others are.
        """
        self._entry = entry
        self._current: int | None = None
        if first is not None and self._has_choice(processors.available_processors()):
            self._move_to(first)
        self._begin()

    def review(self) -> None:
        """Move if, for some seconds, others have needed this processor more than another one.

        Never to a processor with more workers of this service: two of them on one processor answer
        a third less, and see no idler one while clients and database use half of the other.
        """
        if time.monotonic() < self._end:
            return
        # Anew each time: an administrator or the system may have changed them meanwhile.
        available = processors.available_processors()
        if self._has_choice(available):
            self._review(available)
        self._begin()

    def _has_choice(self, available: Sequence[int]) -> bool:
        # A worker that was kept on one of several goes to the only one that is left.
        is_taken_away = self._current not in (None, *available)
        return len(available) > 1 or (is_taken_away and len(available) == 1)

    def _review(self, available: Sequence[int]) -> None:
        better = better_processor(
            self._current,
            available,
            shares=self._shares_of_others(),
            workers=self._entry.processors_of_others(),
        )
        if better is not None:
            self._move_to(better)

    def _move_to(self, processor: int) -> None:
        # Where the system refuses, this worker stays where it is, and the next review tries again.
        if processors.keep_on(processor):
            self._current = processor
            self._entry.publish_processor(processor)

    def _begin(self) -> None:
        self._start = time.monotonic()
        self._end = self._start + random.uniform(MIN_SECONDS, MAX_SECONDS)
        self._busy_before = processors.busy_seconds()
        self._own_before = time.process_time()

    def _shares_of_others(self) -> dict[int, float]:
        """Return the part of the time in which each processor has worked for others, if known."""
        seconds = time.monotonic() - self._start
        busy = processors.busy_seconds()
        shares: dict[int, float] = {}
        for number in busy.keys() & self._busy_before.keys():
            shares[number] = (busy[number] - self._busy_before[number]) / seconds
        if self._current in shares:
            # Hashes of passwords count as well, though they may run on other processors.
            shares[self._current] -= (time.process_time() - self._own_before) / seconds
        return shares


def better_processor(
    current: int | None,
    available: Sequence[int],
    *,
    shares: Mapping[int, float],
    workers: Sequence[int] = (),
) -> int | None:
    """Return the processor to move to; None where no other one is much better.

    `shares` has the part of the time (0 to 1) in which each processor has worked for others,
    `workers` the processors of the other workers. One with fewer of them is better in any case.
    """
    counts = Counter(workers)
    fewest = min(counts[number] for number in available)
    candidates = [number for number in available if counts[number] == fewest]
    idlest = min(candidates, key=lambda number: shares.get(number, 1.0))
    if current is None or current not in available or fewest < counts[current]:
        return idlest
    is_known = current in shares and idlest in shares
    return idlest if is_known and shares[idlest] + MIN_GAIN < shares[current] else None
