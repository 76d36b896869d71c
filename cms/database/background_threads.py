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
        self._threads: set[threading.Thread] = set()
        self._connections: set[Connection] = set()
        self._is_stopping = False

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread, unless the database is being closed."""
        # A daemon: a process that ends without closing anything does not wait for it.
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        with self._lock:
            if not self._is_stopping:
                self._threads.add(thread)
                thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    @contextmanager
    def interruptible(self, connection: Connection) -> Iterator[None]:
        """Let `stop` cancel what runs on a connection, if one of the threads has opened it."""
        with self._lock:
            is_own = threading.current_thread() in self._threads
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
                for thread in list(self._threads):
                    thread.join(_CANCEL_SECONDS)
            for thread in list(self._threads):
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
