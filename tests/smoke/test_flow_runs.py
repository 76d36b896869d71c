"""Queued runs of flows are all done, however often their workers and their database are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cms.database.migrate import migrate
from cms.embedded import start
from cms.flows.queued_runs import LOST_RUNS_SECONDS
from cms.jobs.housekeeping import WORKER_TIMEOUT_SECONDS
from tests.queues import QueueDatabase
from tests.smoke.running import environment, new_folder
from tests.store.embedded.servers import FAST, gone, postmaster
from tests.waiting import eventually

pytestmark = pytest.mark.slow

RUNS = 1000
RUNS_AT_A_TIME = 100
KILLS = 3
SLEEP_SECONDS = 3
OUTAGE_SECONDS = 15
"""So long that runs under way find no database, and give up waiting for it."""
FLOW = "00000000-0000-0000-0000-00000000000f"
FIRST = "00000000-0000-0000-0000-000000000001"
LAST = "00000000-0000-0000-0000-000000000002"
SECONDS = WORKER_TIMEOUT_SECONDS + 120

SETUP = f"""
DROP TABLE IF EXISTS notes;
DELETE FROM system_flow_runs;
DELETE FROM system_flows;
CREATE TABLE notes (id serial PRIMARY KEY, number integer, attempt integer);
INSERT INTO system_flows (id, name, trigger, options) VALUES ('{FLOW}', 'Note', 'webhook', '{{}}');
INSERT INTO system_operations (id, flow, key, type, options) VALUES (
    '{LAST}', '{FLOW}', 'note', 'item-create',
    '{{"collection": "notes", "permissions": "$full",
       "payload": {{"number": "{{{{$trigger.number}}}}", "attempt": "{{{{$flow.attempt}}}}"}}}}'
);
UPDATE system_flows SET operation = '{LAST}';
"""
SLEEP_FIRST = f"""
INSERT INTO system_operations (id, flow, key, type, resolve, options)
VALUES ('{FIRST}', '{FLOW}', 'sleep', 'sleep', '{LAST}', '{{"milliseconds": {SLEEP_SECONDS}000}}');
UPDATE system_flows SET operation = '{FIRST}';
"""
LONG_SLEEP = '{"milliseconds": 600000}'
NO_SLEEP = '{"milliseconds": 0}'
QUEUE = f"""
WITH runs AS (
    INSERT INTO system_flow_runs (flow, trigger, input)
    SELECT '{FLOW}', 'webhook', json_build_object('number', number)
    FROM generate_series(1, %s) AS number
    RETURNING id
)
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', id))
FROM runs;
"""
WRONGLY_REPEATED = """
SELECT run.id
FROM system_flow_runs AS run
LEFT JOIN notes ON notes.number = (run.data ->> 'number')::integer
GROUP BY run.id
HAVING count(notes.id) = 0
    OR count(notes.id) <> count(DISTINCT notes.attempt)
    OR max(notes.attempt) <> run.attempt
"""
"""Runs without an effect, with two of one attempt, or whose last attempt had none."""


def query(dsn: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def count(dsn: str, what: str) -> int:
    return int(query(dsn, f"SELECT count(*) FROM {what}")[0][0])


@contextmanager
def worker(dsn: str, folder: Path, **environ: str) -> Iterator[None]:
    """Run a worker, and kill it in the end."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cms", "worker"],
            cwd=folder,
            env=environment(folder, 1, DATABASE_URL=dsn, **environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def await_all_done(dsn: str, number: int) -> None:
    eventually(
        lambda: count(dsn, "system_flow_runs WHERE state = 'done'") == number, seconds=SECONDS
    )
    eventually(lambda: count(dsn, "procrastinate_jobs") == 0, seconds=SECONDS)


def test_no_run_is_lost_with_its_worker_and_only_later_attempts_repeat(
    queue: QueueDatabase, tmp_path: Path
) -> None:
    dsn = queue.dsn
    query(dsn, SETUP)
    query(dsn, QUEUE, RUNS)
    for number in range(1, KILLS + 1):
        with worker(dsn, tmp_path), worker(dsn, tmp_path):
            done = number * RUNS // (2 * KILLS)
            eventually(lambda: count(dsn, "notes") >= done, seconds=SECONDS)  # noqa: B023
    with worker(dsn, tmp_path):
        await_all_done(dsn, RUNS)
    assert query(dsn, WRONGLY_REPEATED) == []
    # What was done twice was under way when a worker was killed.
    assert count(dsn, "notes") - RUNS <= count(dsn, "system_flow_runs WHERE attempt > 1")


def test_a_run_whose_job_is_gone_is_done_once_its_worker_is_dead(
    queue: QueueDatabase, tmp_path: Path
) -> None:
    dsn = queue.dsn
    query(dsn, SETUP + SLEEP_FIRST)
    query(dsn, f"UPDATE system_operations SET options = '{LONG_SLEEP}' WHERE id = '{FIRST}'")
    query(dsn, QUEUE, 1)
    running = "system_flow_runs WHERE state = 'running' AND attempt = %d"
    with worker(dsn, tmp_path), worker(dsn, tmp_path):
        eventually(lambda: count(dsn, running % 1) == 1, seconds=SECONDS)
        query(dsn, "DELETE FROM procrastinate_jobs")
        # Both look for lost runs meanwhile, and see that one of them is at it.
        time.sleep(LOST_RUNS_SECONDS + 5)
        assert count(dsn, running % 1) == 1
    query(dsn, f"UPDATE system_operations SET options = '{NO_SLEEP}' WHERE id = '{FIRST}'")
    with worker(dsn, tmp_path):
        await_all_done(dsn, 1)
    assert query(dsn, "SELECT attempt FROM notes") == [(2,)]


def test_runs_under_way_are_done_once_their_database_is_there_again(tmp_path: Path) -> None:
    settings = FAST | {"max_connections": "300"}
    with new_folder() as folder, ExitStack() as servers:
        data = folder / "data"
        dsn = servers.enter_context(start(data, settings=settings)).dsn
        migrate(dsn)
        query(dsn, SETUP + SLEEP_FIRST)
        query(dsn, QUEUE, RUNS_AT_A_TIME)
        with worker(dsn, tmp_path, FLOWS_CONCURRENCY=str(RUNS_AT_A_TIME)):
            are_running = "system_flow_runs WHERE state = 'running'"
            eventually(lambda: count(dsn, are_running) == RUNS_AT_A_TIME, seconds=SECONDS)
            stop_immediately(postmaster(data))
            time.sleep(OUTAGE_SECONDS)
            servers.enter_context(start(data, settings=settings))
            await_all_done(dsn, RUNS_AT_A_TIME)
        assert count(dsn, "system_flow_runs WHERE attempt > 1") == RUNS_AT_A_TIME
        assert query(dsn, WRONGLY_REPEATED) == []


def stop_immediately(pid: int) -> None:
    """Stop a database server as `pg_ctl stop -m immediate` does."""
    os.kill(pid, signal.SIGQUIT)
    eventually(lambda: gone(pid), seconds=SECONDS)
