"""Operators met with fields: do they fit, and how does an operand become a parameter (decisions, section 15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cms.errors import invalid_query
from cms.query.language.ast import CallerValue, OperatorTest, Slot
from cms.query.language.operators import OPERATORS, Operator, Takes
from cms.query.plan.bindings import Placeholder
from cms.query.plan.resolved import AnyOf, CallerPath, Predicate, SearchMatch, TypedTest, Value
from cms.schema.bounds import is_within_bounds
from cms.schema.types import Family, parse_geometry, parse_text


def typed_test(
    test: OperatorTest, value: Value, subject: Callable[[CallerValue, str], CallerPath]
) -> TypedTest:
    """Return the test as SQL will make it; raises `Refused` INVALID_QUERY when operator and type do not fit.

    `subject` resolves a path from the caller.
    """
    operator = OPERATORS[test.operator]
    field = value.field
    require_fit(operator, value)
    convert = _converter(operator, value)
    label = f"{field.collection}.{field.name} {operator.name}"
    operands = (
        _require_comparable(subject(operand, label), value, operator)
        if isinstance(operand, CallerValue) and operand.path
        else Placeholder(operand, convert, label)
        for operand in test.operands
    )
    return TypedTest(value, operator, tuple(operands))


def require_fit(operator: Operator, value: Value) -> None:
    """Raise `Refused` INVALID_QUERY when operator and type do not fit."""
    if value.family not in operator.families:
        field = value.field
        fault = f'The operator {operator.name} does not fit the type {value.type.name} of "{field.name}"'
        raise invalid_query(
            fault, collection=field.collection, field=field.name, operator=operator.name
        )


def _require_comparable(found: CallerPath, value: Value, operator: Operator) -> CallerPath:
    """Refuse what PostgreSQL would refuse: a comparison of two types."""
    same = found.value.type.cast == value.type.cast or {found.value.family, value.family} == {
        Family.NUMBER
    }
    if not same or operator.takes not in (Takes.ONE, Takes.LIST, Takes.TWO):
        fault = (
            f'"{found.value.field.name}" of the caller cannot be compared with "{value.field.name}"'
        )
        raise invalid_query(fault, collection=value.field.collection, field=value.field.name)
    if operator.takes is not Takes.LIST and any(step.link.to_many for step in found.steps):
        fault = f"{operator.name} takes one value, and the path from the caller leads to many: there are _in and _nin"
        raise invalid_query(fault, collection=value.field.collection, field=value.field.name)
    return found


def _converter(operator: Operator, value: Value) -> Callable[[object], object]:
    parse = value.parse
    match operator.takes:
        case Takes.LIST:
            return partial(_parse_list, value, in_range=operator.name == "_in")
        case Takes.PATTERN if value.family is Family.LIST:
            return parse_text
        case Takes.PATTERN:
            return lambda found: operator.pattern.format(escape_like(parse_text(found)))
        case Takes.GEOMETRY:
            return parse_geometry
        case _:
            return parse


def _parse_list(value: Value, operands: object, *, in_range: bool) -> list[str]:
    """Return a list of operands; with `in_range`, without whole numbers that the column's own type cannot hold."""
    parsed = [value.parse(item) for item in operands]  # type: ignore[attr-defined]
    column = value.field.column
    if not in_range or column is None or value.index_cast == value.cast:
        return parsed
    return [text for text in parsed if is_within_bounds(column, text)]


def escape_like(text: str) -> str:
    """Return a text for use in a LIKE pattern, where `%`, `_` and `\\` are ordinary characters of it."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def search_matches(values: Sequence[Value], word: Slot) -> Predicate:
    """Return the search for a word in the values; in none it finds nothing."""
    return AnyOf(tuple(SearchMatch(value, _word(value, word)) for value in values))


def _word(value: Value, word: Slot) -> Placeholder:
    if value.family is Family.TEXT:
        return Placeholder(word, parse_text, "search")
    return Placeholder(word, lambda found: _parse_or_null(value.parse, found), "search")


def _parse_or_null(parse: Callable[[object], str], found: object) -> str | None:
    """A word that is no number equals no number; as NULL it leaves the statement the same for every word."""
    try:
        return parse(found)
    except ValueError:
        return None
