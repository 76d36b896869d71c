"""Threads that use a database beside the requests of a process, and end before it is closed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from cms.database.wire import Connection
from cms.errors import Refused, unavailable

log = logging.getLogger("cms.store")

STOP_SECONDS = 10.0
"""How long closing waits for the threads."""

_CANCEL_SECONDS = 0.2
"""Seconds between two attempts to cancel what a thread runs, which may just have begun the next."""


class Closing(Refused):
    """The database of this process is being closed: what a thread does for it ends."""


class BackgroundThreads:
    """The threads of one database; those that are still there when it is closed are interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._again: set[str] = set()
        self._connections: set[Connection] = set()
        self._is_stopping = False

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread of this name, unless the database is being closed.

        While the thread runs, its work is only done once more behind that, however often it is
        started: each thread has connections of its own.
        """
        # A daemon: a process that ends without closing anything does not wait for it.
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
        with self._lock:
            if self._is_stopping:
                return
            if name in self._threads:
                self._again.add(name)
                return
            # Raises RuntimeError if the system has no room for another thread.
            thread.start()
            self._threads[name] = thread

    def _run(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
            while self._is_wanted_again(name):
                work()
        finally:
            with self._lock:
                # A thread that has ended in `_is_wanted_again` may have a successor.
                if self._threads.get(name) is threading.current_thread():
                    del self._threads[name]

    def _is_wanted_again(self, name: str) -> bool:
        """Tell whether a thread was started again meanwhile; if not, the next one is a new one."""
        with self._lock:
            if name in self._again:
                self._again.discard(name)
                return not self._is_stopping
            del self._threads[name]
            return False

    @contextmanager
    def interruptible(self, connection: Connection) -> Iterator[None]:
        """Let `stop` cancel what runs on a connection, if one of the threads has opened it."""
        with self._lock:
            is_own = threading.current_thread() in self._threads.values()
            if is_own:
                self._connections.add(connection)
        try:
            yield
        finally:
            if is_own:
                with self._lock:
                    self._connections.discard(connection)

    def check_running(self) -> None:
        """Raise `Closing` while the threads are being stopped."""
        if self._is_stopping:
            raise Closing(unavailable("database", "The service is being closed").problems)

    def sleep(self, seconds: float) -> None:
        """Wait; raises `Closing` as soon as the threads are being stopped."""
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            self.check_running()
            time.sleep(min(rest, _CANCEL_SECONDS))
        self.check_running()

    def stop(self) -> None:
        """Interrupt the threads and wait for them; afterwards, new ones may be started."""
        with self._lock:
            self._is_stopping = True
        end = time.monotonic() + STOP_SECONDS
        try:
            while self._threads and time.monotonic() < end:
                self._cancel()
                for thread in list(self._threads.values()):
                    thread.join(_CANCEL_SECONDS)
            for thread in list(self._threads.values()):
                log.warning("%s goes on behind the closing of its service", thread.name)
        finally:
            self._is_stopping = False

    def _cancel(self) -> None:
        with self._lock:
            for connection in self._connections:
                try:
                    connection.cancel_safe(timeout=_CANCEL_SECONDS)
                except psycopg.Error:
                    # It is gone, and so is what it ran; or the server does not answer.
                    continue
