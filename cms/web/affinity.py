"""Keeps a worker on one processor, and moves it to another one when that is idler."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from cms.processes import processors

MIN_SECONDS = 3.0
MAX_SECONDS = 6.0  # a range, so that two workers on one processor do not move at once
MIN_GAIN = 0.25
"""How much idler another processor must be, in parts of its time; less varies by itself.
"""


class Affinity:
    """The processor of one worker; `review` is called about once a second."""

    def __init__(self, first_choice: int) -> None:
        """Choose a processor; workers with different numbers get different ones.

        Number 0 gets the one that is interrupted least. Where the disk interrupts, each write that
        is done wakes a process of PostgreSQL, which then takes the processor from the worker.
        """
        interrupts = processors.device_interrupts()
        self._available = sorted(
            processors.available_processors(), key=lambda number: interrupts.get(number, 0)
        )
        if self._has_choice:
            self._move_to(self._available[first_choice % len(self._available)])
            self._begin()

    def review(self) -> None:
        """Move if, for some seconds, others have needed this processor more than another one."""
        if not self._has_choice or time.monotonic() < self._end:
            return
        better = idler_processor(self._current, self._shares_of_others())
        if better is not None:
            self._move_to(better)
        self._begin()

    @property
    def _has_choice(self) -> bool:
        return len(self._available) > 1

    def _move_to(self, processor: int) -> None:
        self._current = processor
        processors.keep_on(processor)

    def _begin(self) -> None:
        self._start = time.monotonic()
        self._end = self._start + random.uniform(MIN_SECONDS, MAX_SECONDS)
        self._busy_before = processors.busy_seconds()
        self._own_before = time.process_time()

    def _shares_of_others(self) -> dict[int, float]:
        seconds = time.monotonic() - self._start
        busy = processors.busy_seconds()
        shares: dict[int, float] = {}
        for number in self._available:
            if number in busy and number in self._busy_before:
                shares[number] = (busy[number] - self._busy_before[number]) / seconds
        if self._current in shares:
            shares[self._current] -= (time.process_time() - self._own_before) / seconds
        return shares


def idler_processor(current: int, shares: Mapping[int, float]) -> int | None:
    """Return the processor to move to; None where no other one is much idler.

    `shares` has the part of the time (0 to 1) in which each processor has worked for others.
    """
    if current not in shares:
        return None
    idlest = min(shares, key=shares.__getitem__)
    return idlest if shares[idlest] + MIN_GAIN < shares[current] else None
