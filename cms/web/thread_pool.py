"""Threads that run the application.

Only so many work at a time; a thread that waits for a client does not count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from cms.processes.slots import this_thread

WorkItem = Callable[[], None]

log = logging.getLogger("cms")

_RETRY_SECONDS = 10.0
"""For so long no thread is started after the system has refused one."""


class _Slots:
    """Slots that threads get in the order in which they ask.

    Each is handed from one thread to the next. A semaphore would let the thread that gives a slot
    back take it again at once, with the next work item, before the one that waits is awake: it and
    its client would wait as long as there is work.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._turns: deque[threading.Lock] = deque()  # of threads that wait
        self._lock = threading.Lock()

    @property
    def is_awaited(self) -> bool:
        """Whether a thread waits for a slot."""
        return bool(self._turns)

    def take(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._turns.append(turn)
        turn.acquire()

    def give_back(self) -> None:
        with self._lock:
            if self._turns:
                self._turns.popleft().release()
            else:
                self._free += 1


class ThreadPool:
    """A pool in which `size` threads work at a time.

    A thread works while it holds a slot. `waiting` passes the slot to another thread for as long as
    a client is waited for, `away` while passwords are hashed. Up to `max_waiting` threads may wait
    for clients, which costs only the memory of their stacks. When more wait, or the system refuses
    to start a thread, the thread calls `relieve`: some clients have to be ended, or no thread would
    be left to work.
    """

    def __init__(self, size: int, *, max_waiting: int, relieve: Callable[[], None]) -> None:
        self._size = size
        self._max_waiting = max_waiting
        self._max_threads = size + 2 * max_waiting  # threads in `yield_slot` wait as well
        self._relieve = relieve
        self._work_items: deque[WorkItem] = deque()
        self._arrivals: SimpleQueue[None] = SimpleQueue()  # of work items, which wake threads
        self._slots = _Slots(size)
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting = 0  # for clients, or for their turn
        self._waiting_for_clients = 0
        self._refused_until = 0.0
        self._working_since: dict[int, float] = {}
        for _ in range(size):
            self._start_thread()

    @property
    def is_awaited(self) -> bool:
        """Whether work has not begun yet, or a thread waits to go on."""
        return bool(self._work_items) or self._slots.is_awaited

    @property
    def is_busy(self) -> bool:
        """Whether a thread is working, or waiting for a client."""
        return bool(self._working_since) or self._waiting > 0

    @property
    def surplus_waiting(self) -> int:
        """How many more threads wait for clients than may."""
        limit = self._max_waiting
        if self._is_refused:
            # Of the threads that there are, enough must be left to work.
            limit = min(limit, self._threads - (self._size + 1) // 2)
        return self._waiting_for_clients - limit

    def submit(self, work_item: WorkItem) -> None:
        """Have a thread do the work; items begin in their order. The work must not raise."""
        self._work_items.append(work_item)
        self._arrivals.put(None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let another thread work while this one waits for a client."""
        self._release_slot(clients=1)
        if self.surplus_waiting > 0:
            self._relieve()
        try:
            yield
        finally:
            self._reclaim_slot(clients=1)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let another thread work while this one does work that has a limit of its own."""
        self._release_slot(clients=0)
        try:
            yield
        finally:
            self._reclaim_slot(clients=0)

    def yield_slot(self) -> None:
        """Let queued work go before the rest of this thread's work."""
        with self.away():
            pass

    def is_hung(self, now: float, *, seconds: float) -> bool:
        """Tell whether a thread has worked on one item for longer than `seconds`."""
        # A copy: threads change the dictionary meanwhile.
        return any(now - since > seconds for since in list(self._working_since.values()))

    def _release_slot(self, *, clients: int) -> None:
        del self._working_since[threading.get_ident()]
        with self._lock:
            self._waiting += 1
            self._waiting_for_clients += clients
            if self._threads - self._waiting < self._size and self._threads < self._max_threads:
                self._try_start_thread()
        self._slots.give_back()

    def _reclaim_slot(self, *, clients: int) -> None:
        # First of all: this thread no longer waits for the client, however long it waits for a
        # slot.
        with self._lock:
            self._waiting_for_clients -= clients
        self._slots.take()
        with self._lock:
            self._waiting -= 1
        self._working_since[threading.get_ident()] = time.monotonic()

    @property
    def _is_refused(self) -> bool:
        """Whether the system has just refused to start a thread."""
        return time.monotonic() < self._refused_until

    def _try_start_thread(self) -> None:
        """Start a thread unless the system refuses it: the slot must be passed on all the same."""
        if self._is_refused:
            return
        try:
            self._start_thread()
        except (RuntimeError, MemoryError) as error:
            # There is no memory for a stack, or a limit of threads, often that of a container.
            self._refused_until = time.monotonic() + _RETRY_SECONDS
            log.warning("There are %d threads, and no more: %s", self._threads, error)

    def _start_thread(self) -> None:
        threading.Thread(target=self._run_work_items, name="request", daemon=True).start()
        self._threads += 1

    def _run_work_items(self) -> None:
        identifier = threading.get_ident()
        this_thread.away = self.away
        while not self._is_surplus():
            # The work first: a thread that waited for work with a slot would keep it from others.
            self._arrivals.get()
            self._slots.take()
            # The oldest: the thread that was woken for it may still wait for its slot.
            work_item = self._work_items.popleft()
            self._working_since[identifier] = time.monotonic()
            try:
                work_item()
            finally:
                del self._working_since[identifier]
                self._slots.give_back()

    def _is_surplus(self) -> bool:
        """Tell a thread to end when there are twice as many as can work."""
        # Without the lock at first: every request comes by here.
        if self._threads - self._waiting <= 2 * self._size:
            return False
        with self._lock:
            surplus = self._threads - self._waiting > 2 * self._size
            self._threads -= surplus
        return surplus
