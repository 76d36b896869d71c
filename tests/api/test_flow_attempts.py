"""Runs whose failure may pass are tried again, after growing pauses, until they are given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from cms.config import Config
from cms.flows.operations import OPERATIONS
from cms.flows.queued_runs import MAX_ATTEMPTS, RunWorker, delete_old_runs
from cms.flows.run import Rejected, Run
from cms.jobs.task import Job
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage

Failure = Callable[[int], Exception | None]
Sleep = Callable[[Mapping[str, Any], Run], object]


@pytest.fixture
def sleep_as() -> Iterator[Callable[[Sleep], None]]:
    """Lets the operation "sleep" do something else, also in flows that are made ready already."""
    sleep = OPERATIONS["sleep"]
    own = sleep.run
    yield lambda operation: object.__setattr__(sleep, "run", operation)
    object.__setattr__(sleep, "run", own)


@pytest.fixture
def fail_when(sleep_as: Callable[[Sleep], None]) -> Callable[[Failure], None]:
    """Let an operation fail at the attempts for which a function returns an error."""

    def set_failure(failure: Failure) -> None:
        def sleep(options: Mapping[str, Any], run: Run) -> object:
            error = failure(run.attempt)
            if error:
                raise error
            return "slept"

        sleep_as(sleep)

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


@pytest.mark.quick(1)
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


@pytest.mark.quick(1)
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


def test_old_runs_are_deleted(stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cms.flows.queued_runs.MAX_DELETED", 2)
    flow = make_flow(admin, "webhook", {}, [])
    for _ in range(6):
        admin.get(f"/flows/trigger/{flow}")
    with stage.side_door.connection() as connection:
        connection.execute(
            b"UPDATE system_flow_runs SET date_finished = now() - interval '31 days' WHERE id ="
            b" ANY (SELECT id FROM system_flow_runs WHERE flow = '%s' LIMIT 5)" % flow.encode()
        )
    delete_old_runs(admin.app.store.database, timedelta(days=30))
    assert len(runs(admin, flow)) == 1


def test_a_run_whose_flow_cannot_be_loaded_fails_with_that_reason(
    stage: Stage, admin: Client, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a type of operation that this version does not know")

    flow = queued(admin)
    with monkeypatch.context() as patch:
        patch.setattr("cms.flows.queued_runs.program_of", fail)
        work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["reason"]) == (
        "queued",
        "An unexpected error occurred; it has been logged.",
    )
    make_due(stage)
    work(stage, settings)
    assert [run["state"] for run in runs(admin, flow)] == ["done"]


# Two workers at one run


def stalled(
    stage: Stage, admin: Client, flow: str, finish: Callable[[Mapping[str, Any], Run], object]
) -> Callable[[Mapping[str, Any], Run], object]:
    """Return the operation of a worker that stalls at its first attempt.

    Another worker takes the run over meanwhile, and ends it. Then `finish` is what the first does.
    """

    def sleep(options: Mapping[str, Any], run: Run) -> object:
        if run.attempt > 1:
            return "by the second"
        second = RunWorker(run.services)
        second.run(Job(0, {"run": run.id}, 2))
        assert [other["state"] for other in runs(admin, flow)] == ["done"]
        return finish(options, run)

    return sleep


def raising(error: Exception) -> Callable[[Mapping[str, Any], Run], object]:
    def fail(options: Mapping[str, Any], run: Run) -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    "finish",
    [
        lambda options, run: "by the first",
        raising(Rejected("by the first")),
        raising(Rejected("by the first", is_transient=True)),
        raising(RuntimeError("by the first")),
    ],
)
def test_a_worker_that_has_lost_its_run_does_not_write_it(
    stage: Stage,
    admin: Client,
    settings: Config,
    sleep_as: Callable[[Sleep], None],
    finish: Callable[[Mapping[str, Any], Run], object],
) -> None:
    flow = queued(admin)
    sleep_as(stalled(stage, admin, flow, finish))
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"], run["result"]) == ("done", 2, "by the second")
    activity = admin.get("/activity", **{"filter[item][_eq]": flow, "filter[action][_eq]": "run"})
    assert len(activity.data) == 1
    assert stage.value("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'") == 0


def test_a_worker_that_has_lost_its_run_does_not_delete_it(
    stage: Stage, admin: Client, settings: Config, sleep_as: Callable[[Sleep], None]
) -> None:
    steps = [step("wait", "sleep", {"milliseconds": 0})]
    flow = make_flow(admin, "webhook", {"async": True}, steps, accountability=None)
    assert admin.get(f"/flows/trigger/{flow}").status == 204

    def sleep(options: Mapping[str, Any], run: Run) -> object:
        # Another worker has begun the second attempt.
        row = f"'{run.id}'"
        stage.value(f"UPDATE system_flow_runs SET attempt = 2 WHERE id = {row} RETURNING id")
        return None

    sleep_as(sleep)
    work(stage, settings)
    assert [(run["state"], run["attempt"]) for run in runs(admin, flow)] == [("running", 2)]


# Another attempt at a run whose caller has waited


@pytest.mark.parametrize("accountability", ["all", "activity"])
def test_a_rejected_call_is_tried_again_with_its_data(
    stage: Stage, admin: Client, settings: Config, accountability: str
) -> None:
    rule = {"$flow": {"attempt": {"_gt": 1}}}
    steps = [
        step("check", "condition", {"filter": rule}, resolve="tell"),
        step("tell", "transform", {"json": "{{$trigger.body.word}}"}),
    ]
    options = {"method": "POST"}
    flow = make_flow(admin, "webhook", options, steps, accountability=accountability)
    assert admin.post(f"/flows/trigger/{flow}", {"word": "w"}).status == 422
    (run,) = runs(admin, flow)
    assert (run["state"], "input" in run) == ("rejected", False)
    assert admin.post(f"/flows/runs/{run['id']}/retry").status == 204
    (run,) = runs(admin, flow)
    assert (run["state"], run["date_finished"]) == ("queued", None)
    work(stage, settings)
    (run,) = runs(admin, flow)
    expected = "w" if accountability == "all" else None
    assert (run["state"], run["attempt"], run["result"]) == ("done", 2, expected)
    query = f"SELECT count(*) FROM system_flow_runs WHERE flow = '{flow}' AND input IS NOT NULL"
    assert stage.value(query) == 0


def test_a_call_that_an_error_ends_leaves_a_run_to_try_again(
    stage: Stage, admin: Client, settings: Config, fail_when: Callable[[Failure], None]
) -> None:
    fail_when(lambda attempt: RuntimeError("a mistake") if attempt == 1 else None)
    flow = make_flow(admin, "webhook", {}, [step("wait", "sleep", {"milliseconds": 0})])
    assert admin.get(f"/flows/trigger/{flow}").status == 500
    (run,) = runs(admin, flow)
    assert (run["state"], run["steps"]) == ("failed", None)
    assert run["reason"] == "An unexpected error occurred; it has been logged."
    assert admin.post(f"/flows/runs/{run['id']}/retry").status == 204
    work(stage, settings)
    assert [run["state"] for run in runs(admin, flow)] == ["done"]


def test_a_run_without_steps_in_its_log_has_none_between_attempts(
    stage: Stage, admin: Client, settings: Config, fail_when: Callable[[Failure], None]
) -> None:
    fail_when(lambda attempt: Rejected("not now", is_transient=True))
    steps = [step("wait", "sleep", {"milliseconds": 0})]
    flow = make_flow(admin, "webhook", {"async": True}, steps, accountability="activity")
    assert admin.get(f"/flows/trigger/{flow}").status == 204
    work(stage, settings)
    assert [(run["state"], run["steps"]) for run in runs(admin, flow)] == [("queued", None)]
