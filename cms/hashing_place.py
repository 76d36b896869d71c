"""Where passwords are hashed: one at a time in a process, and not at the cost of other requests.

A hash takes 50 ms on purpose, and several processors meanwhile. Without a place of their own a few
logins at once would hold all threads of a web process, and their hashes all processors.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from cms.errors import Refused, unavailable
from cms.processors import all_processors
from cms.this_thread import this_thread

MAX_SECONDS = 5.0
"""How long a request waits for its turn, as long as it may wait for a thread."""
MAX_CALLERS = 32
"""How many threads may wait here that have passed their slot to another thread."""
FULL_SECONDS = 0.05
"""How long a thread that holds up others waits for room: about as long as one hash takes."""
LOWER_PRIORITY = 15
"""By so much `nice` grows: whatever answers another request goes first."""

T = TypeVar("T")


class HashingPlace:
    """Hashes in a thread of its own, in the order in which the callers come.

    A thread of the service's own web server passes its slot to another thread while it waits here.
    Other servers have no slots: of their threads at most half may be here. Where no server is
    protected, as in a worker, callers wait as long as it takes.
    """

    def __init__(self) -> None:
        self._threads = 0
        self.reset()

    def reset(self) -> None:
        """Begin with a free place, also in a process that was just forked."""
        # It starts its thread at the first use, which is after the fork.
        self._executor = ThreadPoolExecutor(1, "hashing", initializer=_lower_priority)
        self._callers = threading.BoundedSemaphore(MAX_CALLERS)
        self._half = threading.BoundedSemaphore(max(1, self._threads // 2))

    def protect(self, threads: int) -> None:
        """Keep half of so many web threads free for other requests."""
        self._threads = threads
        self._half = threading.BoundedSemaphore(max(1, threads // 2))

    def run(self, work: Callable[[], T]) -> T:
        """Return what a hash answers; raises `Refused` SERVICE_UNAVAILABLE after too long a wait."""
        with self._entered():
            return self._result(self._executor.submit(_on_all_processors, work))

    def _result(self, future: Future[T]) -> T:
        # Not by an exception of `result`, as the work itself could raise the same one.
        if self._threads and not _ends_within(future, MAX_SECONDS) and future.cancel():
            raise _busy()
        # A hash that has begun will soon be there.
        return future.result()

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


def _on_all_processors(work: Callable[[], T]) -> T:
    with all_processors():
        return work()


def _ends_within(future: Future[T], seconds: float) -> bool:
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    return ended.wait(seconds)


def _lower_priority() -> None:
    """Let all other threads go before this one, and those that it starts."""
    # Linux alone has a priority for each thread; elsewhere it would be that of the process.
    if sys.platform == "linux":
        with suppress(OSError):
            thread = threading.get_native_id()
            nice = os.getpriority(os.PRIO_PROCESS, thread) + LOWER_PRIORITY
            os.setpriority(os.PRIO_PROCESS, thread, nice)


def _busy() -> Refused:
    return unavailable("hashing of passwords", "Too many are being hashed at the moment")


place = HashingPlace()
"""The place of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=place.reset)
