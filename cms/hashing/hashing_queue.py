"""The queue of passwords to be hashed: one at a time, and not at the cost of other requests.

A hash takes long on purpose: 20 ms of a processor by default, and of several with more lanes.
Without the queue a few logins at once would hold all threads of a web process, and their hashes all
processors.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from cms.errors import Refused, unavailable
from cms.processes.machine import all_processors
from cms.processes.slots import NoFreeSlot, WaitSlots, this_thread

MAX_SECONDS = 5.0
"""How long a request waits for its turn, as long as it may wait for a thread."""
MAX_CALLERS = 32
"""How many threads may wait here that have passed their slot to another thread."""
LOWER_PRIORITY = 15
"""How much `nice` grows, so that threads that answer other requests go first."""

T = TypeVar("T")


class HashingQueue:
    """Hashes in a thread of its own, in the order in which the callers come.

    A thread of the service's own web server passes its slot to another thread while it waits here.
    Other servers have no slots: `WaitSlots` says how many of their threads may be here. Without
    them, as in a worker, callers wait as long as it takes.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with an empty queue, also in a process that was just forked."""
        # It starts its thread at the first use, which is after the fork.
        self._executor = ThreadPoolExecutor(1, "hashing", initializer=_lower_priority)
        self._callers = threading.BoundedSemaphore(MAX_CALLERS)

    def run(self, work: Callable[[], T], wait_slots: WaitSlots | None = None) -> T:
        """Return the result of a hash; raises `Refused` SERVICE_UNAVAILABLE after a long wait."""
        if wait_slots is None:
            return self._submit(work).result()
        with self._entered(wait_slots):
            future = self._submit(work)
            # Not by an exception of `result`, as the work itself could raise the same one.
            if not _ends_within(future, MAX_SECONDS) and future.cancel():
                raise _busy()
            # A hash that has begun will soon be there.
            return future.result()

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        return self._executor.submit(_on_all_processors, work)

    @contextmanager
    def _entered(self, wait_slots: WaitSlots) -> Iterator[None]:
        """Have a thread count among those that are here, if there is room for it."""
        away = this_thread.away
        if away is None:
            try:
                with wait_slots.take_for_hash():
                    yield
            except NoFreeSlot:
                raise _busy() from None
            return
        # A thread that delays no other one waits only for its turn, and not for a free slot.
        if not self._callers.acquire(blocking=False):
            raise _busy()
        try:
            with away():
                yield
        finally:
            self._callers.release()


def _on_all_processors(work: Callable[[], T]) -> T:
    # Also with one lane: the processor of the web threads has enough to do.
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


queue = HashingQueue()
"""The queue of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=queue.reset)
