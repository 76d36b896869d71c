"""Truncation of values that are too large to be looked at as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

MAX_DEPTH = 100
"""Levels of a value that a log keeps: JSON is not written at any depth."""


class Truncated(NamedTuple):
    """The beginning of a value, and whether anything comes behind it."""

    value: object
    is_cut: bool


@dataclass(slots=True)
class _Budget:
    """The characters that the first part of a value may still take, roughly."""

    left: int
    is_cut: bool = False

    def is_spent(self) -> bool:
        """Tell whether nothing is left for a value that follows, which is cut then."""
        self.is_cut = self.is_cut or self.left <= 0
        return self.is_cut


def truncate(value: object, length: int) -> Truncated:
    """Return the first `length` characters of a value, roughly; no text is cut in the middle."""
    budget = _Budget(length)
    part = _part(value, budget, 0)
    return Truncated(part, budget.is_cut)


def _part(value: object, budget: _Budget, depth: int) -> object:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        members: dict[object, object] = {}
        for name, inner in value.items():
            if budget.is_spent():
                break
            budget.left -= len(str(name))
            members[name] = _part(inner, budget, depth + 1)
        return members
    if isinstance(value, list | tuple):
        parts = []
        for inner in value:
            if budget.is_spent():
                break
            parts.append(_part(inner, budget, depth + 1))
        return parts
    budget.left -= len(str(value))
    return value
