"""The types of values: read from an operand, shown in an answer, put in order, given to a
function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tests.model.shape import Collection, Row, Tables

TEXTS = frozenset({"string", "csv", "hash"})
DATES = ("year", "month", "week", "day", "weekday")
TIMES = ("hour", "minute", "second")
FUNCTIONS = {"date": DATES, "timestamp": (*DATES, *TIMES), "json": ("count",), "csv": ("count",)}

_CALL = re.compile(r"(\w+)\((\w+)\)")

Typed = tuple[str, Any]


def split(name: str) -> tuple[str | None, str]:
    """Return the function, if there is one, and the field of `year(published)`."""
    matched = _CALL.fullmatch(name)
    return (matched[1], matched[2]) if matched else (None, name)


def key_of(name: str) -> str:
    """Return the key of a field or a function in the answer: `published_year`."""
    function, field = split(name)
    return f"{field}_{function}" if function else field


def value_of(tables: Tables, collection: Collection, row: Row, name: str) -> Typed:
    """Return the type and the value of a field or a function of one."""
    function, field = split(name)
    if function is None:
        return collection.columns[field], row[field]
    if field in collection.links:
        return "integer", len(tables.related(row, collection.links[field]))
    return "integer", _call(function, collection.columns[field], row[field])


def read(kind: str, value: Any) -> Any:
    """Return an operand as a value of the type."""
    match kind:
        case "integer" | "decimal":
            return Decimal(str(value))
        case "boolean":
            return value if isinstance(value, bool) else str(value) in ("true", "1")
        case "date":
            return date.fromisoformat(value)
        case "timestamp":
            moment = datetime.fromisoformat(value)
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        case "uuid":
            return value.lower()
        case _:
            return value


def output(kind: str, value: Any) -> Any:
    """Return a value as an answer shows it."""
    if value is None:
        return None
    match kind:
        case "date":
            return value.isoformat()
        case "timestamp":
            return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
        case "csv":
            return value.split(",") if value else []
        case "hash":
            return "**********"
        case _:
            return value


def rank(tables: Tables, kind: str, value: Any) -> Any:
    """Return what stands for a value in comparisons; null sorts as the largest."""
    if value is None:
        return (1,)
    return (0, tables.order[value] if kind in TEXTS else value)


def ascending(tables: Tables, kind: str, values: Sequence[Any]) -> list[Any]:
    return sorted(values, key=lambda value: rank(tables, kind, value))


def _call(function: str, kind: str, value: Any) -> int | None:
    if value is None:
        return None
    match function:
        case "count" if kind == "csv":
            return len(output(kind, value))
        case "count":
            return len(value) if isinstance(value, list) else None
        case "week":
            return int(value.isocalendar().week)
        case "weekday":
            return int(value.isoweekday() % 7)
        case _:
            return int(getattr(value, function))
