"""Threads that run the application: only so many work at a time, and one that waits for a client
does not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

WorkItem = Callable[[], None]


class ThreadPool:
    """A pool in which `size` threads work at a time.

    A thread works while it holds a slot. `waiting` gives the slot to another thread for as long as a client is waited
    for; up to `max_waiting` threads may wait so, which costs memory for their stacks and nothing else. When more wait,
    `relieve` is called, by the thread: some of the clients have to go, or nobody would be left to work.
    """

    def __init__(self, size: int, *, max_waiting: int, relieve: Callable[[], None]) -> None:
        self._size = size
        self._max_waiting = max_waiting
        self._max_threads = size + 2 * max_waiting  # those that give way need some as well
        self._relieve = relieve
        self._jobs: SimpleQueue[WorkItem] = SimpleQueue()
        self._slots: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting = 0  # for clients, or for their turn
        self._for_clients = 0
        self._working_since: dict[int, float] = {}
        for _ in range(size):
            self._slots.put(None)
            self._start_thread()

    @property
    def queued(self) -> int:
        """How many jobs no thread has taken yet."""
        return self._jobs.qsize()

    @property
    def is_busy(self) -> bool:
        """Whether a thread works on a job, or waits for the client of one."""
        return bool(self._working_since) or self._waiting > 0

    @property
    def surplus_waiting(self) -> int:
        """How many threads more wait for clients than may."""
        return self._for_clients - self._max_waiting

    def submit(self, job: WorkItem) -> None:
        """Have a thread do the job; jobs are begun in their order. It must not raise."""
        self._jobs.put(job)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let another thread work while this one waits for a client inside."""
        self._release_slot(clients=1)
        if self.surplus_waiting > 0:
            self._relieve()
        try:
            yield
        finally:
            self._reclaim_slot(clients=1)

    def yield_slot(self) -> None:
        """Let a job that is queued go before what is left of this one."""
        self._release_slot(clients=0)
        self._reclaim_slot(clients=0)

    def is_hung(self, now: float, *, seconds: float) -> bool:
        """Tell whether a thread has worked on one job for longer than `seconds`."""
        return any(now - since > seconds for since in list(self._working_since.values()))

    def _release_slot(self, *, clients: int) -> None:
        del self._working_since[threading.get_ident()]
        with self._lock:
            self._waiting += 1
            self._for_clients += clients
            if self._threads - self._waiting < self._size and self._threads < self._max_threads:
                self._start_thread()
        self._slots.put(None)

    def _reclaim_slot(self, *, clients: int) -> None:
        with self._lock:
            self._for_clients -= (
                clients  # the client is there, or gone, whenever this thread's turn may come
            )
        self._slots.get()
        with self._lock:
            self._waiting -= 1
        self._working_since[threading.get_ident()] = time.monotonic()

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run_items, name="request", daemon=True).start()

    def _run_items(self) -> None:
        identifier = threading.get_ident()
        while not self._is_surplus():
            job = self._jobs.get()
            self._slots.get()
            self._working_since[identifier] = time.monotonic()
            try:
                job()
            finally:
                del self._working_since[identifier]
                self._slots.put(None)

    def _is_surplus(self) -> bool:
        """Tell a thread to end when twice as many as can work are there; it is no longer counted
        then.
        """
        if self._threads - self._waiting <= 2 * self._size:
            return False
        with self._lock:
            surplus = self._threads - self._waiting > 2 * self._size
            self._threads -= surplus
        return surplus
