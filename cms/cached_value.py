"""A value that takes time to compute, cached for some seconds and computed once for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class CachedValue(Generic[T]):
    """A value that `find` returns, cached for `seconds`.

    One thread at a time computes it, for all callers of this process.
    """

    def __init__(
        self,
        find: Callable[[], T],
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._future: Future[T] | None = None
        self._expires = 0.0

    def get(self, *, max_seconds: float) -> T:
        """Return the value; raises what `find` raises, and TimeoutError if it takes longer."""
        return self.begin().result(max_seconds)

    def begin(self) -> Future[T]:
        """Begin to compute the value, unless it is cached or being computed."""
        with self._lock:
            future = self._future
            if future is None or (future.done() and self._clock() > self._expires):
                future = self._future = Future()
                # Not in the caller's thread: it can wait for a limited time only.
                threading.Thread(target=self._run, args=(future,), daemon=True).start()
            return future

    def _run(self, future: Future[T]) -> None:
        try:
            value = self._find()
        except BaseException as error:
            self._expires = self._clock() + self._seconds
            future.set_exception(error)
        else:
            self._expires = self._clock() + self._seconds
            future.set_result(value)
