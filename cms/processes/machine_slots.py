"""Slots for work that only so many processes of one machine may do at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cms.processes.wait_slots import NoFreeSlot

POLL_SECONDS = 0.02


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
        # Close-on-exec: a child that inherited the descriptor would keep the lock.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        # The files stay there, empty: their locks are what counts, and removing them would race
        # with others.
        for number in range(self._count):
            descriptor = os.open(self._folder / str(number), flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        return None
