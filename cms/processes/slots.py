"""Slots for work that may take long: of the threads of a process, and of a machine."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

POLL_SECONDS = 0.02
"""How often a free slot of the machine is looked for."""
MAX_SECONDS = 1.0
"""How long a run waits for a slot, if it is among the first that do."""
MAX_SECONDS_OF_OTHERS = 0.05
"""How long all others wait: about as long as a script runs, as two hashes take, and as an ordinary
request takes.
"""


class NoFreeSlot(Exception):
    """No slot became free in time."""


class WaitSlots:
    """Slots for the threads of a process.

    Runs of flows and requests to login providers take half of the threads at most, and at least
    one. A quarter of the threads may wait longer for such a slot; all others are soon free again,
    however many calls there are.

    Hashes take half as well, where their threads hold up others. All together leave a quarter free,
    and one of two threads or three. Threads that wait for a slot make room for a hash, so that slow
    providers never block logins by password.
    """

    def __init__(self, threads: int) -> None:
        self._half = max(1, threads // 2)
        self._max_queued = threads // 4
        self._max_busy = max(1, threads - max(1, threads // 4))
        self._changed = threading.Condition()
        self._taken = 0
        self._queued = 0
        self._hashes = 0
        self._hashes_due = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot; raises `NoFreeSlot` where none becomes free in time."""
        with self._changed:
            self._acquire()
        try:
            yield
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    @contextmanager
    def take_for_hash(self) -> Iterator[None]:
        """Hold a slot for a hash; raises `NoFreeSlot` where none becomes free in time."""
        with self._changed:
            self._acquire_for_hash()
        try:
            yield
        finally:
            with self._changed:
                self._hashes -= 1
                self._changed.notify_all()

    def _acquire(self) -> None:
        # The usual case: a slot is free.
        if not self._has_slot():
            if self._queued < self._max_queued and self._busy < self._max_busy:
                self._queue()
            else:
                self._wait(self._has_slot, MAX_SECONDS_OF_OTHERS)
        self._taken += 1

    def _queue(self) -> None:
        self._queued += 1
        self._changed.wait_for(self._ends_queueing, MAX_SECONDS)
        self._queued -= 1
        if not self._has_slot():
            self._changed.notify_all()  # there is room now for a hash
            raise NoFreeSlot

    def _acquire_for_hash(self) -> None:
        self._hashes_due += 1
        self._changed.notify_all()
        try:
            self._wait(self._has_room_for_hash, MAX_SECONDS_OF_OTHERS)
        finally:
            self._hashes_due -= 1
        self._hashes += 1

    def _wait(self, predicate: Callable[[], bool], seconds: float) -> None:
        if not self._changed.wait_for(predicate, seconds):
            raise NoFreeSlot

    @property
    def _busy(self) -> int:
        return self._taken + self._queued + self._hashes

    def _has_slot(self) -> bool:
        return self._taken < self._half and self._busy < self._max_busy

    def _has_room_for_hash(self) -> bool:
        return self._hashes < self._half and self._busy < self._max_busy

    def _ends_queueing(self) -> bool:
        # A thread that waits here counts as busy, with or without a slot.
        if self._taken < self._half:
            return True
        # A hash that finds room at once is not due any more when this thread wakes up.
        return self._hashes_due > 0 and self._hashes < self._half


class MachineSlots:
    """Slots as files in a folder, each locked by its holder.

    The kernel frees the lock when its holder ends, however that happens.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count

    @contextmanager
    def take(self, *, max_seconds: float) -> Iterator[None]:
        """Hold a slot; raises `NoFreeSlot` where none becomes free in time."""
        self._folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + max_seconds
        while (descriptor := self._lock_free_slot()) is None:
            if time.monotonic() > deadline:
                raise NoFreeSlot
            # A lock that is waited for would be one file's, and any slot will do.
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            os.close(descriptor)

    def _lock_free_slot(self) -> int | None:
        """Return the locked descriptor of a free slot's file, or None."""
        # The files stay there, empty: their locks are what counts, and removing them would race
        # with others.
        for number in range(self._count):
            descriptor = locked_file(self._folder / str(number))
            if descriptor is not None:
                return descriptor
        return None


def locked_file(path: Path, flags: int = 0) -> int | None:
    """Return the descriptor of a file, locked; None where another process holds the lock."""
    # Close-on-exec: a child that inherited the descriptor would keep the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


class ThisThread(threading.local):
    """`away` lets another thread take the slot of this one while its context lasts.

    It is None for a thread without a slot, which holds up others as long as it is busy. The event
    loop of a web worker `must_not_wait`: all clients would wait with it.
    """

    away: Callable[[], AbstractContextManager[None]] | None = None
    must_not_wait = False


this_thread = ThisThread()
