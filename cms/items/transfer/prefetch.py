"""The next element of an iterator, made while the program waits for something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Yields what an iterator does; `advance` makes the next element early.

    What the iterator raises meanwhile is raised when that element is taken.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._ready: list[T] = []
        self._error: Exception | None = None

    def advance(self) -> None:
        """Make the next element unless it is made already; raises nothing."""
        if self._ready or self._error:
            return
        try:
            self._ready.append(next(self._items))
        except Exception as error:
            self._error = error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self.advance()
        if self._ready:
            return self._ready.pop()
        assert self._error
        raise self._error
