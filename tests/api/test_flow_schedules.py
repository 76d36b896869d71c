"""Flows with a schedule: one run for each moment, whoever looks for what is due."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from zoneinfo import ZoneInfo

import pytest

from cms.config import Config
from cms.flows.schedules import MAX_PAUSE_SECONDS, run_due_schedules
from tests.active_flows import make_flow, runs, work
from tests.client import Client
from tests.things import Stage

UTC = ZoneInfo("UTC")
YEARLY = {"cron": "0 0 1 1 *"}


def tick(stage: Stage, zone: ZoneInfo = UTC) -> float:
    return run_due_schedules(stage.admin.app.store.database, zone)


def make_due(stage: Stage, flow: str, ago: str = "1 second") -> None:
    """Let a moment of a flow have passed."""
    with stage.side_door.connection() as connection:
        connection.execute(
            f"UPDATE system_flow_schedules SET due = now() - interval '{ago}'"
            f" WHERE flow = '{flow}'".encode()
        )


def next_due(stage: Stage, flow: str) -> object:
    return stage.value(f"SELECT due::text FROM system_flow_schedules WHERE flow = '{flow}'")


def test_a_moment_is_one_run_however_many_look_for_it(
    stage: Stage, admin: Client, settings: Config
) -> None:
    flow = make_flow(admin, "schedule", YEARLY, [])
    assert tick(stage) == MAX_PAUSE_SECONDS
    assert runs(admin, flow) == []
    make_due(stage, flow)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: tick(stage), range(8)))
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["trigger"], run["state"], run["accountability"]) == ("schedule", "done", None)
    assert run["data"]["event"] == "schedule"


def test_moments_that_were_missed_are_made_up_for_by_one_run(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "schedule", {"cron": "*/5 * * * *"}, [])
    tick(stage)
    make_due(stage, flow, "3 hours")
    for _ in range(3):
        tick(stage)
    assert len(runs(admin, flow)) == 1


def test_a_clock_that_is_set_back_brings_no_moment_twice(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "schedule", {"cron": "0 * * * *"}, [])
    tick(stage)
    make_due(stage, flow, "-30 minutes")  # the hour that has been, seen from half an hour before
    before = next_due(stage, flow)
    assert tick(stage) == MAX_PAUSE_SECONDS
    assert (runs(admin, flow), next_due(stage, flow)) == ([], before)


def test_a_flow_that_was_inactive_makes_up_for_nothing(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "schedule", YEARLY, [])
    tick(stage)
    make_due(stage, flow)
    admin.patch(f"/flows/{flow}", {"status": "inactive"})
    tick(stage)
    admin.patch(f"/flows/{flow}", {"status": "active"})
    tick(stage)
    assert runs(admin, flow) == []


@pytest.mark.parametrize(
    ("zone", "due"), [("UTC", "01-01 00:00:00+00"), ("America/New_York", "01-01 05:00:00+00")]
)
def test_schedules_are_of_the_time_zone_of_the_settings(
    stage: Stage, admin: Client, zone: str, due: str
) -> None:
    flow = make_flow(admin, "schedule", YEARLY, [])
    tick(stage)
    tick(stage, ZoneInfo(zone))
    assert str(next_due(stage, flow)).endswith(due)


def test_a_changed_schedule_counts_from_now(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "schedule", YEARLY, [])
    tick(stage)
    admin.patch(f"/flows/{flow}", {"options": {"cron": "* * * * * *"}})
    assert tick(stage) <= 1
