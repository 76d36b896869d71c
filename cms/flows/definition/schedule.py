"""When flows with a schedule run: cron expressions in the project's time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_LENGTHS = (5, 6)
MAX_LENGTH = 200
"""Characters of an expression: a longer one only costs time."""


class ScheduleError(ValueError):
    """An expression that cannot be read, or that names no moment."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression of five fields, or of six with the seconds first."""

    expression: str
    zone: ZoneInfo

    def next(self, after: datetime) -> datetime:
        """Return the next moment after one (with a time zone), in UTC.

        When the clocks go forward, a moment that is left out comes right after the gap. When they
        go back, a moment that comes twice counts once.
        """
        return next(CronSim(self.expression, after.astimezone(self.zone))).astimezone(UTC)


def parse_schedule(expression: object, zone: ZoneInfo) -> Schedule:
    """Return a schedule; raises `ScheduleError`, also where no moment of 50 years matches."""
    if not isinstance(expression, str):
        raise ScheduleError("it is a text such as */15 * * * *")
    if len(expression) > MAX_LENGTH or len(expression.split()) not in _LENGTHS:
        raise ScheduleError("it has five fields, or six with the seconds first")
    normalised = " ".join(expression.upper().split())
    schedule = Schedule(normalised, zone)
    try:
        schedule.next(datetime.now(UTC))
    except CronSimError as error:
        raise ScheduleError(f"it cannot be read: {_reason(error)}") from None
    except StopIteration:
        raise ScheduleError("it names no moment: no date fits all of its fields") from None
    return schedule


def _reason(error: CronSimError) -> str:
    return str(error).replace("Bad ", "wrong ")
