"""Columns that are arrays of simple types: read and written as JSON lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from cms.schema.bounds import is_bounded, is_within_bounds
from cms.schema.model import Column
from cms.schema.types import TYPES, OutOfRange, TooLong, type_name_of

Parse = Callable[[object], str]

_LENGTH_OF_ELEMENTS = re.compile(r"character(?: varying)?\((\d+)\)\[")


def parse_list(column: Column) -> Parse:
    """Return a function that prints a list as PostgreSQL's text of an array.

    The function raises ValueError with a reason for a value that the column does not take.
    """
    parse_element = _element_parser(column)

    def parse(value: object) -> str:
        if not isinstance(value, list):
            raise ValueError("it must be a list")
        return "{" + ",".join(_print_element(item, parse_element) for item in value) + "}"

    return parse


def _element_parser(column: Column) -> Parse:
    """Return a function that parses one element as a column of the element's type would take it."""
    element_column = replace(column, base_type=str(column.element), precision=None, scale=None)
    element_type = TYPES[type_name_of(element_column.base_type, element_column.data_type, ())]
    has_bounds = is_bounded(element_column)
    length = _LENGTH_OF_ELEMENTS.match(column.data_type)
    max_length = int(length[1]) if length else None

    def parse(value: object) -> str:
        text = element_type.parse(value)
        if max_length and len(text) > max_length:
            raise TooLong(f"an element takes at most {max_length} characters")
        if has_bounds and not is_within_bounds(element_column, text):
            raise OutOfRange("an element is out of range")
        return text

    return parse


def _print_element(item: object, parse_element: Parse) -> str:
    """Print an element; a list among the elements is a further dimension."""
    if item is None:
        return "NULL"
    # PostgreSQL would drop a dimension that holds nothing, and so change the value.
    if item == []:
        raise ValueError("a list in it must not be empty")
    if isinstance(item, list):
        return "{" + ",".join(_print_element(inner, parse_element) for inner in item) + "}"
    text = parse_element(item).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
