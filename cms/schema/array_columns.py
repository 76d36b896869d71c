"""Columns that are arrays of simple types: read and written as JSON lists."""

from __future__ import annotations

import re

from cms.schema.bounds import bounded
from cms.schema.model import Column
from cms.schema.types import type_of_base_type
from cms.schema.types.field_type import Parse

# `character varying(20)[]`, as format_type() of PostgreSQL prints it.
_LENGTH_OF_ELEMENTS = re.compile(r"character(?: varying)?\((\d+)\)\[")


def parse_list(column: Column) -> Parse:
    """Return a function that prints a list as PostgreSQL's text of an array.

    The function raises ValueError with a reason for a value that the column does not take.
    """
    parse_element = _element_parser(column)

    def parse(value: object) -> str:
        if not isinstance(value, list):
            raise ValueError("it must be a list")
        return _print_list(value, parse_element)

    return parse


def _element_parser(column: Column) -> Parse:
    """Return a function that parses one element as a column of the element's type would take it."""
    element_type = type_of_base_type(str(column.element))
    max_length = None
    length = _LENGTH_OF_ELEMENTS.match(column.data_type)
    if length:
        max_length = int(length[1])
    # Without precision and scale: the catalogue has them of columns only, and not of elements.
    in_range = element_type.range_test(None, None)
    return bounded(element_type.parse, max_length, in_range, subject="an element")


def _print_list(items: list[object], parse_element: Parse) -> str:
    return "{" + ",".join(_print_element(item, parse_element) for item in items) + "}"


def _print_element(item: object, parse_element: Parse) -> str:
    """Print an element; a list among the elements is a further dimension."""
    if item is None:
        return "NULL"
    # PostgreSQL would drop a dimension that holds nothing, and so change the value.
    if item == []:
        raise ValueError("a list in it must not be empty")
    if isinstance(item, list):
        return _print_list(item, parse_element)
    text = parse_element(item).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
