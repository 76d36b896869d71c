"""Flows with a schedule: each moment is one run, however many workers there are.

The clock is that of the database. Of the moments that pass while no worker runs, the last is made
up for: there is one run for all of them. When the clock is set back, no moment comes twice.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cms import jsontext
from cms.database.connections import Database
from cms.database.statements import statement
from cms.flows.definition.trigger_types import Schedule, ScheduleError, parse_schedule
from cms.flows.run_log import utc_text

log = logging.getLogger("cms.flows")

MAX_PAUSE_SECONDS = 5.0
"""How long it takes at most until a new schedule is noticed."""
MIN_PAUSE_SECONDS = 0.05


class _ScheduledFlow(NamedTuple):
    """A row of `find_schedules`."""

    flow: str
    cron: str
    schedule: str | None
    due: datetime | None
    now: datetime


def run_due_schedules(database: Database, zone: ZoneInfo) -> float:
    """Queue the runs that are due, and return how many seconds to wait for the next."""
    pause = MAX_PAUSE_SECONDS
    # Each row has the time of the database: the clocks of several workers may differ.
    for row in database.fetch_primary(statement("find_schedules")):
        scheduled = _ScheduledFlow(*row)
        try:
            schedule = parse_schedule(scheduled.cron, zone)
        except ScheduleError as error:
            log.warning("the schedule of flow %s cannot be read: %s", scheduled.flow, error)
            continue
        due = _next_due(database, scheduled, schedule)
        pause = min(pause, (due - scheduled.now).total_seconds())
    return max(pause, MIN_PAUSE_SECONDS)


def _next_due(database: Database, scheduled: _ScheduledFlow, schedule: Schedule) -> datetime:
    """Queue a run if one is due, and return when the next one is."""
    # With the zone: another zone makes other moments of the same expression.
    name = f"{schedule.zone.key} {scheduled.cron}"
    following = schedule.next(scheduled.now)
    if scheduled.due is None or scheduled.schedule != name:
        new = (scheduled.flow, name, following.isoformat())
        database.fetch_primary(statement("set_schedule"), new)
        return following
    if scheduled.due > scheduled.now:
        return scheduled.due
    data = {"event": "schedule", "date_scheduled": utc_text(scheduled.due)}
    values = (
        scheduled.flow,
        scheduled.due.isoformat(),
        following.isoformat(),
        jsontext.dumps(data).decode(),
    )
    # Moves the schedule on only if it is still due, so that of several workers one queues the run.
    # What was missed while no worker ran is made up for once.
    database.fetch_primary(statement("run_schedule"), values)
    return following
