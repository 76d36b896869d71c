"""When flows with a schedule run: cron expressions in the project's time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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

        Where hours or minutes begin with a star, moments follow each other as time passes. Others
        are times of a day: when the clocks go forward, one that is left out comes right after the
        gap; when they go back, one that comes twice counts once.
        """
        local = after.astimezone(self.zone)
        # */15 * * * * counts minutes that pass, 30 2 * * * is half past two of each day.
        if not self._has_times_of_day:
            return next(CronSim(self.expression, local)).astimezone(UTC)
        # Without its zone, because CronSim knows times of a day in five fields only, and then
        # returns past ones in the hour that comes twice.
        for time in CronSim(self.expression, local.replace(tzinfo=None)):
            moment = _after_gap(time.replace(tzinfo=self.zone)).astimezone(UTC)
            # The first times may be past: in the hour that comes twice a local time stands for its
            # first moment.
            if moment > after:
                return moment
        raise StopIteration

    @property
    def _has_times_of_day(self) -> bool:
        # Counted from the end: the seconds, if any, come first.
        minutes, hours = self.expression.split()[-5:-3]
        return not (minutes.startswith("*") or hours.startswith("*"))


def _after_gap(time: datetime) -> datetime:
    """Return a local time, or for one that the clocks leave out the first one after the gap."""
    # A time in the gap does not come back the same from UTC.
    while time != time.astimezone(UTC).astimezone(time.tzinfo):
        time = time.replace(second=0) + timedelta(minutes=1)
    return time


def parse_schedule(expression: object, zone: ZoneInfo) -> Schedule:
    """Return a schedule; raises `ScheduleError`, also where no moment of 50 years matches."""
    if not isinstance(expression, str):
        raise ScheduleError("it is a text such as */15 * * * *")
    if len(expression) > MAX_LENGTH or len(expression.split()) not in _LENGTHS:
        raise ScheduleError("it has five fields, or six with the seconds first")
    normalised = " ".join(expression.upper().split())
    schedule = Schedule(normalised, zone)
    try:
        # 30 February is well formed, and never comes.
        schedule.next(datetime.now(UTC))
    except CronSimError as error:
        reason = str(error).replace("Bad ", "wrong ")
        raise ScheduleError(f"it cannot be read: {reason}") from None
    except StopIteration:
        raise ScheduleError("it names no moment: no date fits all of its fields") from None
    return schedule
