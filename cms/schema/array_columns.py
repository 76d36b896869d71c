"""Columns that are arrays of simple types: read and written as JSON lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from cms.schema.bounds import is_bounded, is_within_bounds
from cms.schema.model import Column
from cms.schema.types import TYPES, OutOfRange, TooLong, Type, type_name_of

Parse = Callable[[object], str]

_DEFAULT_LENGTH = re.compile(r"character(?: varying)?\((\d+)\)\[")


def parse_list(column: Column) -> Parse:
    """Return what makes of a list PostgreSQL's text of an array; it raises ValueError with a reason."""
    element = _element_of(column)

    def parse(value: object) -> str:
        if not isinstance(value, list):
            raise ValueError("it must be a list")
        return "{" + ",".join(_written(item, element) for item in value) + "}"

    return parse


def _element_of(column: Column) -> Parse:
    """Return what parses one element, as a column of its type would take it."""
    single = replace(column, base_type=str(column.element), precision=None, scale=None)
    kind: Type = TYPES[type_name_of(single.base_type, single.data_type, ())]
    has_bounds = is_bounded(single)
    length = _DEFAULT_LENGTH.match(column.data_type)
    max_length = int(length[1]) if length else None

    def parse(value: object) -> str:
        text = kind.parse(value)
        if max_length and len(text) > max_length:
            raise TooLong(f"an element takes at most {max_length} characters")
        if has_bounds and not is_within_bounds(single, text):
            raise OutOfRange("an element is out of range")
        return text

    return parse


def _written(item: object, element: Parse) -> str:
    """Print an element; a list in it is a further dimension, which PostgreSQL keeps only where it holds something."""
    if item is None:
        return "NULL"
    if item == []:
        raise ValueError("a list in it must not be empty")
    if isinstance(item, list):
        return "{" + ",".join(_written(inner, element) for inner in item) + "}"
    text = element(item).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
