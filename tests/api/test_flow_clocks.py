"""Flows with a schedule while clocks are changed: that of the database, and those of a country."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.config import Config
from cms.database.connections import Database
from cms.flows.schedules import run_due_schedules
from tests.active_flows import make_flow
from tests.client import Client
from tests.things import Stage

pytestmark = pytest.mark.release

BERLIN = "Europe/Berlin"
CLOCK = """
CREATE SCHEMA clocks;
CREATE TABLE clocks.clock (moment timestamptz);
INSERT INTO clocks.clock VALUES (now());
CREATE FUNCTION clocks.now() RETURNS timestamptz LANGUAGE sql STABLE
AS 'SELECT moment FROM clocks.clock';
"""


@dataclass(frozen=True)
class Clock:
    """The clock of the database as schedulers see it, which tests set."""

    config: Config
    connection: psycopg.Connection

    @contextmanager
    def scheduler(self) -> Iterator[Database]:
        # The schema comes before PostgreSQL's own: its now() is the one that statements call.
        dsn = make_conninfo(
            self.config.database_url or "", options="-csearch_path=clocks,public,pg_catalog"
        )
        database = Database(replace(self.config, database_url=dsn, database_pool_size=2))
        try:
            yield database
        finally:
            database.close()

    def set(self, moment: datetime) -> None:
        self.connection.execute("UPDATE clocks.clock SET moment = %s", (moment,))

    def walk(self, moments: Iterable[datetime], zone: str = "UTC") -> None:
        """Look for what is due at each of the moments."""
        with self.scheduler() as database:
            for moment in moments:
                self.set(moment)
                run_due_schedules(database, ZoneInfo(zone))

    def runs(self) -> list[str]:
        """Return the moments of the runs that were queued, in the order in which they were."""
        rows = self.connection.execute(
            "SELECT input ->> 'date_scheduled' FROM system_flow_runs ORDER BY date_created, id"
        ).fetchall()
        return [str(moment).replace(":00.000Z", "") for (moment,) in rows]


@pytest.fixture(scope="module")
def clock_of_module(stage: Stage, settings: Config) -> Iterator[Clock]:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(CLOCK.encode())
        yield Clock(replace(settings, database_url=stage.dsn), connection)


@pytest.fixture
def clock(clock_of_module: Clock, admin: Client) -> Clock:
    flows = [flow["id"] for flow in admin.get("/flows", fields="id").data]
    assert admin.delete("/flows", flows).status == 204
    clock_of_module.connection.execute("TRUNCATE system_flow_runs, system_flow_schedules")
    return clock_of_module


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}+00:00")


def steps(first: str, last: str, step: timedelta) -> Iterator[datetime]:
    moment = at(first)
    while moment <= at(last):
        yield moment
        moment += step


def test_a_clock_that_is_set_back_an_hour_brings_no_moment_twice(
    clock: Clock, admin: Client
) -> None:
    make_flow(admin, "schedule", {"cron": "*/15 * * * *"}, [])
    minute = timedelta(minutes=1)
    clock.walk(steps("05-05T10:20", "05-05T11:05", minute))
    clock.walk(steps("05-05T10:05", "05-05T11:20", minute))
    expected = ["10:30", "10:45", "11:00", "11:15"]
    assert clock.runs() == [f"2026-05-05T{moment}" for moment in expected]


def test_moments_that_a_clock_leaves_out_are_made_up_for_by_one_run(
    clock: Clock, admin: Client
) -> None:
    make_flow(admin, "schedule", {"cron": "0 * * * *"}, [])
    moments = ["10:30", "15:10", "15:11", "16:00", "16:01"]
    clock.walk(at(f"05-05T{moment}") for moment in moments)
    assert clock.runs() == ["2026-05-05T11:00", "2026-05-05T16:00"]


@pytest.mark.release
@pytest.mark.parametrize("seconds", ["", "0 "])
@pytest.mark.parametrize(
    ("cron", "span", "expected"),
    [
        # From 02:00 to 03:00, at 01:00 of UTC.
        ("30 2 * * *", "03-28T12:00 to 03-30T12:00", ["03-29T01:00", "03-30T00:30"]),
        ("0 3 * * *", "03-28T12:00 to 03-29T12:00", ["03-29T01:00"]),
        ("0 2-4 * * *", "03-28T12:00 to 03-29T12:00", ["03-29T01:00", "03-29T02:00"]),
        # From 03:00 back to 02:00, at 01:00 of UTC.
        ("30 2 * * *", "10-24T12:00 to 10-26T12:00", ["10-25T00:30", "10-26T01:30"]),
        ("0 3 * * *", "10-24T12:00 to 10-25T12:00", ["10-25T02:00"]),
        (
            "0 * * * *",
            "10-24T22:30 to 10-25T02:30",
            ["10-24T23:00", "10-25T00:00", "10-25T01:00", "10-25T02:00"],
        ),
    ],
)
def test_clocks_of_a_country_that_go_forward_and_back(
    clock: Clock,
    admin: Client,
    *,
    seconds: str,
    cron: str,
    span: str,
    expected: list[str],
) -> None:
    make_flow(admin, "schedule", {"cron": seconds + cron}, [])
    first, last = span.split(" to ")
    clock.walk(steps(first, last, timedelta(minutes=15)), BERLIN)
    assert clock.runs() == [f"2026-{moment}" for moment in expected]


def test_a_worker_that_comes_in_the_hour_that_comes_twice_makes_up_once(
    clock: Clock, admin: Client
) -> None:
    make_flow(admin, "schedule", {"cron": "30 2 * * *"}, [])
    clock.walk([at("10-24T12:00"), at("10-25T01:10"), at("10-25T01:11"), at("10-25T02:00")], BERLIN)
    assert clock.runs() == ["2026-10-25T00:30"]


def test_each_moment_is_one_run_of_schedulers_side_by_side(clock: Clock, admin: Client) -> None:
    make_flow(admin, "schedule", {"cron": "*/10 * * * * *"}, [])
    with clock.scheduler() as one, clock.scheduler() as other, ThreadPoolExecutor(2) as threads:
        for moment in steps("05-05T10:00", "05-05T10:10", timedelta(seconds=5)):
            clock.set(moment)
            list(
                threads.map(
                    lambda database: run_due_schedules(database, ZoneInfo("UTC")), (one, other)
                )
            )
    runs = clock.runs()
    assert len(runs) == len(set(runs)) == 60
