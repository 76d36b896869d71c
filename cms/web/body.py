"""The body of a request that is too long to be read before a thread is taken: `wsgi.input` of PEP
3333.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from cms.web.limits import MAX_UNREAD
from cms.web.thread_pool import ThreadPool


class BodyError(OSError):
    """The rest of the body will not come: the client is gone, too slow, or sends what is not HTTP."""


class StreamedBody:
    """Bytes that the event loop puts in and the application's thread takes out.

    `wanted` is called once, by the thread, when the application begins to read; `resume` whenever there is room again.
    """

    def __init__(
        self, threads: ThreadPool, *, wanted: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._threads = threads
        self._wanted: Callable[[], None] | None = wanted
        self._resume = resume
        self._arrived = threading.Condition()
        self._bytes = bytearray()
        self._fault: str | None = None
        self._complete = False
        self.awaited_since = 0.0

    # For the event loop

    def feed(self, piece: bytes) -> bool:
        """Take a piece that has come in; tell whether there is room for more."""
        with self._arrived:
            self._bytes += piece
            self._arrived.notify()
            return self.is_awaited or len(self._bytes) < MAX_UNREAD

    def complete(self) -> None:
        """Take the end of the body."""
        with self._arrived:
            self._complete = True
            self._arrived.notify()

    def fail(self, fault: str) -> None:
        """Have the application's next read, or the one under way, raise `BodyError`."""
        with self._arrived:
            self._fault = self._fault or fault
            self._arrived.notify()

    @property
    def is_awaited(self) -> bool:
        """Whether a thread waits for more."""
        return self.awaited_since > 0

    @property
    def is_read(self) -> bool:
        """Whether the application has taken all of it."""
        return self._complete and not self._bytes

    # For the application

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, fewer only at the end, all that is left without a size; raises
        `BodyError`.
        """
        wanted = None if size is None or size < 0 else size
        return self._take(lambda: wanted is not None and len(self._bytes) >= wanted, lambda: wanted)

    def readline(self, size: int | None = -1) -> bytes:
        """Return the bytes up to and with the next line feed, at most `size` of them; raises
        `BodyError`.
        """
        limit = None if size is None or size < 0 else size

        def length() -> int | None:
            end = self._bytes.find(b"\n", 0, limit)
            return limit if end < 0 else end + 1

        return self._take(
            lambda: b"\n" in self._bytes or (limit is not None and len(self._bytes) >= limit),
            length,
        )

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """Return the lines that are left; raises `BodyError`."""
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _take(self, is_enough: Callable[[], bool], length: Callable[[], int | None]) -> bytes:
        """Wait until there is enough, or the end; then take so many bytes, all where `length` is
        None.
        """
        if self._wanted:
            wanted, self._wanted = self._wanted, None
            if not (
                self._bytes or self._complete or self._fault
            ):  # else it comes without being asked for
                wanted()
        with self._arrived:
            if not (self._complete or self._fault or is_enough()):
                self._await(is_enough)
            if self._fault and not is_enough():
                raise BodyError(self._fault)
            size = length()
            taken = bytes(self._bytes[:size])
            del self._bytes[: len(taken)]
        self._resume()
        return taken

    def _await(self, is_enough: Callable[[], bool]) -> None:
        self._arrived.release()
        try:
            with self._threads.waiting():
                self._wait_for(is_enough)
        finally:
            self._arrived.acquire()

    def _wait_for(self, is_enough: Callable[[], bool]) -> None:
        self.awaited_since = time.monotonic()
        self._resume()
        with self._arrived:
            while not (self._complete or self._fault or is_enough()):
                self._arrived.wait()
        self.awaited_since = 0.0
