"""Runs that no job is left for are queued again, and never while a worker is still at them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cms.config import Config
from cms.database.statements import statement
from cms.flows.queued_runs import requeue_lost_runs
from cms.jobs.housekeeping import MAX_ATTEMPTS, WORKER_TIMEOUT_SECONDS
from tests.active_flows import Json, make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage


def queued(admin: Client) -> str:
    """Queue a run of a new flow, and return the flow."""
    steps = [step("tell", "transform", {"json": "{{$trigger.body}}"})]
    flow = make_flow(admin, "webhook", {"async": True, "method": "POST"}, steps)
    assert admin.post(f"/flows/trigger/{flow}", "a word").status == 204
    return flow


def lose_job(stage: Stage, flow: str) -> None:
    stage.execute(
        "DELETE FROM procrastinate_jobs WHERE args -> 'payload' ->> 'run' ="
        f" (SELECT id::text FROM system_flow_runs WHERE flow = '{flow}')"
    )


def set_run(stage: Stage, flow: str, values: str) -> None:
    stage.execute(f"UPDATE system_flow_runs SET {values} WHERE flow = '{flow}'")


def jobs(stage: Stage, flow: str) -> int:
    return int(
        stage.value(
            "SELECT count(*) FROM procrastinate_jobs AS job JOIN system_flow_runs AS run"
            " ON run.id::text = job.args -> 'payload' ->> 'run'"
            f" WHERE job.status IN ('todo', 'doing') AND run.flow = '{flow}'"
        )
    )


def the_run(admin: Client, flow: str) -> Json:
    (run,) = runs(admin, flow)
    return run


@pytest.fixture
def requeue(admin: Client) -> Callable[[], float]:
    return lambda: requeue_lost_runs(admin.app.store.database)


@pytest.mark.quick(1)
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_run_that_has_lost_its_job_is_done_by_another(
    stage: Stage, admin: Client, settings: Config, requeue: Callable[[], float], attempt: int
) -> None:
    flow = queued(admin)
    waiting = queued(admin)
    lose_job(stage, flow)
    if attempt:
        set_run(stage, flow, "state = 'running', attempt = 1")
    requeue()
    requeue()
    assert (jobs(stage, flow), jobs(stage, waiting)) == (1, 1)
    run = the_run(admin, flow)
    assert (run["state"], run["reason"]) == ("queued", "It has lost its worker.")
    assert the_run(admin, waiting)["reason"] is None
    work(stage, settings)
    run = the_run(admin, flow)
    assert (run["state"], run["attempt"]) == ("done", attempt + 1)
    assert run["result"] == "a word"


def test_a_run_that_ended_is_not_done_again(
    stage: Stage, admin: Client, settings: Config, requeue: Callable[[], float]
) -> None:
    flow = queued(admin)
    work(stage, settings)
    requeue()
    assert (the_run(admin, flow)["state"], jobs(stage, flow)) == ("done", 0)


def test_a_run_without_a_job_is_left_to_its_worker_while_that_lives(
    stage: Stage, admin: Client, requeue: Callable[[], float]
) -> None:
    flow = queued(admin)
    stage.execute("INSERT INTO procrastinate_workers DEFAULT VALUES")
    worker = stage.value("SELECT max(id) FROM procrastinate_workers")
    lose_job(stage, flow)
    set_run(stage, flow, f"state = 'running', attempt = 1, worker = {worker}")
    requeue()
    assert (the_run(admin, flow)["state"], jobs(stage, flow)) == ("running", 0)
    stage.execute(
        "UPDATE procrastinate_workers SET last_heartbeat ="
        f" now() - interval '{WORKER_TIMEOUT_SECONDS + 5} seconds' WHERE id = {worker}"
    )
    requeue()
    assert (the_run(admin, flow)["state"], jobs(stage, flow)) == ("queued", 1)


def test_a_run_whose_worker_lives_but_gave_it_back_is_done_by_another(
    stage: Stage, admin: Client, requeue: Callable[[], float]
) -> None:
    flow = queued(admin)
    stage.execute("INSERT INTO procrastinate_workers DEFAULT VALUES")
    worker = stage.value("SELECT max(id) FROM procrastinate_workers")
    lose_job(stage, flow)
    set_run(stage, flow, f"attempt = 1, worker = {worker}")
    requeue()
    assert jobs(stage, flow) == 1


def test_a_run_that_was_lost_too_often_has_failed(
    stage: Stage, admin: Client, requeue: Callable[[], float]
) -> None:
    flow = queued(admin)
    lose_job(stage, flow)
    set_run(stage, flow, f"state = 'running', attempt = {MAX_ATTEMPTS}")
    requeue()
    run = the_run(admin, flow)
    assert (run["state"], run["reason"]) == ("failed", "It has lost its worker too often.")
    assert run["date_finished"]
    assert jobs(stage, flow) == 0


def test_no_run_is_compared_with_each_job(stage: Stage, admin: Client) -> None:
    """The statistics are those of an empty queue, as when thousands of runs come at once."""
    stage.execute("ANALYZE procrastinate_jobs, system_flow_runs")
    explain = f"EXPLAIN {statement('requeue_lost_runs')}"
    with admin.app.store.database.transaction() as transaction:
        plan = [line for (line,) in transaction.execute(explain, (30.0, 20))]
    (number,) = (number for number, line in enumerate(plan) if "procrastinate_jobs job" in line)
    depth = plan[number].index("->")
    above: list[str] = []
    for line in reversed(plan[:number]):
        if 0 <= line.find("->") < depth:
            depth = line.index("->")
            above.append(line)
    assert "Except" in "".join(above), plan
    assert "Join" not in "".join(above), plan


def test_only_one_worker_at_a_time_queues_lost_runs(
    stage: Stage, admin: Client, requeue: Callable[[], float]
) -> None:
    flow = queued(admin)
    lose_job(stage, flow)
    with admin.app.store.database.transaction() as transaction:
        assert transaction.execute(statement("lock_lost_runs"))[0][0]
        requeue()
        assert jobs(stage, flow) == 0
    requeue()
    assert jobs(stage, flow) == 1
