"""The operators in Python, for rules on payloads; each gives the same answer as its SQL."""

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
    """Return the function that makes values and operands of a type comparable.

    It raises ValueError for a value that is not of the type.
    """
    match kind.family:
        case Family.JSON:
            return lambda value: value
        case Family.BOOLEAN:
            return lambda value: kind.parse(value) == "true"
        case Family.MOMENT:
            return lambda value: _MOMENTS[kind.name](kind.parse(value))
        case Family.NUMBER:
            # Values are compared with the precision in which PostgreSQL would store them.
            to_number = _FLOAT_CASTS.get(cast, Decimal)
            return lambda value: to_number(kind.parse(value))
        case _:
            return kind.parse


def operand_reader(operator: Operator, read: ToComparable) -> ToComparable:
    """Return the function that makes an operand what `fulfils` takes."""
    match operator.takes:
        case Takes.LIST:
            return lambda operand: [
                None if item is None else read(item) for item in _as_sequence(operand)
            ]
        case Takes.PATTERN:
            return parse_text
        case Takes.REGEX:
            return lambda operand: compile_regex(parse_text(operand))
        case Takes.FLAG:
            return lambda operand: operand
        case _:
            return read


def fulfils(operator: Operator, value: Any, operands: Sequence[Any]) -> bool:
    """Tell whether a value that was read fulfils an operator.

    As in SQL, null fulfils only `_null`, `_empty`, and `_nin` of an empty list.
    """
    if value is None:
        if operator.name == "_nin":
            return bool(operands[0] == [])
        return operator.name in ("_null", "_empty")
    return None not in operands and _COMPARATORS[operator.name](value, *operands)


def guess_type(value: object, operands: Sequence[object]) -> Type:
    """Return the type of a value that belongs to no field, by the value and its operands."""
    items: list[object] = []
    for operand in operands:
        if isinstance(operand, tuple):
            items.extend(operand)
        else:
            items.append(operand)
    if isinstance(value, list | dict):
        return TYPES["json"]
    if isinstance(value, bool) or any(isinstance(item, bool) for item in items):
        return TYPES["boolean"]
    if isinstance(value, int | Decimal) or any(isinstance(item, int | Decimal) for item in items):
        return TYPES["decimal"]
    if any(isinstance(item, datetime) for item in items):
        return TYPES["timestamp"]
    return TYPES["text"]


def call_function(function: str, kind: Type, value: Any) -> int | None:
    """Return a function of a value, None of what has no such part.

    Raises ValueError for a value that is not of the type.
    """
    if value is None:
        return None
    if function == "count":
        return _count_entries(kind, value)
    moment = value_reader(kind, "")(value)
    if function == "week":
        return int(moment.isocalendar().week)
    if function == "weekday":
        return int(moment.isoweekday() % 7)
    return int(getattr(moment, function))


def _count_entries(kind: Type, value: Any) -> int | None:
    """Return the number of entries of a list or of a text with commas."""
    entries = value_reader(kind, "")(value) if kind.family is Family.CSV else value
    if isinstance(entries, str) and entries:
        entries = entries.split(",")
    return len(entries) if isinstance(entries, list | str) else None


def takes_function(function: str, kind: Type) -> bool:
    """Tell whether a type has the function; a to-many field has its count."""
    if kind.family is Family.ALIAS and function == "count":
        return True
    return functions.function_sql(function, kind.name) is not None


def _as_sequence(operand: object) -> Sequence[object]:
    return operand if isinstance(operand, list | tuple) else [operand]


def _single_precision(text: str) -> float:
    return float(struct.unpack("f", struct.pack("f", float(text)))[0])


_FLOAT_CASTS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"real": _single_precision, "double precision": float}
)


def lower_text(text: str) -> str:
    """Return a text in lower case as PostgreSQL makes it: each character becomes one character."""
    return "".join(letter.lower()[0] for letter in text)


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list | dict) and not value


def _contains(value: Any, part: str) -> bool:
    """Tell whether a text has a part, or a list that belongs to no field an entry."""
    if isinstance(value, list):
        entries = [entry for entry in value if not isinstance(entry, list | dict | None)]
        return any(str(entry) == str(part) for entry in entries)
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


def _not(compare_values: Comparator) -> Comparator:
    return lambda *values: not compare_values(*values)


def _ignoring_case(compare_texts: Comparator) -> Comparator:
    return lambda value, part: compare_texts(lower_text(_text(value)), lower_text(part))


def _between(value: Any, low: Any, high: Any) -> bool:
    return bool(low <= value <= high)


_POSITIVE: Mapping[str, Comparator] = {
    "eq": compare.eq,
    "in": lambda value, entries: value in entries,
    "between": _between,
    "empty": _is_empty,
    **{name: comparator for name, comparator in _WORDS.items() if name != "eq"},
    **{f"i{name}": _ignoring_case(comparator) for name, comparator in _WORDS.items()},
}

_COMPARATORS: Mapping[str, Comparator] = MappingProxyType(
    {
        **{f"_{name}": comparator for name, comparator in _POSITIVE.items()},
        **{f"_n{name}": _not(comparator) for name, comparator in _POSITIVE.items()},
        "_neq": compare.ne,
        # NOT IN a list that holds NULL is never true in SQL.
        "_nin": lambda value, entries: None not in entries and value not in entries,
        # `fulfils` has answered for null already.
        "_null": lambda value: False,
        "_nnull": lambda value: True,
        "_lt": compare.lt,
        "_lte": compare.le,
        "_gt": compare.gt,
        "_gte": compare.ge,
        "_regex": lambda value, pattern: pattern.search(_text(value)) is not None,
    }
)
