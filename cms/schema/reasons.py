"""Reasons why a value is refused, as several kinds of problems give them."""

from __future__ import annotations

from collections.abc import Iterable

NO_ARRAY = "it must be an array"
NO_OBJECT = "it must be an object"
NO_STRING = "it must be a string"
NO_NAME_OR_NULL = "it must be a name or null"
NO_SUCH_FIELD = "there is no such field"


def not_one_of(allowed: Iterable[str]) -> str:
    """Return the reason of a value that is not among the allowed ones."""
    return f"it must be one of {', '.join(allowed)}"
