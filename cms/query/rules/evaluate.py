"""Values and operands of rules in Python; each operator gives the same answer as its SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from cms.query.language.operators import OperandKind, Operator
from cms.regex import compile_regex
from cms.schema.types import ALIAS
from cms.schema.types.date_times import TIMESTAMP
from cms.schema.types.field_type import FieldFunction, FieldType
from cms.schema.types.numbers import BOOLEAN, DECIMAL
from cms.schema.types.structures import JSON
from cms.schema.types.texts import TEXT, parse_text

ToComparable = Callable[[object], Any]


def value_reader(field_type: FieldType) -> ToComparable:
    """Return the function that makes values and operands of a type comparable.

    It raises ValueError for a value that is not of the type.
    """
    return field_type.comparable or field_type.parse


def operand_reader(operator: Operator, read: ToComparable) -> ToComparable:
    """Return the function that converts an operand for `fulfils`."""
    match operator.operand_kind:
        case OperandKind.LIST:
            return partial(_read_list, read)
        case OperandKind.PATTERN:
            return parse_text
        case OperandKind.REGEX:
            return lambda operand: compile_regex(parse_text(operand))
        case OperandKind.FLAG:
            return lambda operand: operand
        case _:
            return read


def _read_list(read: ToComparable, operand: object) -> list[Any]:
    if not isinstance(operand, list | tuple):
        operand = [operand]
    # A variable without a value stays null.
    return [None if item is None else read(item) for item in operand]


def fulfils(operator: Operator, value: Any, operands: Sequence[Any]) -> bool:
    """Tell whether a value that was read fulfils an operator, which no comparison with null does.

    The operator is one of rules.
    """
    if value is None:
        return operator.compare_null(*operands)
    assert operator.compare
    # A comparison with NULL is never true in SQL, whichever side it is on.
    return None not in operands and operator.compare(value, *operands)


def guess_type(value: object, operands: Sequence[object]) -> FieldType:
    """Return the type of a value that belongs to no field, by the value and its operands."""
    if isinstance(value, list | dict):
        return JSON
    classes: set[type] = set()
    for operand in operands:
        # The operand of a list is one tuple.
        if isinstance(operand, tuple):
            classes.update(map(type, operand))
        else:
            classes.add(type(operand))
    # Before numbers: to Python true and false are whole numbers.
    if isinstance(value, bool) or bool in classes:
        return BOOLEAN
    if isinstance(value, int | Decimal) or not classes.isdisjoint((int, Decimal)):
        return DECIMAL
    if datetime in classes:
        return TIMESTAMP
    return TEXT


def guess_type_of_function(name: str) -> FieldType:
    """Return the type that has a function, for a value that belongs to no field."""
    # Only lists have `count`; all other functions (year, hour …) are of moments.
    if name == "count":
        return JSON
    return TIMESTAMP


def function_of(field_type: FieldType, name: str) -> FieldFunction | None:
    """Return the function of a type; a to-many field has the count of its list."""
    if field_type is ALIAS:
        return JSON.functions.get(name)
    return field_type.functions.get(name)


def call_function(function: FieldFunction, field_type: FieldType, value: Any) -> int | None:
    """Return a function of a value, None for a value that has no such part.

    Raises ValueError for a value that is not of the type.
    """
    if value is None:
        return None
    # A list of related items is no value of its field.
    if field_type is ALIAS:
        field_type = JSON
    read = value_reader(field_type)
    return function.call(read(value))
