"""Caches that are bounded by what their keys and values hold, whatever requests ask for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any

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
