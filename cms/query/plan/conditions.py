"""Filters planned: operators and functions fit the types, operands are placeholders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from cms import jsontext
from cms.digits import TooManyDigits
from cms.errors import invalid_query
from cms.query.language.ast import And, CallerKey, Or, PlainOperand
from cms.query.language.json_operators import (
    TEXT_OF_VALUE,
    JsonComparison,
    JsonForm,
    JsonParameter,
)
from cms.query.language.operators import OPERATORS, OperandKind, Operator
from cms.query.language.query_strings import JsonText
from cms.query.plan.bindings import Placeholder
from cms.query.plan.guarded import (
    AtItems,
    AtValue,
    FieldTest,
    GuardedFilter,
    GuardedOperand,
    GuardedPath,
    GuardedTest,
    GuardedValue,
)
from cms.query.plan.read_plan import (
    All,
    AnyOf,
    CallerPath,
    Exists,
    JsonOperand,
    JsonTest,
    Predicate,
    TypedTest,
    Value,
)
from cms.schema.types.field_type import Trait
from cms.schema.types.json_members import json_type, parse_scalar
from cms.schema.types.structures import parse_geometry
from cms.schema.types.texts import parse_text


# {"year(published)": {"_gt": 2000}} of the query arrives as AtValue(year of published,
# GuardedTest("_gt", (Slot(0),))) and leaves as TypedTest(the value, the operator, (a placeholder
# that parses integers,)).
def predicate_of(filter: GuardedFilter) -> Predicate:
    """Return a filter as a condition that can be printed.

    Raises `Refused` INVALID_QUERY where an operator or a function does not fit.
    """
    match filter:
        case And(items):
            return All(tuple(map(predicate_of, items)))
        case Or(items):
            return AnyOf(tuple(map(predicate_of, items)))
        case AtValue(value, test):
            return _on_value(test, value_of(value))
        case AtItems(step, inner, negated):
            return Exists(step, predicate_of(inner), negated=negated)


def _on_value(test: FieldTest, value: Value) -> Predicate:
    match test:
        case And(items):
            return All(_all_on_value(items, value))
        case Or(items):
            return AnyOf(_all_on_value(items, value))
        case GuardedTest() if value.at is not None:
            return json_test(test, value)
        case GuardedTest():
            return typed_test(test, value)


def _all_on_value(tests: Iterable[FieldTest], value: Value) -> tuple[Predicate, ...]:
    return tuple(_on_value(test, value) for test in tests)


# Values of fields


_COMPARED_KINDS = (OperandKind.ONE, OperandKind.LIST, OperandKind.TWO)
"""The kinds of operands that are values of the field's own type."""


def value_of(guarded: GuardedValue) -> Value:
    """Return a value that can be printed.

    Raises `Refused` INVALID_QUERY when function and type do not fit.
    """
    field = guarded.field
    # `count(comments)` of a to-many field counts rows of the other table: the field itself has no
    # column.
    if guarded.counted is not None:
        return Value(field, step=guarded.counted)
    if guarded.function is None:
        return Value(field, when=guarded.when, members=guarded.members, at=guarded.at)
    function = field.type.functions.get(guarded.function)
    if function is None:
        type_name = field.type.name
        reason = (
            f'There is no function "{guarded.function}" for the type {type_name} of "{field.name}"'
        )
        raise invalid_query(reason, collection=field.collection, field=field.name)
    return Value(field, function, when=guarded.when, members=guarded.members)


def typed_test(test: GuardedTest, value: Value) -> TypedTest:
    """Return a test with placeholders for its operands.

    Raises `Refused` INVALID_QUERY when operator and type do not fit.
    """
    operator = OPERATORS[test.operator]
    field = value.field
    require_fit(operator, value)
    convert = _converter(operator, value)
    label = f"{field.collection}.{field.name} {operator.name}"
    operands: list[Placeholder | CallerPath] = []
    for operand in test.operands:
        # A path is looked up by the statement itself, and so needs no conversion; its type must
        # fit.
        if isinstance(operand, GuardedPath):
            path = _caller_path(operand, label)
            operands.append(_require_comparable(path, value, operator))
        else:
            operands.append(Placeholder(operand, convert, label))
    return TypedTest(value, operator, tuple(operands))


def _caller_path(path: GuardedPath, label: str) -> CallerPath:
    # The path begins at the caller's own key; the rest of it is printed as a sub-select.
    start = Placeholder(CallerKey(path.start), str, label)
    return CallerPath(path.collection, start, path.allowed, path.steps, value_of(path.value))


def require_fit(operator: Operator, value: Value) -> None:
    """Raise `Refused` INVALID_QUERY when operator and type do not fit."""
    if operator.trait not in value.type.traits:
        field = value.field
        type_name = value.type.name
        reason = f'The operator {operator.name} does not fit the type {type_name} of "{field.name}"'
        raise invalid_query(
            reason, collection=field.collection, field=field.name, operator=operator.name
        )


def _require_comparable(path: CallerPath, value: Value, operator: Operator) -> CallerPath:
    """Refuse a comparison of two types that PostgreSQL would refuse."""
    has_same_type = path.value.type.cast == value.type.cast
    # PostgreSQL compares numbers of any two types with each other, as it does no others.
    are_numbers = Trait.ARITHMETIC in path.value.type.traits & value.type.traits
    is_comparable = has_same_type or are_numbers
    # A value inside of JSON has a type of its own in each row.
    is_json = path.value.at is not None
    if is_json or not is_comparable or operator.operand_kind not in _COMPARED_KINDS:
        reason = (
            f'"{path.value.field.name}" of the caller cannot be compared with "{value.field.name}"'
        )
        raise invalid_query(reason, collection=value.field.collection, field=value.field.name)
    # The sub-select of one value would take any of several rows, and so a different one each time.
    leads_to_many = any(step.link.to_many for step in path.steps)
    if leads_to_many and operator.operand_kind is not OperandKind.LIST:
        reason = (
            f"{operator.name} takes one value, and the path from the caller leads to many: "
            "there are _in and _nin"
        )
        raise invalid_query(reason, collection=value.field.collection, field=value.field.name)
    return path


def _converter(operator: Operator, value: Value) -> Callable[[object], object]:
    parse = value.parse
    match operator.operand_kind:
        case OperandKind.LIST:
            return partial(_parse_list, value, in_range=operator.uses_index)
        # The entries of a list are compared as a whole, and not by a pattern.
        case OperandKind.PATTERN if Trait.JSON in value.type.traits:
            return parse_text
        # The pattern is one parameter: `_starts_with` of `50%` compares with `50\%%`.
        case OperandKind.PATTERN:
            return like_pattern(operator)
        case OperandKind.GEOMETRY:
            return parse_geometry
        case _:
            return parse


def _parse_list(value: Value, operands: object, *, in_range: bool) -> list[str]:
    """Return a list of operands.

    With `in_range` whole numbers that the column's own type cannot hold are left out: they equal no
    value of it, and the cast to it would fail.
    """
    # An integer column with the operand 3000000000: compared singly it is cast to bigint and equals
    # nothing. A list is of the column's own type, and its cast would fail.
    parsed = [value.parse(item) for item in operands]  # type: ignore[attr-defined]
    column = value.field.column
    if not in_range or column is None or value.index_cast == value.cast:
        return parsed
    is_in_range = value.type.range_test(column.precision, column.scale)
    if is_in_range is None:
        return parsed
    return list(filter(is_in_range, parsed))


def like_pattern(operator: Operator) -> Callable[[object], str]:
    """Return the function that makes an operand the pattern of its operator."""
    return lambda operand: operator.pattern.format(escape_like(parse_text(operand)))


def escape_like(text: str) -> str:
    """Return a text as part of a LIKE pattern, in which `%`, `_` and `\\` match themselves."""
    # The backslash first: it would also escape those that the others get.
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


# Values inside of JSON fields


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
