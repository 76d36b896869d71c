"""Picks rows, or what belongs to them, by their indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def at_indexes(values: Sequence[T] | Mapping[int, T], indexes: Iterable[int]) -> list[T]:
    """Return the values at these indexes, in the order of the indexes."""
    return [values[index] for index in indexes]
