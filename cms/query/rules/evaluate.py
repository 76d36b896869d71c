"""The operators in Python, for rules that are tried on payloads: each answers as its SQL does."""

from __future__ import annotations

import operator as compare
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from cms.query.language import functions
from cms.query.language.operators import Operator, Takes
from cms.regex import compile_regex
from cms.schema.types import TYPES, Family, Type, parse_text

ToComparable = Callable[[object], Any]
Comparator = Callable[..., bool]

_MOMENTS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "datetime": datetime.fromisoformat,
        "timestamp": datetime.fromisoformat,
    }
)


def value_reader(kind: Type, cast: str) -> ToComparable:
    """Return what turns a value or an operand of a type into something to compare; it raises ValueError."""
    match kind.family:
        case Family.JSON:
            return lambda found: found
        case Family.BOOLEAN:
            return lambda found: kind.parse(found) == "true"
        case Family.MOMENT:
            return lambda found: _MOMENTS[kind.name](kind.parse(found))
        case Family.NUMBER:
            stored = _FLOAT_CASTS.get(cast, Decimal)
            return lambda found: stored(kind.parse(found))
        case _:
            return kind.parse


def operand_reader(operator: Operator, read: ToComparable) -> ToComparable:
    """Return what turns an operand of an operator into what `fulfils` takes."""
    match operator.takes:
        case Takes.LIST:
            return lambda found: [
                None if item is None else read(item) for item in _read_items(found)
            ]
        case Takes.PATTERN:
            return parse_text
        case Takes.REGEX:
            return lambda found: compile_regex(parse_text(found))
        case Takes.FLAG:
            return lambda found: found
        case _:
            return read


def fulfils(operator: Operator, value: Any, operands: Sequence[Any]) -> bool:
    """Tell whether a value that was read passes; a null passes what asks for it only, and `_nin` of nothing."""
    if value is None:
        return operator.name in ("_null", "_empty") or (
            operator.name == "_nin" and operands[0] == []
        )
    return None not in operands and _COMPARATORS[operator.name](value, *operands)


def guess_type(value: object, operands: Sequence[object]) -> Type:
    """Return the type of a value that no field describes, from what it is and what it is compared with."""
    single = [
        item
        for operand in operands
        for item in (operand if isinstance(operand, tuple) else (operand,))
    ]
    if isinstance(value, list | dict):
        return TYPES["json"]
    if isinstance(value, bool) or any(isinstance(item, bool) for item in single):
        return TYPES["boolean"]
    if isinstance(value, int | Decimal) or any(isinstance(item, int | Decimal) for item in single):
        return TYPES["decimal"]
    return (
        TYPES["timestamp"] if any(isinstance(item, datetime) for item in single) else TYPES["text"]
    )


def call_function(function: str, kind: Type, value: Any) -> int | None:
    """Return a function of a value, or None where there is none; ValueError for a value that is not of the type."""
    if value is None:
        return None
    if function == "count":
        entries = value_reader(kind, "")(value) if kind.family is Family.CSV else value
        found = entries.split(",") if isinstance(entries, str) and entries else entries
        return len(found) if isinstance(found, list | str) else None
    moment = value_reader(kind, "")(value)
    if function == "week":
        return int(moment.isocalendar().week)
    if function == "weekday":
        return int(moment.isoweekday() % 7)
    return int(getattr(moment, function))


def takes_function(function: str, kind: Type) -> bool:
    """Tell whether a type has the function; a to-many field has its count."""
    return (kind.family is Family.ALIAS and function == "count") or functions.function_sql(
        function, kind.name
    ) is not None


def _read_items(found: object) -> Sequence[object]:
    return found if isinstance(found, list | tuple) else [found]


def _single_precision(text: str) -> float:
    return float(struct.unpack("f", struct.pack("f", float(text)))[0])


_FLOAT_CASTS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"real": _single_precision, "double precision": float}
)


def lower_text(text: str) -> str:
    """Return a text in small letters as PostgreSQL makes them, letter by letter and one for one."""
    return "".join(letter.lower()[0] for letter in text)


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def _contains(value: Any, part: str) -> bool:
    """A list that no field describes contains an entry, a text a part of it."""
    if isinstance(value, list):
        return any(
            str(entry) == str(part) for entry in value if not isinstance(entry, list | dict | None)
        )
    return part in _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


_WORDS: Mapping[str, Callable[[Any, str], bool]] = MappingProxyType(
    {
        "contains": _contains,
        "starts_with": lambda value, part: _text(value).startswith(part),
        "ends_with": lambda value, part: _text(value).endswith(part),
        "eq": lambda value, part: _text(value) == part,
    }
)


def _not(judge: Comparator) -> Comparator:
    return lambda *given: not judge(*given)


def _ignoring_case(judge: Comparator) -> Comparator:
    return lambda value, part: judge(lower_text(_text(value)), lower_text(part))


def _between(value: Any, low: Any, high: Any) -> bool:
    return bool(low <= value <= high)


_POSITIVE: Mapping[str, Comparator] = {
    "eq": compare.eq,
    "in": lambda value, entries: value in entries,
    "between": _between,
    "empty": _is_empty,
    **{name: judge for name, judge in _WORDS.items() if name != "eq"},
    **{f"i{name}": _ignoring_case(judge) for name, judge in _WORDS.items()},
}

_COMPARATORS: Mapping[str, Comparator] = MappingProxyType(
    {
        **{f"_{name}": judge for name, judge in _POSITIVE.items()},
        **{f"_n{name}": _not(judge) for name, judge in _POSITIVE.items()},
        "_neq": compare.ne,
        "_nin": lambda value, entries: None not in entries and value not in entries,
        "_null": lambda value: False,
        "_nnull": lambda value: True,
        "_lt": compare.lt,
        "_lte": compare.le,
        "_gt": compare.gt,
        "_gte": compare.ge,
        "_regex": lambda value, pattern: pattern.search(_text(value)) is not None,
    }
)
