"""Operators on values inside of JSON fields: comparisons of one type, chosen by the operand.

A text, a number and a boolean each compare with their own type only; with another type, an array or
an object, no comparison holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cms import jsontext
from cms.digits import TooManyDigits
from cms.errors import invalid_query
from cms.query.language.ast import PlainOperand
from cms.query.language.json_operators import (
    TEXT_OF_VALUE,
    JsonComparison,
    JsonForm,
    JsonParameter,
)
from cms.query.language.operators import OPERATORS, OperandKind, Operator
from cms.query.language.shapes import JsonText
from cms.query.plan.bindings import Placeholder
from cms.query.plan.guarded import GuardedOperand, GuardedPath, GuardedTest
from cms.query.plan.read_plan import JsonOperand, JsonTest, Value
from cms.query.plan.typed_tests import like_pattern, require_fit
from cms.schema.types.json_members import json_type, parse_scalar
from cms.schema.types.texts import parse_text

# The order of jsonb: texts, numbers, booleans, then arrays and objects, which are no keys. Between
# two of these bounds are all keys of one type; no key is a number as low as that.
_LOWEST_NUMBER = "-1e13000"
_LOWER_BOUNDS = MappingProxyType({"string": '""', "number": _LOWEST_NUMBER, "boolean": "false"})
_UPPER_BOUNDS = MappingProxyType({"string": _LOWEST_NUMBER, "number": "false", "boolean": "{}"})


def json_value(operand: object) -> object:
    """Return the value that an operand is: a text of a query string is read as JSON, if it is.

    Raises `TooManyDigits` for a number that is too long.
    """
    if not isinstance(operand, JsonText):
        return operand
    try:
        return jsontext.loads(operand)
    except TooManyDigits:
        raise
    except ValueError:
        return str(operand)


def plain_text(operand: object) -> str:
    """Return the text of an operand that compares with texts only."""
    value = json_value(operand)
    if isinstance(value, str):
        return str(value)
    # `5` is a number of JSON, and the text that was sent.
    return parse_text(operand)


def entries(operand: object) -> list[object]:
    """Return the entries of an array that `_contains` looks for: the text, and its JSON value."""
    text = str(parse_text(operand))
    value = json_value(operand)
    if value == text or isinstance(value, list | dict | None):
        return [text]
    return [text, value]


# Converters of operands


def _scalar(operand: object) -> str:
    return parse_scalar(json_value(operand))


def _scalar_or_null(operand: object) -> str:
    value = json_value(operand)
    if value is None:
        return "null"
    return parse_scalar(value)


def _scalars(operands: object) -> list[str]:
    return [_scalar(item) for item in operands]  # type: ignore[attr-defined]


def _type(operand: object) -> str:
    _scalar_or_null(operand)  # for its refusal
    return json_type(json_value(operand))


def _types(operands: object) -> list[str]:
    return sorted({_type(item) for item in operands})  # type: ignore[attr-defined]


def _lower_bound(operand: object) -> str:
    _scalar(operand)
    return _LOWER_BOUNDS[_type(operand)]


def _upper_bound(operand: object) -> str:
    _scalar(operand)
    return _UPPER_BOUNDS[_type(operand)]


def _entries(operand: object) -> list[str]:
    return list(map(parse_scalar, entries(operand)))


class _Conversion(NamedTuple):
    """How an operand becomes a parameter, and the type that this has in PostgreSQL."""

    convert: Callable[[object], object]
    cast: str


_CONVERSIONS: Mapping[JsonForm, _Conversion] = MappingProxyType(
    {
        JsonForm.SCALAR: _Conversion(_scalar, "jsonb"),
        JsonForm.SCALAR_OR_NULL: _Conversion(_scalar_or_null, "jsonb"),
        JsonForm.SCALARS: _Conversion(_scalars, "jsonb[]"),
        JsonForm.TYPE: _Conversion(_type, "text"),
        JsonForm.TYPES: _Conversion(_types, "text[]"),
        JsonForm.LOWER_BOUND: _Conversion(_lower_bound, "jsonb"),
        JsonForm.UPPER_BOUND: _Conversion(_upper_bound, "jsonb"),
        JsonForm.TEXT: _Conversion(plain_text, "text"),
        JsonForm.ENTRIES: _Conversion(_entries, "jsonb[]"),
    }
)


def json_test(test: GuardedTest, value: Value) -> JsonTest:
    """Return the test of a value inside of a JSON field, with placeholders for its operands.

    Raises `Refused` INVALID_QUERY where the operator fits no value of JSON.
    """
    operator = OPERATORS[test.operator]
    require_fit(operator, value)
    comparison = operator.in_json or _text_comparison(operator)
    label = f"{value.field.collection}.{value.key} {operator.name}"
    operands = []
    for parameter in comparison.parameters:
        conversion = _conversion(parameter.form, operator)
        operand = _without_path(test.operands[parameter.operand], value)
        placeholder = Placeholder(operand, conversion.convert, label)
        operands.append(JsonOperand(placeholder, conversion.cast))
    return JsonTest(value, comparison.sql, tuple(operands), comparison.uses_index)


def _text_comparison(operator: Operator) -> JsonComparison:
    """Return the comparison of an operator that is one of texts, or that takes no operand."""
    match operator.operand_kind:
        case OperandKind.NOTHING:
            return JsonComparison(operator.json_sql)
        case OperandKind.PATTERN:
            form = JsonForm.PATTERN
        case _:
            form = JsonForm.TEXT
    return JsonComparison(operator.sql.replace("{0}", TEXT_OF_VALUE), (JsonParameter(form),))


def _conversion(form: JsonForm, operator: Operator) -> _Conversion:
    # Where the operand stands in the pattern is up to the operator.
    if form is JsonForm.PATTERN:
        return _Conversion(like_pattern(operator), "text")
    return _CONVERSIONS[form]


def _without_path(operand: GuardedOperand, value: Value) -> PlainOperand:
    if isinstance(operand, GuardedPath):
        name = value.field.name
        reason = f'A path from the caller cannot be compared with a value inside of "{name}"'
        raise invalid_query(reason, collection=value.field.collection, field=name)
    return operand
