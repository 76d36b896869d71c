"""Slots of one process for operations that may wait: others are to find a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_SECONDS = 1.0
"""How long a run waits for a slot, if it is among the first that do."""
MAX_SECONDS_OF_OTHERS = 0.05
"""How long the others wait: about as long as a script runs, as two hashes take, and as an ordinary
request takes.
"""


class NoFreeSlot(Exception):
    """No slot became free in time."""


class WaitSlots:
    """Slots for half of the threads of a process, and at least one.

    A quarter of the threads may wait longer for a slot. The rest is soon free again, however many
    calls there are.
    """

    def __init__(self, threads: int) -> None:
        # Half of the threads stay free for requests that wait for no flow.
        self._slots = threading.BoundedSemaphore(max(1, threads // 2))
        self._queue = threading.Semaphore(threads // 4)
        self._hashes = threading.BoundedSemaphore(max(1, threads // 2))

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot; raises `NoFreeSlot` where none becomes free in time."""
        if not self._acquire():
            raise NoFreeSlot
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def take_for_hash(self) -> Iterator[None]:
        """Hold one of as many slots for hashes of passwords; raises `NoFreeSlot`."""
        if not self._hashes.acquire(timeout=MAX_SECONDS_OF_OTHERS):
            raise NoFreeSlot
        try:
            yield
        finally:
            self._hashes.release()

    def _acquire(self) -> bool:
        # The usual case: a slot is free, and nobody waits.
        if self._slots.acquire(blocking=False):
            return True
        if not self._queue.acquire(blocking=False):
            return self._slots.acquire(timeout=MAX_SECONDS_OF_OTHERS)
        try:
            return self._slots.acquire(timeout=MAX_SECONDS)
        finally:
            self._queue.release()
