"""Copies of mappings without some of their entries."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TypeVar

T = TypeVar("T")


def without(mapping: Mapping[str, T], names: Container[str]) -> dict[str, T]:
    """Return the entries of other names."""
    return {name: value for name, value in mapping.items() if name not in names}


def without_none(mapping: Mapping[str, T | None]) -> dict[str, T]:
    """Return the entries that have a value."""
    return {name: value for name, value in mapping.items() if value is not None}
