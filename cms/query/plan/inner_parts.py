"""The inner parts of a part of a plan, so that a walk through a plan misses none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def inner_parts(part: object) -> Iterable[object]:
    """Return the items of a tuple, or the fields of a dataclass; nothing of any other value."""
    if isinstance(part, tuple):
        return part
    kind: Any = type(part)
    return [getattr(part, name) for name in _field_names(kind)]


# Asking the dataclass each time would take longer than the walk itself.
@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    if not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind))
