"""Jobs that have run and whose end the database does not take at first."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from cms.database.error_mapping import Stale, UnexpectedError
from cms.jobs import job_worker
from cms.jobs.housekeeping import leave_to_others
from cms.jobs.job_worker import Worker
from cms.jobs.task import Job, Task
from tests.databases import end_connections
from tests.queues import QueueDatabase
from tests.waiting import eventually

REFUSE_ENDS = """
CREATE FUNCTION refuse_end() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'The job cannot end.' USING DETAIL = 'secret'; END $$;
CREATE TRIGGER refuse_end BEFORE DELETE ON procrastinate_jobs
    FOR EACH ROW EXECUTE FUNCTION refuse_end()
"""
ALLOW_ENDS = "DROP FUNCTION refuse_end CASCADE"


def test_a_job_ends_though_its_connection_has_ended_meanwhile(queue: QueueDatabase) -> None:
    queue.put("cut")
    queue.drain(Task("cut", lambda _: end_connections(queue.dsn)))
    assert queue.jobs() == []


async def _work(queue: QueueDatabase, *tasks: Task) -> None:
    """Run a worker until the queue is empty."""
    worker = Worker(queue.config, queue.database, tasks)
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(eventually, lambda: not queue.jobs() or running.done())
    worker.stop()
    await running


def run_worker(queue: QueueDatabase, *tasks: Task) -> None:
    asyncio.run(asyncio.wait_for(_work(queue, *tasks), 120))


@pytest.mark.release
def test_a_job_whose_end_is_refused_runs_again_while_its_worker_goes_on(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_worker, "STALLED_CHECK_SECONDS", 0.1)
    attempts: list[int] = []
    workers = set()

    def run(job: Job) -> None:
        attempts.append(job.attempt)
        workers.update(queue.execute("SELECT id FROM procrastinate_workers"))
        queue.execute(REFUSE_ENDS if job.attempt == 1 else ALLOW_ENDS)

    queue.put("end")
    run_worker(queue, Task("end", run))
    assert attempts == [1, 2]
    assert len(workers) == 1
    assert "The job cannot end." in caplog.text
    # A detail may quote the job.
    assert "secret" not in caplog.text


@pytest.mark.release
def test_a_job_that_cannot_even_be_left_is_left_later(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_worker, "STALLED_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(job_worker, "HEARTBEAT_SECONDS", 0.1)
    refusals: list[Exception] = [Stale("refused"), UnexpectedError("refused")]

    def leave(*arguments: Any) -> None:
        if refusals:
            raise refusals.pop()
        leave_to_others(*arguments)

    monkeypatch.setattr(job_worker, "leave_to_others", leave)
    attempts: list[int] = []

    def run(job: Job) -> None:
        attempts.append(job.attempt)
        queue.execute(REFUSE_ENDS if job.attempt == 1 else ALLOW_ENDS)

    queue.put("end")
    run_worker(queue, Task("end", run))
    assert attempts == [1, 2]
    assert refusals == []


@pytest.mark.release
def test_a_worker_stops_whose_job_can_neither_end_nor_be_left(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def run(_: Job) -> None:
        queue.execute(REFUSE_ENDS)

    def refuse(*_: object) -> None:
        refused.set()
        raise Stale("refused")

    async def stop_after_refusal() -> bool:
        worker = Worker(queue.config, queue.database, [Task("end", run)])
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(refused.wait, 20)
        worker.stop()
        return await running

    monkeypatch.setattr(job_worker, "leave_to_others", refuse)
    queue.put("end")
    assert asyncio.run(asyncio.wait_for(stop_after_refusal(), 20))
    assert [status for _, status, _ in queue.jobs()] == ["doing"]
    queue.execute(ALLOW_ENDS)
