"""The triggers of flows, the options of each, and schedules of cron expressions (docs/flows.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from cms.flows.definition.options import Option, Options, any_json, method
from cms.option_checks import IncompleteOption, OptionCheck, OptionError, boolean, one_of, texts
from cms.schema.system import FILES, FOLDERS, SYSTEM_PREFIX, SYSTEM_TABLES

WRITABLE_TABLES = tuple(table.name for table in SYSTEM_TABLES.values() if table.is_writable)
_WRITTEN = ("create", "update", "delete")

# Events without a payload that a flow could change.
_STRUCTURE = ("collections", "fields", "relations")
_ACTION_SCOPES = frozenset(
    {
        "items.sort",
        "auth.login",
        *(f"{name}.{action}" for name in _STRUCTURE for action in _WRITTEN),
    }
)


FILTER_SCOPES = frozenset(
    {
        "files.upload",
        *(
            f"{table.removeprefix(SYSTEM_PREFIX)}.{action}"
            for table in ("items", *WRITABLE_TABLES, FILES, FOLDERS)
            for action in _WRITTEN
        ),
    }
)
"""The events that a filter flow can wait for."""

SCOPES = FILTER_SCOPES | _ACTION_SCOPES
"""The events that a flow can wait for."""

_CRON_LENGTHS = (5, 6)
MAX_CRON_LENGTH = 200
"""Characters of an expression: a longer one only costs time."""


class ScheduleError(ValueError):
    """An expression that cannot be read, or that names no moment."""


def _scopes(value: object) -> None:
    """Take a list of events, of which one is known; a flow never waits for others."""
    texts(value)
    assert isinstance(value, list)
    if not value:
        raise IncompleteOption("at least one event is needed")
    if not SCOPES.intersection(value):
        raise OptionError("there is no such event; there are items.create and others", 0)


def _cron(value: object) -> None:
    try:
        # Whether a moment exists does not depend on the time zone, which may change later.
        parse_schedule(value, ZoneInfo("UTC"))
    except ScheduleError as error:
        raise IncompleteOption(str(error)) from None


def _fixed(check: OptionCheck, *, is_required: bool = False) -> Option:
    """Return an option that takes no templates: a trigger knows no values yet."""
    return Option(check, is_required=is_required, takes_templates=False)


_RETURN = Option(any_json)

TRIGGER_TYPES: Mapping[str, Options] = MappingProxyType(
    {
        "event": Options(
            {
                "type": _fixed(one_of("filter", "action"), is_required=True),
                "scope": _fixed(_scopes, is_required=True),
                "collections": _fixed(texts),
                "return": _RETURN,
            }
        ),
        "webhook": Options(
            {
                "method": _fixed(method),
                "async": _fixed(boolean),
                "return": _RETURN,
                "cacheEnabled": _fixed(boolean),
            }
        ),
        "schedule": Options({"cron": _fixed(_cron, is_required=True)}),
        "manual": Options(
            {
                "collections": _fixed(texts),
                "location": _fixed(one_of("both", "item", "collection")),
                "requireSelection": _fixed(boolean),
                "requireConfirmation": _fixed(any_json),
                "confirmationDescription": _fixed(any_json),
                "fields": _fixed(any_json),
                "async": _fixed(boolean),
                "return": _RETURN,
            }
        ),
        "operation": Options({"return": _RETURN}),
    }
)


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
    if len(expression) > MAX_CRON_LENGTH or len(expression.split()) not in _CRON_LENGTHS:
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
