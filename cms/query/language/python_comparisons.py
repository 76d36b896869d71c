"""How operators compare in Python; each comparison gives the same answer as the operator's SQL.

The values are comparable as their types make them (`FieldType.comparable`), and never null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Comparison = Callable[..., bool]
"""Compares a value with the operands of an operator."""


def lower_text(text: str) -> str:
    """Return a text in lower case as PostgreSQL makes it: each character becomes one character."""
    # Python would make two characters of some, such as the Turkish capital dotted I, and the text
    # would then differ from the result of PostgreSQL's `lower()`.
    return "".join(character.lower()[0] for character in text)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value)


def negated(compare: Comparison) -> Comparison:
    return lambda *values: not compare(*values)


def ignoring_case(compare: Comparison) -> Comparison:
    return lambda value, text: compare(lower_text(_text(value)), lower_text(_text(text)))


def always(*values: Any) -> bool:
    return True


def never(*values: Any) -> bool:
    return False


def equals_text(value: Any, text: str) -> bool:
    return _text(value) == text


def is_one_of(value: Any, entries: list[Any]) -> bool:
    return value in entries


def is_none_of(value: Any, entries: list[Any]) -> bool:
    # NOT IN a list that holds NULL is never true in SQL.
    return None not in entries and value not in entries


def is_between(value: Any, low: Any, high: Any) -> bool:
    return bool(low <= value <= high)


def is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def is_empty_list(entries: list[Any]) -> bool:
    return entries == []


def contains(value: Any, part: str) -> bool:
    """Tell whether a text has a part, or a list that belongs to no field an entry."""
    if isinstance(value, list):
        return any(_is_text_of(entry, str(part)) for entry in value)
    # The part is a text already, except for an object that belongs to no field.
    return str(part) in _text(value)


def _is_text_of(entry: Any, text: str) -> bool:
    return not isinstance(entry, list | dict | None) and str(entry) == text


def starts_with(value: Any, part: str) -> bool:
    return _text(value).startswith(part)


def ends_with(value: Any, part: str) -> bool:
    return _text(value).endswith(part)


def matches(value: Any, pattern: Any) -> bool:
    return pattern.search(_text(value)) is not None
