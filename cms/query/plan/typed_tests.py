"""Operators on fields: whether they fit, and how an operand becomes a parameter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cms.errors import invalid_query
from cms.query.language.ast import CallerKey
from cms.query.language.operators import OPERATORS, OperandKind, Operator
from cms.query.plan.bindings import Placeholder
from cms.query.plan.guarded import GuardedPath, GuardedTest, GuardedValue
from cms.query.plan.read_plan import (
    CallerPath,
    TypedTest,
    Value,
)
from cms.schema.types.field_type import Trait
from cms.schema.types.structures import parse_geometry
from cms.schema.types.texts import parse_text

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
