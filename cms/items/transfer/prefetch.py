"""The next element of an iterator, made while the program waits for something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Yields the elements of an iterator; `advance` takes the next one early.

    An error that the iterator raises meanwhile is raised when that element would be yielded.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        # At most one: each element may be as large as a batch of an import.
        self._ready: list[T] = []
        self._error: Exception | None = None

    def advance(self) -> None:
        """Take the next element unless there is one already; raises nothing."""
        if self._ready or self._error:
            return
        try:
            self._ready.append(next(self._items))
        except Exception as error:
            # StopIteration as well, which ends the iteration in its turn.
            self._error = error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self.advance()
        if self._ready:
            return self._ready.pop()
        assert self._error
        try:
            raise self._error
        finally:
            # Its traceback has this frame, and so this object: they would keep each other.
            self._error = None
