"""Symbolic parameters: what stands in a finished statement for what changes from request to request."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cms.errors import invalid_query
from cms.query.ast import Current, Now, Operand, Slot


@dataclass(frozen=True, slots=True)
class Bind:
    """An operand with the way in which its value becomes a parameter; `label` places a fault."""

    operand: Operand
    convert: Callable[[object], object]
    label: str


@dataclass(frozen=True, slots=True)
class Context:
    """What symbolic parameters are filled from: the request's literals, its caller, its moment."""

    literals: Sequence[object] = ()
    user: str | None = None
    role: str | None = None


def bound(values: Sequence[object], context: Context) -> list[object]:
    """Return the parameters of one request; raises `Refused` INVALID_QUERY for a literal of the wrong type."""
    return [_fill(value, context) if isinstance(value, Bind) else value for value in values]


def _fill(bind: Bind, context: Context) -> object:
    try:
        match bind.operand:
            case Slot(index):
                return bind.convert(context.literals[index])
            case Now(amount, unit):
                return bind.convert(_moment(amount, unit).isoformat())
            case Current(name):
                found = context.user if name == "CURRENT_USER" else context.role
                return None if found is None else bind.convert(found)
    except ValueError as error:
        raise invalid_query(f"{bind.label}: {error}", place=bind.label) from None


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
        return now + amount * _DELTAS[unit] if unit in _DELTAS else _months(now, amount * _MONTHS[unit])
    except OverflowError:
        raise ValueError("the moment is out of range") from None


_MONTHS = {"month": 1, "year": 12}


def _months(moment: datetime, months: int) -> datetime:
    """Move by calendar months; a day that the month does not have becomes its last one."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError("the moment is out of range")
    return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))
