"""The types of dates, times and both, and the functions of their parts in UTC.

Moments of the service ($NOW, date-created) are datetimes in UTC; clients send moments as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time
from operator import attrgetter
from typing import Any, NamedTuple

from cms.schema.types.field_type import FieldFunction, FieldType, OutOfRange, Trait

Functions = Mapping[str, FieldFunction]

# The calendar repeats itself after so many years, days of the week included.
_CYCLE = 400
# ISO 8601 writes -000043-03-15 and +012024-01-01, PostgreSQL 0044-03-15 BC and 12024-01-01.
_OTHER_YEAR = re.compile(r"([+-][0-9]{6,7}|[0-9]{4,7})(-.*?)( BC)?")
_NO_DATE = "it must be a date, YYYY-MM-DD"
_NO_TIME = "it must be a time, HH:MM:SS"
_NO_DATETIME = "it must be a date and time, YYYY-MM-DDTHH:MM:SS"
_NO_TIMESTAMP = "it must be an ISO 8601 timestamp"


class CalendarMoment(NamedTuple):
    """A date or moment of any year, in the order of time, with the parts that functions return.

    Python knows the years 1 to 9999. A moment of another year is `cycle` times 400 years after
    `shifted`, which is in the first or last 400 of those years.
    """

    cycle: float
    shifted: datetime

    @property
    def year(self) -> int:
        """The year as PostgreSQL counts: before the year 1 comes -1."""
        return _historical(self.shifted.year + _CYCLE * int(self.cycle))

    @property
    def iso_week(self) -> int:
        return self.shifted.isocalendar().week

    @property
    def weekday(self) -> int:
        """The day of the week; Sunday is 0."""
        return self.shifted.isoweekday() % 7

    @property
    def iso_year(self) -> int:
        """The year that the week belongs to, which may be another than that of its days."""
        return _historical(self.shifted.isocalendar().year + _CYCLE * int(self.cycle))


class TimeOfDay(NamedTuple):
    """A time of a day, up to 24:00, which Python does not know."""

    hour: int
    minute: int
    second: int
    microsecond: int


_ENDLESS = {
    "infinity": CalendarMoment(math.inf, datetime.max),
    "-infinity": CalendarMoment(-math.inf, datetime.min),
}
# What columns hold; a Julian day counts from November 24 of 4714 BC.
_FIRST = CalendarMoment(-12, datetime(87, 11, 24))
_LAST = CalendarMoment(711, datetime(9876, 12, 31, 23, 59, 59, 999_999))
_LAST_DAY = CalendarMoment(14_663, datetime(9697, 12, 31))
_END_OF_DAY = re.compile(r"24:00(:00(\.0+)?)?")


def _historical(iso_year: int) -> int:
    return iso_year if iso_year > 0 else iso_year - 1


def present_moment() -> datetime:
    """Return the present moment in UTC with milliseconds, as JavaScript knows moments."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def parse_date(value: object) -> str:
    day = _date(value)
    return _endless_text(day) or _with_era(day, day.shifted.date().isoformat())


def parse_time(value: object) -> str:
    hour, minute, second, microsecond = _time(value)
    if hour == 24:
        return "24:00:00"
    return time(hour, minute, second, microsecond).isoformat()


def parse_datetime(value: object) -> str:
    """Take ISO 8601; a value with a zone, as JavaScript sends it, is converted to UTC."""
    moment = _datetime(value)
    return _endless_text(moment) or _with_era(moment, moment.shifted.isoformat())


def parse_timestamp(value: object) -> str:
    """Take ISO 8601; a value without a zone is UTC."""
    moment = _timestamp(value)
    return _endless_text(moment) or _with_era(moment, moment.shifted.isoformat() + "+00:00")


def _date(value: object) -> CalendarMoment:
    if isinstance(value, datetime):
        value = value.date().isoformat()
    return _moment(value, _NO_DATE, date.fromisoformat, _LAST_DAY)


def _datetime(value: object) -> CalendarMoment:
    return _moment(value, _NO_DATETIME, datetime.fromisoformat, _LAST)


def _timestamp(value: object) -> CalendarMoment:
    return _moment(value, _NO_TIMESTAMP, datetime.fromisoformat, _LAST)


def _time(value: object) -> TimeOfDay:
    if isinstance(value, datetime):
        value = value.time().isoformat()
    if not isinstance(value, str):
        raise ValueError(_NO_TIME)
    if _END_OF_DAY.fullmatch(value):
        return TimeOfDay(24, 0, 0, 0)
    try:
        moment = time.fromisoformat(value)
    except ValueError:
        raise ValueError(_NO_TIME) from None
    if moment.tzinfo is not None:
        raise ValueError("it must be a time without a zone")
    return TimeOfDay(moment.hour, moment.minute, moment.second, moment.microsecond)


def _moment(
    value: object, reason: str, parse: Callable[[str], date], last: CalendarMoment
) -> CalendarMoment:
    """Return a moment in UTC; `parse` reads one of the years 1 to 9999."""
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(reason)
    if value in _ENDLESS:
        return _ENDLESS[value]
    cycle = 0
    # Nearly all years have four digits.
    if value[4:5] != "-" or value.endswith(" BC"):
        value, cycle = _of_usual_year(value)
    try:
        read = parse(value)
    except ValueError:
        raise ValueError(reason) from None
    if not isinstance(read, datetime):
        read = datetime(read.year, read.month, read.day)
    return _in_range(_in_utc(read, cycle), last)


def _of_usual_year(text: str) -> tuple[str, int]:
    """Return a text of another year as one of a year far from the ends of Python's, and its cycle.

    Other texts are returned as they are.
    """
    match = _OTHER_YEAR.fullmatch(text)
    if match is None:
        return text, 0
    iso_year = 1 - int(match[1]) if match[3] else int(match[1])
    cycle, year = divmod(iso_year, _CYCLE)
    return f"{year + _CYCLE:04}{match[2]}", cycle - 1


def _in_utc(moment: datetime, cycle: int) -> CalendarMoment:
    if moment.tzinfo is not None and moment.tzinfo is not UTC:
        # The offset may lead beyond the years that Python knows.
        if moment.year in (MINYEAR, MAXYEAR):
            shift = 1 if moment.year == MINYEAR else -1
            moment = moment.replace(year=moment.year + shift * _CYCLE)
            cycle -= shift
        moment = moment.astimezone(UTC)
    moment = moment.replace(tzinfo=None)
    if cycle == 0:
        return CalendarMoment(0, moment)
    return _of_year(moment.year + _CYCLE * cycle, moment)


def _of_year(year: int, moment: datetime) -> CalendarMoment:
    """Return the moment of another ISO year, which has the same calendar."""
    if MINYEAR <= year <= MAXYEAR:
        return CalendarMoment(0, moment.replace(year=year))
    first = MINYEAR if year < MINYEAR else MAXYEAR + 1 - _CYCLE
    cycle, years = divmod(year - first, _CYCLE)
    return CalendarMoment(cycle, moment.replace(year=first + years))


def _in_range(moment: CalendarMoment, last: CalendarMoment) -> CalendarMoment:
    if moment.cycle and not _FIRST <= moment <= last:
        raise OutOfRange
    return moment


def _endless_text(moment: CalendarMoment) -> str:
    if math.isfinite(moment.cycle):
        return ""
    return "infinity" if moment.cycle > 0 else "-infinity"


def _with_era(moment: CalendarMoment, text: str) -> str:
    """Return the text of a moment, made of `shifted`, as PostgreSQL reads it."""
    if not moment.cycle:
        return text
    year = moment.year
    if year > 0:
        return f"{year}{text[4:]}"
    return f"{-year:04}{text[4:]} BC"


def _shown_date(stored: str) -> str:
    day = _date(stored)
    return _endless_text(day) or _with_iso_year(day, day.shifted.date().isoformat())


def _shown_time(stored: str) -> str:
    hour, minute, second, microsecond = _time(stored)
    if hour == 24:
        return "24:00:00"
    return time(hour, minute, second).isoformat() + _shown_fraction(microsecond)


def _shown_datetime(stored: str) -> str:
    moment = _datetime(stored)
    return _endless_text(moment) or _with_iso_year(moment, _shown_moment(moment.shifted))


def _shown_timestamp(stored: str) -> str:
    moment = _timestamp(stored)
    text = _shown_moment(moment.shifted, no_fraction=".000")
    return _endless_text(moment) or _with_iso_year(moment, f"{text}Z")


def _shown_moment(moment: datetime, *, no_fraction: str = "") -> str:
    seconds = moment.isoformat(timespec="seconds")
    return seconds + (_shown_fraction(moment.microsecond) or no_fraction)


def _shown_fraction(microsecond: int) -> str:
    if not microsecond:
        return ""
    if microsecond % 1000:
        return f".{microsecond:06}"
    return f".{microsecond // 1000:03}"


def _with_iso_year(moment: CalendarMoment, text: str) -> str:
    """Return the text of a moment, made of `shifted`, as answers show it."""
    if not moment.cycle:
        return text
    return f"{moment.shifted.year + _CYCLE * int(moment.cycle):+07}{text[4:]}"


def _part(name: str) -> Callable[[CalendarMoment], int | None]:
    own = attrgetter(name if hasattr(CalendarMoment, name) else f"shifted.{name}")
    return lambda moment: own(moment) if math.isfinite(moment.cycle) else None


def _date_functions(source: str) -> Functions:
    # The year of infinity is infinity, which is no integer; its other parts are null.
    year = f"CASE WHEN isfinite({{0}}) THEN EXTRACT({{part}} FROM {source})::integer END"
    return {
        "year": FieldFunction(year.replace("{part}", "YEAR"), _part("year")),
        # The year that a week belongs to, which may be another than that of its days.
        "isoyear": FieldFunction(year.replace("{part}", "ISOYEAR"), _part("iso_year")),
        "month": FieldFunction(f"EXTRACT(MONTH FROM {source})::integer", _part("month")),
        "week": FieldFunction(f"EXTRACT(WEEK FROM {source})::integer", _part("iso_week")),
        "day": FieldFunction(f"EXTRACT(DAY FROM {source})::integer", _part("day")),
        # Sunday is weekday 0.
        "weekday": FieldFunction(f"EXTRACT(DOW FROM {source})::integer", _part("weekday")),
    }


def _time_functions(source: str, call: Callable[[str], Callable[[Any], int | None]]) -> Functions:
    # A cast would round 59.9 to second 60, which no minute has.
    second = f"trunc(EXTRACT(SECOND FROM {source}))::integer"
    return {
        "hour": FieldFunction(f"EXTRACT(HOUR FROM {source})::integer", call("hour")),
        "minute": FieldFunction(f"EXTRACT(MINUTE FROM {source})::integer", call("minute")),
        "second": FieldFunction(second, call("second")),
    }


# Parts are those of the moment in UTC, wherever server and client are.
_IN_UTC = "{0} AT TIME ZONE 'UTC'"
_DATE_FUNCTIONS = _date_functions("{0}")
_MOMENT_TRAITS = frozenset({Trait.NULL, Trait.EQUALITY, Trait.ORDER, Trait.SORTING})
# `cast-timestamp` and `cast-datetime` do nothing: Directus writes them into the records of its
# fields.
_MOMENT_MARKERS = frozenset({"date-created", "date-updated", "cast-timestamp", "cast-datetime"})

DATE = FieldType(
    name="date",
    traits=_MOMENT_TRAITS,
    parse=parse_date,
    comparable=_date,
    read_default=_shown_date,
    functions=_DATE_FUNCTIONS,
    cast="date",
    json_sql="system_date_text({0})",
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
    comparable=_time,
    read_default=_shown_time,
    functions=_time_functions("{0}", attrgetter),
    cast="time",
    json_sql="system_time_text({0})",
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
    comparable=_datetime,
    read_default=_shown_datetime,
    functions={**_DATE_FUNCTIONS, **_time_functions("{0}", _part)},
    cast="timestamp",
    json_sql="system_datetime_text({0})",
    json_schema={"type": "string", "examples": ["2025-01-31T13:45:00"]},
    base_types=("timestamp",),
    markers=_MOMENT_MARKERS,
    column_sql="timestamp",
    now_sql="LOCALTIMESTAMP",
)
TIMESTAMP = replace(
    DATETIME,
    name="timestamp",
    parse=parse_timestamp,
    comparable=_timestamp,
    read_default=_shown_timestamp,
    functions={**_date_functions(_IN_UTC), **_time_functions(_IN_UTC, _part)},
    cast="timestamptz",
    json_sql="system_timestamp_text({0})",
    json_schema={"type": "string", "format": "date-time"},
    base_types=("timestamptz",),
    column_sql="timestamptz",
    now_sql="CURRENT_TIMESTAMP",
)
