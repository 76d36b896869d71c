"""Caches: of many values, bounded by what they hold, and of one that takes time to compute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

from cachebox import LRUCache

_WEIGHT_OF_AN_OBJECT = 50
"""What a value weighs beside its characters, as so many bytes of memory."""


def weight_of(value: object) -> int:
    """Return about how much memory a value takes, with all that it consists of."""
    if isinstance(value, str | bytes):
        return _WEIGHT_OF_AN_OBJECT + len(value)
    parts: tuple[object, ...] = ()
    if isinstance(value, tuple | frozenset):
        parts = tuple(value)
    elif is_dataclass(value):
        parts = tuple(getattr(value, field.name) for field in fields(value))
    return _WEIGHT_OF_AN_OBJECT + sum(map(weight_of, parts))


def bounded_cache(
    max_weight: int, weigh_value: Callable[[Any], int] = weight_of
) -> LRUCache[Hashable, Any]:
    """Return an empty cache, whose entries weigh at most `max_weight` together.

    `weigh_value` is for values that share their parts with others. An entry that is larger than
    the cache counts as all of it, because the cache would not take it otherwise.
    """
    return LRUCache(
        max_weight,
        getsizeof=lambda key, value: min(weight_of(key) + weigh_value(value), max_weight),
    )


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
