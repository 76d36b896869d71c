"""Queued runs of flows are all done, however often their workers are killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cms.jobs.housekeeping import WORKER_TIMEOUT_SECONDS
from tests.queues import QueueDatabase
from tests.smoke.running import environment

pytestmark = pytest.mark.slow

RUNS = 1000
KILLS = 3
FLOW = "00000000-0000-0000-0000-00000000000f"
OPERATION = "00000000-0000-0000-0000-000000000001"
SECONDS = WORKER_TIMEOUT_SECONDS + 120

SETUP = f"""
CREATE TABLE notes (id serial PRIMARY KEY, number integer, attempt integer);
INSERT INTO system_flows (id, name, trigger, options) VALUES ('{FLOW}', 'Note', 'webhook', '{{}}');
INSERT INTO system_operations (id, flow, key, type, options) VALUES (
    '{OPERATION}', '{FLOW}', 'note', 'item-create',
    '{{"collection": "notes", "permissions": "$full",
       "payload": {{"number": "{{{{$trigger.number}}}}", "attempt": "{{{{$flow.attempt}}}}"}}}}'
);
UPDATE system_flows SET operation = '{OPERATION}';
INSERT INTO system_flow_runs (flow, trigger, input)
SELECT '{FLOW}', 'webhook', json_build_object('number', number)
FROM generate_series(1, {RUNS}) AS number;
"""


def count(queue: QueueDatabase, what: str) -> int:
    return int(queue.execute(f"SELECT count(*) FROM {what}")[0][0])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def worker(queue: QueueDatabase, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cms", "worker"],
            cwd=folder,
            env=environment(folder, 1, DATABASE_URL=queue.dsn),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def test_no_run_is_lost_with_its_worker_and_only_later_attempts_repeat(
    queue: QueueDatabase, tmp_path: Path
) -> None:
    queue.execute(SETUP)
    for number in range(1, KILLS + 1):
        with worker(queue, tmp_path):
            done = number * RUNS // (2 * KILLS)
            until(lambda: count(queue, "notes") >= done)  # noqa: B023
    with worker(queue, tmp_path):
        until(lambda: count(queue, "system_flow_runs WHERE state = 'done'") == RUNS)
        until(lambda: count(queue, "procrastinate_jobs") == 0)
    assert count(queue, "(SELECT DISTINCT number FROM notes) AS numbers") == RUNS
    first_attempts = (
        "(SELECT number FROM notes WHERE attempt = 1 GROUP BY number HAVING count(*) > 1)"
    )
    assert count(queue, f"{first_attempts} AS repeated") == 0
    # What was done twice was under way when a worker was killed.
    repeated = count(queue, "notes") - RUNS
    assert repeated <= count(queue, "system_flow_runs WHERE attempt > 1")
