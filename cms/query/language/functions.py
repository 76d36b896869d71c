"""Functions of fields as data: parts of dates in UTC, the length of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_DATE = ("year", "month", "week", "day", "weekday")
_TIME = ("hour", "minute", "second")

MOMENT_FUNCTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"date": _DATE, "time": _TIME, "datetime": (*_DATE, *_TIME), "timestamp": (*_DATE, *_TIME)}
)
"""The functions that each type of moment has."""

DATE_PARTS: Mapping[str, str] = MappingProxyType(
    {name: "DOW" if name == "weekday" else name.upper() for name in (*_DATE, *_TIME)}
)
"""The name of the part in SQL; Sunday is weekday 0."""

FUNCTIONS = (*DATE_PARTS, "count")


def function_sql(function: str, type_name: str) -> str | None:
    """Return the SQL of a function of a column of that type, or None when they do not fit."""
    if function == "count" and type_name == "json":
        return "CASE WHEN json_typeof({0}::json) = 'array' THEN json_array_length({0}::json) END"
    if function == "count" and type_name == "csv":
        return "cardinality(string_to_array({0}, ','))"
    if function not in MOMENT_FUNCTIONS.get(type_name, ()):
        return None
    source = "{0} AT TIME ZONE 'UTC'" if type_name == "timestamp" else "{0}"
    part = f"EXTRACT({DATE_PARTS[function]} FROM {source})"
    if function == "second":
        # A cast would round 59.9 to second 60, which no minute has.
        return f"trunc({part})::integer"
    if function == "year":
        # The year of infinity is infinity, which is no integer; its other parts are null.
        return f"CASE WHEN isfinite({{0}}) THEN {part}::integer END"
    return f"{part}::integer"
