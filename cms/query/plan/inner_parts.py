"""What the parts of a plan consist of, so that a walk through them misses no kind of part."""

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


# To ask the dataclass each time takes longer than the walk itself.
@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    if not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind))
