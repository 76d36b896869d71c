"""Symbolic parameters: placeholders in a finished statement, and their values for one request."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from cms.digits import TooManyDigits, too_many_digits
from cms.errors import Problem, Refused, combined, invalid_query
from cms.query.language.ast import Caller, CallerKey, Constant, Now, PlainOperand, Slot
from cms.schema.types.date_times import present_moment


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An operand and the conversion of its value to a parameter; `label` names it in problems."""

    operand: PlainOperand
    convert: Callable[[object], object]
    label: str


class Bindings(NamedTuple):
    """The values that fill placeholders: the literals of a request, and its caller."""

    literals: Sequence[object] = ()
    user: str | None = None
    role: str | None = None


def unchanged(value: object) -> object:
    """Convert nothing: for operands of the service itself, which are parameters already."""
    return value


def bind_values(values: Sequence[object], bindings: Bindings) -> list[object]:
    """Return the parameters of one request.

    The literal of a slot without a placeholder is a parameter already: the service has made it.
    Raises `Refused` INVALID_QUERY with all literals of a wrong type.
    """
    literals = bindings.literals
    parameters: list[object] = []
    try:
        # One loop without a call for each value: a write has dozens of them.
        for value in values:
            if type(value) is Slot:
                parameters.append(literals[value.index])
            elif type(value) is Placeholder:
                parameters.append(_value_of(value, bindings))
            else:
                parameters.append(value)
        return parameters
    except Refused:
        # All values are tried only after a failure: a request without problems pays nothing for it.
        raise combined(_problems(values, bindings)) from None


def _problems(values: Sequence[object], bindings: Bindings) -> Iterator[Problem]:
    for value in values:
        try:
            if isinstance(value, Placeholder):
                _value_of(value, bindings)
        except Refused as refused:
            yield from refused.problems


def _value_of(placeholder: Placeholder, bindings: Bindings) -> object:
    operand = placeholder.operand
    try:
        if type(operand) is Slot:  # nearly all operands are slots
            literal = bindings.literals[operand.index]
        else:
            literal = _literal_value(operand, bindings)
        if isinstance(literal, tuple):
            return placeholder.convert(_list_values(literal, bindings))
        # An anonymous caller: a comparison with NULL holds for no row.
        if literal is None and isinstance(operand, CallerKey):
            return None
        return placeholder.convert(literal)
    except TooManyDigits as error:
        raise Refused(too_many_digits(error, place=placeholder.label)) from None
    except ValueError as error:
        raise invalid_query(f"{placeholder.label}: {error}", place=placeholder.label) from None


def _list_values(items: tuple[object, ...], bindings: Bindings) -> list[object]:
    """Return a list with the values of its variables; those of an anonymous caller are left out."""
    values = [_literal_value(item, bindings) for item in items]
    return [value for value in values if value is not None]


def _literal_value(operand: object, bindings: Bindings) -> object:
    """Return the literal of a slot or the value of a variable, and anything else as it is.

    The user and role of an anonymous caller are None.
    """
    match operand:
        case Slot(index):
            return bindings.literals[index]
        case Constant(value):
            return value
        case Now(amount, unit):
            return _moment(amount, unit)
        case CallerKey(Caller.USER):
            return bindings.user
        case CallerKey():
            return bindings.role
        case _:
            return operand


_DELTAS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_MONTHS = {"month": 1, "year": 12}
_OUT_OF_RANGE = "the moment is out of range"


def _moment(amount: int, unit: str) -> datetime:
    now = present_moment()
    try:
        if unit in _DELTAS:
            return now + amount * _DELTAS[unit]
        return _add_months(now, amount * _MONTHS[unit])
    except OverflowError:
        raise ValueError(_OUT_OF_RANGE) from None


def _add_months(moment: datetime, months: int) -> datetime:
    """Move by calendar months; a day that the month does not have becomes its last one."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError(_OUT_OF_RANGE)
    _, last_day = monthrange(year, month + 1)
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last_day))
