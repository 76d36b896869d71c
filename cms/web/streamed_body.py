"""A body that is too long to be read before a thread is taken: `wsgi.input` of PEP 3333."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from cms.web.client_limits import MAX_UNREAD
from cms.web.thread_pool import ThreadPool


class BodyError(OSError):
    """The rest of the body will not come: the client is gone, too slow, or sends bad chunks."""


class StreamedBody:
    """A body that the event loop fills and the application's thread empties.

    The thread calls `on_first_read` once, when the application begins to read, and `resume_reading`
    whenever there is room again.
    """

    def __init__(
        self,
        threads: ThreadPool,
        *,
        on_first_read: Callable[[], None],
        resume_reading: Callable[[], None],
    ) -> None:
        self._threads = threads
        self._on_first_read: Callable[[], None] | None = on_first_read
        self._resume_reading = resume_reading
        self._arrived = threading.Condition()
        self._buffer = bytearray()
        self._failure: Exception | None = None
        self._complete = False
        self.awaited_since = 0.0

    # For the event loop

    def feed(self, chunk: bytes) -> bool:
        """Add a chunk that has arrived; tell whether there is room for more."""
        with self._arrived:
            self._buffer += chunk
            self._arrived.notify()
            # A thread that waits may need a line or a size that is longer than the limit.
            return self.is_awaited or len(self._buffer) < MAX_UNREAD

    def complete(self) -> None:
        """Note that the body has ended."""
        with self._arrived:
            self._complete = True
            self._arrived.notify()

    def fail(self, reason: str, error_type: type[Exception] = BodyError) -> None:
        """Make the current or next read of the application raise an error."""
        with self._arrived:
            self._failure = self._failure or error_type(reason)
            self._arrived.notify()

    @property
    def is_awaited(self) -> bool:
        """Whether a thread is waiting for more of the body."""
        return self.awaited_since > 0

    @property
    def is_read(self) -> bool:
        """Whether the application has read the whole body."""
        return self._complete and not self._buffer

    # For the application

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, fewer only at the end, all that is left without a size.

        Raises `BodyError`, and MemoryError where the event loop had no room for it.
        """
        limit = None if size is None or size < 0 else size
        return self._take(lambda: limit is not None and len(self._buffer) >= limit, lambda: limit)

    def readline(self, size: int | None = -1) -> bytes:
        """Return the bytes up to the next line feed, at most `size`; raises `BodyError`."""
        limit = None if size is None or size < 0 else size

        def length() -> int | None:
            end = self._buffer.find(b"\n", 0, limit)
            return limit if end < 0 else end + 1

        return self._take(
            lambda: b"\n" in self._buffer or (limit is not None and len(self._buffer) >= limit),
            length,
        )

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """Return the remaining lines; raises `BodyError`."""
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _take(self, is_enough: Callable[[], bool], length: Callable[[], int | None]) -> bytes:
        """Wait until `is_enough` or the body ends; take `length()` bytes, all of them for None."""
        if self._on_first_read:
            on_first_read = self._on_first_read
            self._on_first_read = None
            # A client that already sends its body does not wait to be asked for it.
            if not (self._buffer or self._complete or self._failure):
                on_first_read()
        with self._arrived:
            if not (self._complete or self._failure or is_enough()):
                self._await(is_enough)
            # Bytes that arrived before the failure are still good.
            if self._failure and not is_enough():
                raise self._failure
            size = length()
            taken = bytes(self._buffer[:size])
            del self._buffer[: len(taken)]
        self._resume_reading()
        return taken

    def _await(self, is_enough: Callable[[], bool]) -> None:
        # The event loop needs the lock to add what this thread waits for.
        self._arrived.release()
        try:
            with self._threads.waiting():
                self._wait_for(is_enough)
        finally:
            self._arrived.acquire()

    def _wait_for(self, is_enough: Callable[[], bool]) -> None:
        self.awaited_since = time.monotonic()
        self._resume_reading()
        with self._arrived:
            while not (self._complete or self._failure or is_enough()):
                self._arrived.wait()
        self.awaited_since = 0.0
