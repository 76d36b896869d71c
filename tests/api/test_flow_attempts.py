"""Runs whose failure may pass are tried again, after growing pauses, until they are given up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from cms.config import Config
from cms.flows import engine
from cms.flows.operations import OPERATIONS
from cms.flows.run import Rejected, Run
from cms.flows.runs import MAX_ATTEMPTS, delete_old_runs
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage

Failure = Callable[[int], Exception | None]


@pytest.fixture
def fail_when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Failure], None]:
    """Let an operation fail at the attempts for which a function returns an error."""

    def set_failure(failure: Failure) -> None:
        def sleep(options: Mapping[str, Any], run: Run) -> object:
            error = failure(run.attempt)
            if error:
                raise error
            return "slept"

        monkeypatch.setattr(engine, "OPERATIONS", {**OPERATIONS, "sleep": sleep})

    return set_failure


def queued(admin: Client) -> str:
    steps = [step("wait", "sleep", {"milliseconds": 0})]
    flow = make_flow(admin, "webhook", {"async": True}, steps)
    assert admin.get(f"/flows/trigger/{flow}").status == 204
    return flow


def make_due(stage: Stage) -> None:
    with stage.side_door.connection() as connection:
        connection.execute(b"UPDATE procrastinate_jobs SET scheduled_at = NULL")


def pause(stage: Stage) -> float:
    """Return the seconds until the next attempt."""
    return float(
        stage.value(
            "SELECT extract(epoch FROM scheduled_at - now()) FROM procrastinate_jobs"
            " WHERE status = 'todo'"
        )
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Rejected("not now", is_transient=True), 'The operation "wait" was rejected.'),
        (RuntimeError("a mistake"), "An unexpected error occurred; it has been logged."),
    ],
)
def test_a_failure_that_may_pass_is_tried_again(
    stage: Stage,
    admin: Client,
    settings: Config,
    fail_when: Callable[[Failure], None],
    error: Exception,
    reason: str,
) -> None:
    fail_when(lambda attempt: error if attempt < 3 else None)
    flow = queued(admin)
    pauses = []
    for attempt in (1, 2):
        work(stage, settings)
        (run,) = runs(admin, flow)
        assert (run["state"], run["attempt"], run["reason"]) == ("queued", attempt, reason)
        pauses.append(round(pause(stage) / 10))
        work(stage, settings)  # it is not due yet
        make_due(stage)
    assert pauses == [1, 2]
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"], run["reason"]) == ("done", 3, None)


@pytest.mark.parametrize(
    "error", [Rejected("not now", is_transient=True), RuntimeError("a mistake")]
)
def test_a_failure_that_stays_is_given_up(
    stage: Stage,
    admin: Client,
    settings: Config,
    fail_when: Callable[[Failure], None],
    error: Exception,
) -> None:
    fail_when(lambda attempt: error)
    flow = queued(admin)
    for _ in range(MAX_ATTEMPTS):
        work(stage, settings)
        make_due(stage)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("failed", MAX_ATTEMPTS)
    assert run["date_finished"] is not None
    fail_when(lambda attempt: None)
    assert admin.post(f"/flows/runs/{run['id']}/retry").status == 204
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("done", MAX_ATTEMPTS + 1)


def test_a_rejection_for_good_is_not_tried_again(
    stage: Stage, admin: Client, settings: Config, fail_when: Callable[[Failure], None]
) -> None:
    fail_when(lambda attempt: Rejected("never"))
    flow = queued(admin)
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("rejected", 1)


def test_old_runs_are_deleted(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [])
    for _ in range(2):
        admin.get(f"/flows/trigger/{flow}")
    with stage.side_door.connection() as connection:
        connection.execute(
            b"UPDATE system_flow_runs SET date_finished = now() - interval '31 days' WHERE id ="
            b" (SELECT id FROM system_flow_runs WHERE flow = '%s' LIMIT 1)" % flow.encode()
        )
    delete_old_runs(admin.app.store.database, timedelta(days=30))
    assert len(runs(admin, flow)) == 1


def test_a_run_that_has_lost_its_job_has_failed(stage: Stage, admin: Client) -> None:
    lost = queued(admin)
    waiting = queued(admin)
    with stage.side_door.connection() as connection:
        connection.execute(
            b"UPDATE system_flow_runs SET date_created = now() - interval '25 hours'"
        )
        connection.execute(
            b"DELETE FROM procrastinate_jobs WHERE args -> 'payload' ->> 'run' ="
            b" (SELECT id::text FROM system_flow_runs WHERE flow = '%s')" % lost.encode()
        )
    delete_old_runs(admin.app.store.database, timedelta(days=30))
    assert [run["state"] for run in runs(admin, lost)] == ["failed"]
    assert [run["state"] for run in runs(admin, waiting)] == ["queued"]
