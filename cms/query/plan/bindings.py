"""Symbolic parameters: what stands in a finished statement for what changes from request to request."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cms.digits import TooManyDigits, too_many_digits
from cms.errors import Problem, Refused, combined, invalid_query
from cms.query.language.ast import CallerValue, Constant, Now, Operand, Slot


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An operand with the way in which its value becomes a parameter; `label` places a fault."""

    operand: Operand
    convert: Callable[[object], object]
    label: str


@dataclass(frozen=True, slots=True)
class Bindings:
    """What symbolic parameters are filled from: the request's literals, its caller, its moment."""

    literals: Sequence[object] = ()
    user: str | None = None
    role: str | None = None


def bind_values(values: Sequence[object], context: Bindings) -> list[object]:
    """Return the parameters of one request; raises `Refused` INVALID_QUERY with all literals of the wrong type."""
    try:
        return [
            _value_of(value, context) if isinstance(value, Placeholder) else value
            for value in values
        ]
    except Refused:
        raise combined(_problems(values, context)) from None


def _problems(values: Sequence[object], context: Bindings) -> Iterator[Problem]:
    for value in values:
        try:
            if isinstance(value, Placeholder):
                _value_of(value, context)
        except Refused as refused:
            yield from refused.problems


def _value_of(bind: Placeholder, context: Bindings) -> object:
    operand = bind.operand
    try:
        if type(operand) is Slot:  # what nearly all of them are
            found = context.literals[operand.index]
        else:
            found = _literal_value(operand, context)
        if isinstance(found, tuple):
            values = (_literal_value(item, context) for item in found)
            return bind.convert([value for value in values if value is not None])
        return None if found is None and isinstance(operand, CallerValue) else bind.convert(found)
    except TooManyDigits as error:
        raise Refused(too_many_digits(error, place=bind.label)) from None
    except ValueError as error:
        raise invalid_query(f"{bind.label}: {error}", place=bind.label) from None


def _literal_value(operand: object, context: Bindings) -> object:
    """Return the literal of a slot, the value of a variable (None for nobody's user), anything else as it is."""
    match operand:
        case Slot(index):
            return context.literals[index]
        case Constant(value):
            return value
        case Now(amount, unit):
            return _moment(amount, unit)
        case CallerValue(name):
            return context.user if name == "CURRENT_USER" else context.role
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


def _moment(amount: int, unit: str) -> datetime:
    now = datetime.now(UTC)
    try:
        return (
            now + amount * _DELTAS[unit]
            if unit in _DELTAS
            else _add_months(now, amount * _MONTHS[unit])
        )
    except OverflowError:
        raise ValueError("the moment is out of range") from None


_MONTHS = {"month": 1, "year": 12}


def _add_months(moment: datetime, months: int) -> datetime:
    """Move by calendar months; a day that the month does not have becomes its last one."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError("the moment is out of range")
    return moment.replace(
        year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1])
    )
