"""Where passwords are hashed: one at a time in a process, and not at the cost of web threads.

A hash takes 50 ms on purpose, and several processors meanwhile. Without a place of their own a few
logins at once would hold all threads of a web process, and their hashes all processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from cms.errors import Refused, unavailable
from cms.processors import all_processors
from cms.this_thread import this_thread

MAX_SECONDS = 5.0
"""How long a request waits for its turn, as long as it may wait for a thread."""
MAX_CALLERS = 32
"""How many threads may be here that have passed their slot to another thread."""
FULL_SECONDS = 0.05
"""How long a thread that holds up others waits for room: about as long as one hash takes."""

_FOR_EVER = -1.0


class HashingPlace:
    """Gives turns to threads.

    A thread of the service's own web server passes its slot to another thread while it is here.
    Other servers have no slots: of their threads at most half may be here. Where no server is
    protected, as in a worker, threads wait as long as it takes.
    """

    def __init__(self) -> None:
        self._threads = 0
        self.reset()

    def reset(self) -> None:
        """Begin with a free place, also in a process that was just forked."""
        self._turn = threading.Lock()
        self._callers = threading.BoundedSemaphore(MAX_CALLERS)
        self._half = threading.BoundedSemaphore(max(1, self._threads // 2))

    def protect(self, threads: int) -> None:
        """Keep half of so many web threads free for other requests."""
        self._threads = threads
        self.reset()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hash inside this block; raises `Refused` SERVICE_UNAVAILABLE after too long a wait."""
        with self._entered():
            turn = self._turn
            if not turn.acquire(timeout=MAX_SECONDS if self._threads else _FOR_EVER):
                raise _busy()
            try:
                with all_processors():
                    yield
            finally:
                turn.release()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Have a thread count among those that are here, if there is room for it."""
        if not self._threads:
            yield
            return
        away = this_thread.away
        room = self._half if away is None else self._callers
        # A thread that holds up nobody waits for its turn, and so needs no wait for room.
        if not room.acquire(timeout=FULL_SECONDS if away is None else 0):
            raise _busy()
        try:
            with away() if away else nullcontext():
                yield
        finally:
            room.release()


def _busy() -> Refused:
    return unavailable("login", "Too many passwords are being checked at the moment")


place = HashingPlace()
"""The place of this process."""

os.register_at_fork(after_in_child=place.reset)
