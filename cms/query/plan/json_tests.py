"""Operators on values inside of JSON fields: comparisons of one type, chosen by the operand.

A text, a number and a boolean each compare with their own type only; with another type, an array or
an object, no comparison holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cms import jsontext
from cms.digits import TooManyDigits
from cms.errors import invalid_query
from cms.query.language.ast import PlainOperand
from cms.query.language.operators import OPERATORS, OperandKind, Operator
from cms.query.language.shapes import JsonText
from cms.query.plan.bindings import Placeholder
from cms.query.plan.checks import like_pattern, require_fit
from cms.query.plan.guarded import GuardedOperand, GuardedPath, GuardedTest
from cms.query.plan.resolved import JsonOperand, JsonTest, Value
from cms.schema.types.json_members import json_type, parse_scalar
from cms.schema.types.texts import parse_text

# Templates: {0} is the value, as json and null where it is missing; the others are operands. An
# index is over the key of the value, and so a comparison is one of keys.
_KEY = "system_json_key({0})"
_TEXT = "system_json_text({0})"
_TYPE = "json_typeof({0})"
# A query string can compare with null as well: `filter[meta.price][_eq]=null`.
_EQUAL = f"({_KEY} = {{1}} OR {{1}} = 'null' AND {{0}} IS NULL)"
_UNEQUAL = f"({_KEY} <> {{1}} AND {_TYPE} = {{2}} OR {{1}} = 'null' AND {{0}} IS NOT NULL)"
_BETWEEN = f"({_KEY} BETWEEN {{1}} AND {{2}} AND {_KEY} >= {{3}} AND {_KEY} < {{4}})"
_NOT_BETWEEN = f"({_KEY} NOT BETWEEN {{1}} AND {{2}} AND {_TYPE} = {{3}} AND {_TYPE} = {{4}})"
_IN = f"{_KEY} = ANY ({{1}})"
_NOT_IN = f"({_KEY} <> ALL ({{1}}) AND ({_TYPE} = ANY ({{2}}) OR cardinality({{2}}) = 0))"
_ENTRIES = "(SELECT FROM json_array_elements({0}) AS e WHERE system_json_key(e.value) = ANY ({2}))"
_CONTAINS = (
    f"CASE {_TYPE} WHEN 'string' THEN {_TEXT} LIKE {{1}} WHEN 'array' THEN EXISTS {_ENTRIES} END"
)
_NOT_CONTAINS = (
    f"CASE {_TYPE} WHEN 'string' THEN {_TEXT} NOT LIKE {{1}} "
    f"WHEN 'array' THEN NOT EXISTS {_ENTRIES} END"
)

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
    # `5` is a number of JSON, and the text that was sent.
    return str(value) if isinstance(value, str) else parse_text(operand)


def entries(operand: object) -> list[object]:
    """Return the entries of an array that `_contains` looks for: the text, and what it stands for."""
    text = str(parse_text(operand))
    value = json_value(operand)
    return [text] if value == text or isinstance(value, list | dict | None) else [text, value]


# Converters of operands


def _scalar(operand: object) -> str:
    return parse_scalar(json_value(operand))


def _scalar_or_null(operand: object) -> str:
    value = json_value(operand)
    return "null" if value is None else parse_scalar(value)


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


Parameter = tuple[int, Callable[[object], object], str]
"""The number of an operand, what is made of it, and its type in PostgreSQL."""

_SCALAR: Parameter = (0, _scalar, "jsonb")
_LOWER: Parameter = (0, _lower_bound, "jsonb")
_UPPER: Parameter = (0, _upper_bound, "jsonb")
_SECOND: Parameter = (1, _scalar, "jsonb")
_EITHER: Parameter = (0, _scalar_or_null, "jsonb")

# The bounds are in the statement whatever the operand: their values follow from it.
_COMPARISONS: Mapping[str, tuple[str, tuple[Parameter, ...]]] = MappingProxyType(
    {
        "_eq": (_EQUAL, (_EITHER,)),
        "_neq": (_UNEQUAL, (_EITHER, (0, _type, "text"))),
        "_lt": (f"({_KEY} < {{1}} AND {_KEY} >= {{2}})", (_SCALAR, _LOWER)),
        "_lte": (f"({_KEY} <= {{1}} AND {_KEY} >= {{2}})", (_SCALAR, _LOWER)),
        "_gt": (f"({_KEY} > {{1}} AND {_KEY} < {{2}})", (_SCALAR, _UPPER)),
        "_gte": (f"({_KEY} >= {{1}} AND {_KEY} < {{2}})", (_SCALAR, _UPPER)),
        "_between": (_BETWEEN, (_SCALAR, _SECOND, (1, _lower_bound, "jsonb"), _UPPER)),
        "_nbetween": (_NOT_BETWEEN, (_SCALAR, _SECOND, (0, _type, "text"), (1, _type, "text"))),
        "_in": (_IN, ((0, _scalars, "jsonb[]"),)),
        "_nin": (_NOT_IN, ((0, _scalars, "jsonb[]"), (0, _types, "text[]"))),
        "_null": ("{0} IS NULL", ()),
        "_nnull": ("{0} IS NOT NULL", ()),
        "_contains": (
            _CONTAINS,
            ((0, like_pattern(OPERATORS["_contains"]), "text"), (0, _entries, "jsonb[]")),
        ),
        "_ncontains": (
            _NOT_CONTAINS,
            ((0, like_pattern(OPERATORS["_ncontains"]), "text"), (0, _entries, "jsonb[]")),
        ),
    }
)


_SERVED_BY_INDEX = frozenset({"_eq", "_in", "_lt", "_lte", "_gt", "_gte", "_between"})


def json_test(test: GuardedTest, value: Value) -> JsonTest:
    """Return the test of a value inside of a JSON field, with placeholders for its operands.

    Raises `Refused` INVALID_QUERY where the operator fits no value of JSON.
    """
    operator = OPERATORS[test.operator]
    require_fit(operator, value)
    sql, parameters = _COMPARISONS.get(operator.name) or _text_comparison(operator)
    label = f"{value.field.collection}.{value.key} {operator.name}"
    operands = []
    for index, convert, cast in parameters:
        operand = _without_path(test.operands[index], value)
        operands.append(JsonOperand(Placeholder(operand, convert, label), cast))
    return JsonTest(value, sql, tuple(operands), operator.name in _SERVED_BY_INDEX)


def _text_comparison(operator: Operator) -> tuple[str, tuple[Parameter, ...]]:
    """Return the comparison of an operator that is one of texts, or that takes no operand."""
    match operator.operand_kind:
        case OperandKind.NOTHING:
            return operator.json_sql, ()
        case OperandKind.PATTERN:
            convert = like_pattern(operator)
        case _:
            convert = plain_text
    return operator.sql.replace("{0}", _TEXT), ((0, convert, "text"),)


def _without_path(operand: GuardedOperand, value: Value) -> PlainOperand:
    if isinstance(operand, GuardedPath):
        name = value.field.name
        reason = f'A path from the caller cannot be compared with a value inside of "{name}"'
        raise invalid_query(reason, collection=value.field.collection, field=name)
    return operand
