"""A web worker that gets no more memory: large requests are refused, and all others answered."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest

from tests.databases import drop_database
from tests.machines.installation import Installation, Machine, installation
from tests.smoke.running import new_folder
from tests.things import aliases_of_text

pytestmark = pytest.mark.slow

TEXT = "x" * 900_000
ROOM = 24 * 2**20
"""Bytes that a worker may take beyond what it has: less than the large requests need."""

LARGE = 60
TIMES = 2


@pytest.fixture(scope="module")
def machines(make_database: Callable[..., str], template: str) -> Iterator[Installation]:
    dsn = make_database(template)
    settings = {"MAX_PAYLOAD_SIZE": "100mb", "MAX_ANSWER_SIZE": "100mb", "WEB_CONCURRENCY": "1"}
    with new_folder() as folder, installation(folder, dsn, settings, web=1) as machines:
        admin = machines.first.login()
        fields = [{"field": "text", "type": "text"}]
        table = {"collection": "notes", "schema": {}, "fields": fields}
        admin.data("POST", "/collections", table)
        admin.data("POST", "/items/notes?fields=id", {"text": TEXT})
        yield machines
    drop_database(dsn)


def worker_of(machine: Machine) -> psutil.Process:
    assert machine.process
    (worker,) = psutil.Process(machine.process.pid).children()
    return worker


@contextmanager
def little_memory(worker: psutil.Process) -> Iterator[None]:
    """Let the system give a process hardly more memory than it has."""
    before = worker.rlimit(resource.RLIMIT_AS)
    worker.rlimit(resource.RLIMIT_AS, (worker.memory_info().vms + ROOM, before[1]))
    try:
        yield
    finally:
        if worker.is_running():
            worker.rlimit(resource.RLIMIT_AS, before)


def test_requests_that_need_too_much_memory_are_refused_and_no_other_notices(
    machines: Installation,
) -> None:
    (machine,) = machines.web
    admin = machines.first.login()
    assert admin.data("GET", "/items/notes?fields=id") == [{"id": 1}]
    worker = worker_of(machine)
    body = [{"text": TEXT}] * LARGE
    with little_memory(worker), ThreadPoolExecutor(2) as threads:
        for _ in range(TIMES):
            read = threads.submit(admin.send, "GET", f"/items/notes/1?{aliases_of_text(LARGE)}")
            write = threads.submit(admin.send, "POST", "/items/notes", json=body)
            for _ in range(TIMES):
                assert admin.data("GET", "/items/notes?fields=id") == [{"id": 1}]
            for answer in (read.result(), write.result()):
                assert answer.status_code == 503, answer.text[:1000]
                assert int(answer.headers["Retry-After"]) > 0
    assert worker_of(machine) == worker
    assert len(admin.send("GET", f"/items/notes/1?{aliases_of_text(LARGE)}").content) > 50_000_000
