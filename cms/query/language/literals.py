"""Literals set aside while a request is parsed, so that the tree does not depend on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from cms.query.language.ast import (
    Caller,
    CallerKey,
    CallerValue,
    Constant,
    Now,
    Operand,
    Slot,
)
from cms.query.language.limits import MAX_PATH_STEPS, Tally
from cms.query.language.query_strings import JsonText, OperandGap
from cms.schema.names import parse_path

# `$NOW`, `$NOW(-1 day)`, `$NOW(+ 2 hours)`. Nine digits at most: more cannot be a date, and int()
# stays fast. Blanks can follow each other in one way only: a long run of them is tried once.
_NOW = re.compile(r"\$NOW(?:\(\s*(?:([+-])\s*)?([0-9]{1,9})\s*([a-z]+)\s*\))?")
_UNITS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "millisecond": ("ms", "milliseconds", "msec", "msecs"),
        "second": ("s", "sec", "secs", "seconds"),
        "minute": ("m", "min", "mins", "minutes"),
        "hour": ("h", "hr", "hrs", "hours"),
        "day": ("d", "days"),
        "week": ("w", "weeks"),
        "month": ("mo", "months"),
        "year": ("y", "yr", "yrs", "years"),
    }
)


def _units_by_name() -> dict[str, str]:
    units: dict[str, str] = {}
    for unit, other_names in _UNITS.items():
        units[unit] = unit
        for name in other_names:
            units[name] = unit
    return units


_UNIT_BY_NAME = MappingProxyType(_units_by_name())
_CALLERS = MappingProxyType({f"${caller}": caller for caller in Caller})


class Literals:
    """The literals of one request, in the order in which its tree refers to them."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self.tally = Tally()

    def slot(self, value: object) -> Slot:
        """Set a literal aside and return its slot."""
        self.values.append(value)
        return Slot(len(self.values) - 1)

    def literal(self, value: object) -> Operand:
        """Return the operand that represents a literal in the tree."""
        return self.slot(value)

    def operand(self, value: object) -> Operand:
        """Return a variable as itself and anything else as a literal.

        Raises ValueError for a variable that does not exist.
        """
        parsed = parse_variable(value)
        if isinstance(parsed, Now | CallerKey | CallerValue):
            return parsed
        return self.literal(value)


class RuleLiterals(Literals):
    """The literals of a rule stay in its tree: they are the same in every request."""

    def literal(self, value: object) -> Operand:
        return Constant(value)


def parse_variable(value: object) -> object:
    """Return a variable parsed, and any other value as it is; ValueError for a malformed one."""
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    start, dot, rest = value.partition(".")
    if start in _CALLERS:
        caller = _CALLERS[start]
        if not dot:
            return CallerKey(caller)
        if rest.count(".") >= MAX_PATH_STEPS:
            raise ValueError(f"a path from the caller has at most {MAX_PATH_STEPS} steps")
        return CallerValue(caller, parse_path(rest))
    if value.startswith("$NOW"):
        return _now(value)
    # Any other text with a dollar sign is a plain value: prices and passwords may begin with one.
    return value


def _now(text: str) -> Now:
    matched = _NOW.fullmatch(text)
    if not matched:
        raise ValueError('a time is written like "$NOW" or "$NOW(-1 hour)"')
    sign, digits, unit_name = matched.groups()
    if digits is None:
        return Now()
    unit = _UNIT_BY_NAME.get(unit_name)
    if unit is None:
        raise ValueError(f"a unit of time is one of {', '.join(_UNITS)}")
    amount = int(digits)
    if sign == "-":
        amount = -amount
    return Now(amount, unit)


class JsonLiterals(Literals):
    """Sets the texts of a query string aside as `JsonText`; they count with all other literals."""

    def __init__(self, literals: Literals) -> None:
        super().__init__()
        self.values = literals.values
        self.tally = literals.tally

    def literal(self, value: object) -> Operand:
        return super().literal(_as_json(value))


def _as_json(value: object) -> object:
    match value:
        case OperandGap():
            return value.as_json()
        case str():
            return JsonText(value)
        case tuple():
            return tuple(map(_as_json, value))
        case _:
            return value
