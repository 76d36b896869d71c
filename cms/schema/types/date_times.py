"""The types of dates, times and both, and the functions of their parts in UTC.

Moments of the service ($NOW, date-created) are datetimes in UTC; clients send moments as text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from operator import attrgetter
from typing import TypeVar

from cms.schema.types.field_type import FieldFunction, FieldType, OutOfRange, Trait, comparing

M = TypeVar("M", date, time, datetime)


def parse_date(value: object) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat()
    return _moment(value, "it must be a date, YYYY-MM-DD", date.fromisoformat).isoformat()


def parse_time(value: object) -> str:
    if isinstance(value, datetime):
        return value.time().isoformat()
    moment = _moment(value, "it must be a time, HH:MM:SS", time.fromisoformat)
    if moment.tzinfo is not None:
        raise ValueError("it must be a time without a zone")
    return moment.isoformat()


def parse_datetime(value: object) -> str:
    """Take ISO 8601; a value with a zone, as JavaScript sends it, is converted to UTC."""
    reason = "it must be a date and time, YYYY-MM-DDTHH:MM:SS"
    moment = _moment(value, reason, datetime.fromisoformat)
    return _in_utc(moment).replace(tzinfo=None).isoformat()


def parse_timestamp(value: object) -> str:
    """Take ISO 8601; a value without a zone is UTC."""
    moment = _moment(value, "it must be an ISO 8601 timestamp", datetime.fromisoformat)
    return _in_utc(moment).isoformat()


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except OverflowError:
        raise OutOfRange from None


def _moment(value: object, reason: str, parse: Callable[[str], M]) -> M:
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(reason)
    try:
        return parse(value)
    except ValueError:
        raise ValueError(reason) from None


def _utc_moment(literal: str) -> object:
    moment = datetime.fromisoformat(literal).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _iso_year(day: date) -> int:
    return day.isocalendar().year


def _iso_week(day: date) -> int:
    return day.isocalendar().week


def _weekday(day: date) -> int:
    # isoweekday() counts from Monday 1 to Sunday 7; PostgreSQL's DOW has Sunday as 0.
    return day.isoweekday() % 7


def _date_functions(source: str) -> dict[str, FieldFunction]:
    # The year of infinity is infinity, which is no integer; its other parts are null.
    year = f"CASE WHEN isfinite({{0}}) THEN EXTRACT({{part}} FROM {source})::integer END"
    return {
        "year": FieldFunction(year.replace("{part}", "YEAR"), attrgetter("year")),
        # The year that a week belongs to, which may be another than that of its days.
        "isoyear": FieldFunction(year.replace("{part}", "ISOYEAR"), _iso_year),
        "month": FieldFunction(f"EXTRACT(MONTH FROM {source})::integer", attrgetter("month")),
        "week": FieldFunction(f"EXTRACT(WEEK FROM {source})::integer", _iso_week),
        "day": FieldFunction(f"EXTRACT(DAY FROM {source})::integer", attrgetter("day")),
        # Sunday is weekday 0.
        "weekday": FieldFunction(f"EXTRACT(DOW FROM {source})::integer", _weekday),
    }


def _time_functions(source: str) -> dict[str, FieldFunction]:
    # A cast would round 59.9 to second 60, which no minute has.
    second = f"trunc(EXTRACT(SECOND FROM {source}))::integer"
    return {
        "hour": FieldFunction(f"EXTRACT(HOUR FROM {source})::integer", attrgetter("hour")),
        "minute": FieldFunction(f"EXTRACT(MINUTE FROM {source})::integer", attrgetter("minute")),
        "second": FieldFunction(second, attrgetter("second")),
    }


# Parts are those of the moment in UTC, wherever server and client are.
_IN_UTC = "{0} AT TIME ZONE 'UTC'"
_DATE_FUNCTIONS = _date_functions("{0}")
_TIME_FUNCTIONS = _time_functions("{0}")
_MOMENT_TRAITS = frozenset({Trait.NULL, Trait.EQUALITY, Trait.ORDER, Trait.SORTING})
# `cast-timestamp` and `cast-datetime` do nothing: Directus writes them into the records of its
# fields.
_MOMENT_MARKERS = frozenset({"date-created", "date-updated", "cast-timestamp", "cast-datetime"})

DATE = FieldType(
    name="date",
    traits=_MOMENT_TRAITS,
    parse=parse_date,
    comparable=comparing(parse_date, date.fromisoformat),
    functions=_DATE_FUNCTIONS,
    cast="date",
    json_sql="{0}::text",
    json_schema={"type": "string", "format": "date"},
    base_types=("date",),
    markers=_MOMENT_MARKERS,
    column_sql="date",
    now_sql="CURRENT_DATE",
)
TIME = FieldType(
    name="time",
    traits=_MOMENT_TRAITS,
    parse=parse_time,
    comparable=comparing(parse_time, time.fromisoformat),
    functions=_TIME_FUNCTIONS,
    cast="time",
    # Seconds without their fractions, as clients of such fields expect.
    json_sql="to_char({0}, 'HH24:MI:SS')",
    json_schema={"type": "string", "examples": ["13:45:00"]},
    base_types=("time",),
    markers=_MOMENT_MARKERS,
    column_sql="time",
    now_sql="LOCALTIME",
)
DATETIME = FieldType(
    name="datetime",
    traits=_MOMENT_TRAITS,
    parse=parse_datetime,
    comparable=comparing(parse_datetime, datetime.fromisoformat),
    read_default=parse_datetime,
    functions={**_DATE_FUNCTIONS, **_TIME_FUNCTIONS},
    cast="timestamp",
    json_sql="to_char({0}, 'YYYY-MM-DD\"T\"HH24:MI:SS')",
    json_schema={"type": "string", "examples": ["2025-01-31T13:45:00"]},
    base_types=("timestamp",),
    markers=_MOMENT_MARKERS,
    column_sql="timestamp",
    now_sql="LOCALTIMESTAMP",
)
TIMESTAMP = FieldType(
    name="timestamp",
    traits=_MOMENT_TRAITS,
    parse=parse_timestamp,
    comparable=comparing(parse_timestamp, datetime.fromisoformat),
    read_default=_utc_moment,
    functions={**_date_functions(_IN_UTC), **_time_functions(_IN_UTC)},
    cast="timestamptz",
    json_sql="to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')",
    json_schema={"type": "string", "format": "date-time"},
    base_types=("timestamptz",),
    markers=_MOMENT_MARKERS,
    column_sql="timestamptz",
    now_sql="CURRENT_TIMESTAMP",
)
