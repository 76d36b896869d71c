"""Jobs come with the transaction that caused them, are tried again, and run
once however many workers there are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from cms.cli.worker import tasks_of
from cms.database.connections import standalone_transaction
from cms.errors import Refused
from cms.jobs import housekeeping
from cms.jobs.housekeeping import FETCHERS, delete_finished, queue_state, requeue
from cms.jobs.job_worker import groups_of
from cms.jobs.queue import channel_of_schema
from cms.jobs.task import Job, JobError, PermanentError, Task, defer, defer_all
from tests.client import Client
from tests.databases import UNTIL_NOW, channels_until_now
from tests.queues import QueueDatabase
from tests.statements import counted_in_transactions
from tests.waiting import eventually


def noting(done: list[Job], name: str = "note") -> Task:
    return Task(name, done.append)


def failing(fault: Exception, *, attempts: int = 3) -> Task:
    def run(_job: Job) -> None:
        raise fault

    return Task("fail", run, attempts=attempts)


def test_a_job_brings_its_payload_and_is_gone_when_it_is_done(queue: QueueDatabase) -> None:
    done: list[Job] = []
    payload = {
        "text": "é \"quoted\" 'too' $1 %s",
        "list": [1, 2.5, None],
        "deep": {"a": {"b": True}},
    }
    queue.put("note", payload)
    queue.drain(noting(done))
    assert [(job.payload, job.attempt) for job in done] == [(payload, 1)]
    assert queue.jobs() == []


def test_a_write_that_is_rolled_back_leaves_no_job(queue: QueueDatabase) -> None:
    def write() -> None:
        with queue.database.transaction() as transaction:
            defer(transaction.execute, "note", {})
            transaction.execute("SELECT 1 FROM system_users WHERE id = 'no uuid'")

    with pytest.raises(Refused):
        write()
    assert queue.jobs() == []


def test_many_jobs_are_put_in_the_queue_with_one_statement_and_run_in_their_order(
    queue: QueueDatabase,
) -> None:
    done: list[Job] = []
    with queue.database.transaction() as transaction:
        defer_all(transaction.execute, "note", [{"number": number} for number in range(100)])
        defer_all(transaction.execute, "note", [])
    queue.drain(noting(done), worker_concurrency=1)
    assert [job.payload["number"] for job in done] == list(range(100))


def test_many_jobs_in_a_queue_that_was_empty_are_not_read_for_each_of_them(
    queue: QueueDatabase,
) -> None:
    """Plans that PostgreSQL has made for the empty queue, and keeps, serve a full one."""
    count = 1000
    insert = (
        "INSERT INTO procrastinate_jobs (queue_name, task_name, args) "
        "SELECT 'note', 'note', '{}' FROM generate_series(1, %s)"
    )
    take = (
        "SELECT procrastinate_finish_job_v1(id, 'succeeded', TRUE) "
        "FROM procrastinate_fetch_job_v2(NULL, NULL)"
    )
    with psycopg.connect(queue.dsn, autocommit=True) as session:
        session.execute("VACUUM (FULL, ANALYZE) procrastinate_jobs")
        session.execute("VACUUM (FULL, ANALYZE) procrastinate_events")
        # Often enough that PostgreSQL keeps the plans.
        for _ in range(10):
            session.execute(insert, (1,))
            session.execute(take)
        with session.transaction():
            in_sequence, by_index = rows_read(session)
            session.execute(insert, (count,))
            for _ in range(10):
                session.execute(take)
            in_sequence_now, by_index_now = rows_read(session)
    assert in_sequence_now == in_sequence
    assert by_index_now - by_index < 3 * count


def rows_read(session: psycopg.Connection) -> tuple[int, int]:
    """Return how many rows of the queue the session has read in sequence, and by an index."""
    row = session.execute(
        "SELECT sum(seq_tup_read)::integer, sum(idx_tup_fetch)::integer "
        "FROM pg_stat_xact_user_tables "
        "WHERE relid IN ('procrastinate_jobs'::regclass, 'procrastinate_events'::regclass)"
    ).fetchone()
    assert row
    return row


def test_workers_are_notified_of_all_jobs_but_those_that_they_look_for(
    queue: QueueDatabase,
) -> None:
    tasks = tasks_of(queue.config, queue.database)
    with psycopg.connect(queue.dsn, autocommit=True) as listener:
        listener.execute(f"LISTEN {UNTIL_NOW}".encode())
        for task in tasks:
            channel = channel_of_schema(f"procrastinate_queue_v1#{task.name}", "public")
            listener.execute(f'LISTEN "{channel}"'.encode())
        for task in tasks:
            queue.put(task.name)
        channels = channels_until_now(listener, queue.dsn)
    names = [channel.partition("#")[2] for channel in channels]
    notified = {name.partition("@")[0] for name in names}
    assert notified == {task.name for task in tasks if task.poll is None}
    assert [task.name for task in tasks if task.poll] == ["flow"]


def test_jobs_run_where_statements_may_not_be_prepared(queue: QueueDatabase) -> None:
    done: list[Job] = []
    for _ in range(8):
        queue.put("note")
    queue.drain(noting(done), database_prepare=False)
    assert len(done) == 8


@pytest.mark.release
def test_each_job_runs_once_with_many_workers(queue: QueueDatabase) -> None:
    done: list[Job] = []
    with queue.database.transaction() as transaction:
        defer_all(transaction.execute, "note", [{}] * 60)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: queue.drain(noting(done)), range(3)))
    assert len({job.id for job in done}) == len(done) == 60


# What fails


def test_a_job_that_fails_is_tried_again_after_growing_pauses_until_it_is_given_up(
    queue: QueueDatabase,
) -> None:
    task = failing(JobError("not now"))
    queue.put("fail")
    pauses = []
    for _ in range(3):
        queue.drain(task)
        pauses += queue.execute(
            "SELECT round(extract(epoch FROM scheduled_at - now()) / 10) FROM procrastinate_jobs"
        )
        queue.drain(task)  # it is not due yet
        queue.make_due()
    assert queue.jobs() == [("fail", "failed", 3)]
    assert [int(pause) for (pause,) in pauses[:2]] == [3, 6]


def test_the_pause_doubles_up_to_a_bound() -> None:
    task = Task("fail", lambda _job: None, attempts=2000)
    pauses = [task.pause(JobError(""), attempt) for attempt in (1, 2, 3, 7, 8, 1999)]
    seconds = [pause and pause / timedelta(seconds=1) for pause in pauses]
    assert seconds == [30, 60, 120, 1920, 3600, 3600]
    assert task.pause(JobError(""), 2000) is None


def test_the_attempt_that_works_ends_it(queue: QueueDatabase) -> None:
    attempts: list[int] = []

    def run(job: Job) -> None:
        attempts.append(job.attempt)
        if job.attempt == 1:
            raise JobError("not at once")

    queue.put("flaky")
    for _ in range(2):
        queue.drain(Task("flaky", run))
        queue.make_due()
    assert attempts == [1, 2]
    assert queue.jobs() == []


def test_a_job_that_can_never_succeed_is_not_tried_again(queue: QueueDatabase) -> None:
    queue.put("fail")
    queue.drain(failing(PermanentError("never")))
    assert queue.jobs() == [("fail", "failed", 1)]


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(queue: QueueDatabase) -> None:
    done: list[Job] = []
    queue.put("new")
    queue.put("note")
    queue.drain(noting(done))
    assert len(done) == 1
    assert queue.jobs() == [("new", "todo", 0)]
    queue.drain(noting(done), noting(done, "new"))
    assert len(done) == 2


@pytest.mark.parametrize("fault", [JobError("told"), ValueError("unforeseen")])
def test_the_log_has_the_reason_of_a_failed_job_and_nothing_of_its_payload(
    queue: QueueDatabase, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    caplog.set_level(logging.DEBUG)
    queue.put("fail", {"token": "s3cret"})
    queue.drain(failing(fault, attempts=1))
    assert (
        f"of fail failed at attempt 1, it is given up: "
        f"{fault if isinstance(fault, JobError) else repr(fault)}" in (caplog.text)
    )
    assert "s3cret" not in "".join(
        f"{record.getMessage()} {record.__dict__}" for record in caplog.records
    )


# What is lost


def lose(queue: QueueDatabase, task: str) -> None:
    """Leave the queue as a worker that was killed in the middle of a job leaves it."""
    queue.put(task)
    queue.execute(
        """
        WITH worker AS (
            INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute')
                RETURNING id
        )
        UPDATE procrastinate_jobs SET status = 'doing',
            worker_id = worker.id FROM worker WHERE status = 'todo'
        """
    )


def test_a_job_whose_worker_is_silent_runs_again(queue: QueueDatabase) -> None:
    done: list[Job] = []
    lose(queue, "note")
    queue.drain(noting(done))
    assert [job.attempt for job in done] == [2]


def test_a_job_whose_worker_is_gone_runs_again(queue: QueueDatabase) -> None:
    done: list[Job] = []
    lose(queue, "note")
    queue.execute("DELETE FROM procrastinate_workers")
    queue.drain(noting(done))
    assert [job.attempt for job in done] == [2]


def test_a_job_whose_worker_lives_is_left_to_it(queue: QueueDatabase) -> None:
    done: list[Job] = []
    lose(queue, "note")
    queue.execute("UPDATE procrastinate_workers SET last_heartbeat = now()")
    queue.drain(noting(done))
    assert done == []
    assert queue.jobs() == [("note", "doing", 0)]


def test_a_job_that_kills_every_worker_is_given_up(queue: QueueDatabase) -> None:
    lose(queue, "note")
    queue.execute("UPDATE procrastinate_jobs SET attempts = 20")
    queue.drain(noting([]))
    assert queue.jobs() == [("note", "failed", 21)]


def test_a_worker_that_must_end_gives_its_jobs_back(queue: QueueDatabase) -> None:
    lose(queue, "note")
    ((worker,),) = queue.execute("SELECT id FROM procrastinate_workers")
    requeue(queue.database, worker)
    assert queue.jobs() == [("note", "todo", 1)]


def test_a_task_with_a_number_of_its_own_does_not_hold_up_others(queue: QueueDatabase) -> None:
    """Runs of flows: more of them than may run wait, and mail goes meanwhile."""
    done: list[str] = []
    has_mail = threading.Event()
    running = 0
    max_running = 0

    def run(job: Job) -> None:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        assert has_mail.wait(60)
        eventually(lambda: max_running >= 2)
        running -= 1
        done.append("flow")

    def mail(job: Job) -> None:
        has_mail.set()
        done.append("mail")

    for _ in range(5):
        queue.put("flow")
    queue.put("mail")
    queue.drain(Task("mail", mail), Task("flow", run, max_concurrent=2), worker_concurrency=1)
    assert (sorted(done), done[0]) == (["flow"] * 5 + ["mail"], "mail")
    assert max_running == 2


def test_a_worker_runs_as_many_flows_as_the_setting_allows(queue: QueueDatabase) -> None:
    config = replace(queue.config, flows_concurrency=7)
    tasks = tasks_of(config, queue.database)
    numbers = {task.name: task.max_concurrent for task in tasks}
    assert numbers == {
        "mail": None,
        "flow": 7,
        "build": 1,
        "index_build": None,
        "search_index": None,
        "word_index_build": None,
        "maintain": None,
    }


def test_jobs_of_a_task_that_is_gone_are_done_without_any_work(queue: QueueDatabase) -> None:
    queue.put("word_index_build", {"collection": "things"})
    queue.drain(*tasks_of(queue.config, queue.database))
    assert queue.jobs() == []


# Maintenance


def test_the_daily_maintenance_runs_as_a_job(queue: QueueDatabase) -> None:
    tasks = tasks_of(queue.config, queue.database)
    assert [task.name for task in tasks if task.cron] == ["maintain"]
    queue.put("maintain")
    queue.drain(*tasks)
    assert queue.jobs() == []


def test_old_failures_are_deleted_and_what_waits_stays(queue: QueueDatabase) -> None:
    for age in ("8 days", "6 days"):
        queue.put("fail")
        queue.drain(failing(PermanentError("never")))
        queue.execute(f"UPDATE procrastinate_events SET at = least(at, now() - interval '{age}')")
    queue.put("note")
    queue.execute("UPDATE procrastinate_events SET at = at - interval '1 hour'")
    delete_finished(queue.database)
    assert queue.jobs() == [("fail", "failed", 1), ("note", "todo", 0)]


def test_old_jobs_are_deleted_a_few_at_a_time(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "MAX_DELETED", 2)
    for _ in range(5):
        queue.put("fail")
        queue.drain(failing(PermanentError("never")))
    queue.execute("UPDATE procrastinate_events SET at = now() - interval '8 days'")
    with counted_in_transactions(monkeypatch) as statements:
        delete_finished(queue.database)
    assert queue.jobs() == []
    assert len([text for text in statements if "DELETE" in text]) == 3


def test_the_queue_reports_its_state(queue: QueueDatabase) -> None:
    queue.put("fail")
    queue.drain(failing(PermanentError("never")))
    lose(queue, "note")
    queue.put("later")
    queue.put("note")
    queue.execute(
        "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 hour' WHERE task_name = "
        "'later'"
    )
    with standalone_transaction(queue.dsn) as transaction:
        state = queue_state(transaction)
    assert (state.due, state.failed, state.workers) == (1, 1, 0)


def test_a_worker_counts_once(queue: QueueDatabase) -> None:
    tasks = tasks_of(queue.config, queue.database)
    assert len(groups_of(tasks, max_jobs=1)) == FETCHERS
    for workers in (1, 2):
        for _ in range(FETCHERS):
            queue.execute("INSERT INTO procrastinate_workers DEFAULT VALUES")
        with standalone_transaction(queue.dsn) as transaction:
            assert queue_state(transaction).workers == workers


def test_a_periodic_task_is_put_in_the_queue_once_by_many_workers(queue: QueueDatabase) -> None:
    done: list[Job] = []
    every_minute = Task("tick", done.append, cron="* * * * *")
    for _ in range(50):
        queue.put(
            "note"
        )  # a worker that finds nothing to do may be gone before it has looked at the clock
        queue.drain(every_minute, noting([]))
        if len(done) + len(queue.jobs()) > 0:
            break
    for _ in range(3):
        queue.put("note")
        queue.drain(every_minute, noting([]))
    assert 1 <= len(done) <= 2  # a minute may begin meanwhile
    assert done[0].payload == {}


def test_the_queue_is_no_part_of_the_structure(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    admin = make_client().bearing(admin_token)
    whole = "".join(admin.get(path).text for path in ("/collections", "/fields", "/relations"))
    assert "procrastinate" not in whole
    assert "system_queue" not in whole
    assert admin.get("/items/procrastinate_jobs").status == 404
    refused = admin.post("/collections", {"collection": "procrastinate_notes", "schema": {}})
    assert (refused.status, "belong to the queue" in refused.text) == (400, True)
