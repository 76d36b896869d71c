"""What comes next, made while something else is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Yields what an iterator does; `advance` has the next element made before it is asked for.

    What the iterator raises then is raised when that element is asked for.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._ready: list[T] = []
        self._fault: Exception | None = None

    def advance(self) -> None:
        """Make the next element, unless it is there; raises nothing."""
        if self._ready or self._fault:
            return
        try:
            self._ready.append(next(self._items))
        except Exception as fault:
            self._fault = fault

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self.advance()
        if self._ready:
            return self._ready.pop()
        assert self._fault
        raise self._fault
