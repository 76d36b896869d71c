"""Operators met with fields: do they fit, and how does an operand become a parameter (decisions, section 15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cms.errors import invalid_query
from cms.query.ast import Current, Slot, Test
from cms.query.bind import Bind
from cms.query.operators import OPERATORS, Operator, Takes
from cms.query.resolved import AnyOf, Check, Hit, Predicate, Subject, Value
from cms.schema.bounds import holds
from cms.schema.types import Family, parse_geometry, parse_text


def check(test: Test, value: Value, subject: Callable[[Current, str], Subject]) -> Check:
    """Return the test as SQL will make it; raises `Refused` INVALID_QUERY when operator and type do not fit.

    `subject` resolves a path from the caller.
    """
    operator = OPERATORS[test.operator]
    field = value.field
    require_fit(operator, value)
    convert = _converter(operator, value)
    label = f"{field.collection}.{field.name} {operator.name}"
    operands = (
        _comparable(subject(operand, label), value, operator)
        if isinstance(operand, Current) and operand.path
        else Bind(operand, convert, label)
        for operand in test.operands
    )
    return Check(value, operator, tuple(operands))


def require_fit(operator: Operator, value: Value) -> None:
    """Raise `Refused` INVALID_QUERY when operator and type do not fit."""
    if value.family not in operator.families:
        field = value.field
        fault = f'The operator {operator.name} does not fit the type {value.type.name} of "{field.name}"'
        raise invalid_query(fault, collection=field.collection, field=field.name, operator=operator.name)


def _comparable(found: Subject, value: Value, operator: Operator) -> Subject:
    """Refuse what PostgreSQL would refuse: a comparison of two types."""
    same = found.value.type.cast == value.type.cast or {found.value.family, value.family} == {Family.NUMBER}
    if not same or operator.takes not in (Takes.ONE, Takes.LIST, Takes.TWO):
        fault = f'"{found.value.field.name}" of the caller cannot be compared with "{value.field.name}"'
        raise invalid_query(fault, collection=value.field.collection, field=value.field.name)
    if operator.takes is not Takes.LIST and any(step.link.to_many for step in found.steps):
        fault = f"{operator.name} takes one value, and the path from the caller leads to many: there are _in and _nin"
        raise invalid_query(fault, collection=value.field.collection, field=value.field.name)
    return found


def _converter(operator: Operator, value: Value) -> Callable[[object], object]:
    parse = value.parse
    match operator.takes:
        case Takes.LIST:
            return partial(_listed, value, own=operator.name == "_in")
        case Takes.PATTERN if value.family is Family.LIST:
            return parse_text
        case Takes.PATTERN:
            return lambda found: operator.pattern.format(escaped(parse_text(found)))
        case Takes.SHAPE:
            return parse_geometry
        case _:
            return parse


def _listed(value: Value, operands: object, *, own: bool) -> list[str]:
    """Return a list of operands; with `own`, without whole numbers that the column's own type cannot hold."""
    parsed = [value.parse(item) for item in operands]  # type: ignore[attr-defined]
    column = value.field.column
    if not own or column is None or value.cast_by_index == value.cast:
        return parsed
    return [text for text in parsed if holds(column, text)]


def escaped(text: str) -> str:
    """Return a text for use in a LIKE pattern, where `%`, `_` and `\\` are ordinary characters of it."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def hits(values: Sequence[Value], word: Slot) -> Predicate:
    """Return the search for a word in the values; in none it finds nothing."""
    return AnyOf(tuple(Hit(value, _word(value, word)) for value in values))


def _word(value: Value, word: Slot) -> Bind:
    if value.family is Family.TEXT:
        return Bind(word, parse_text, "search")
    return Bind(word, lambda found: _or_null(value.parse, found), "search")


def _or_null(parse: Callable[[object], str], found: object) -> str | None:
    """A word that is no number equals no number; as NULL it leaves the statement the same for every word."""
    try:
        return parse(found)
    except ValueError:
        return None
