"""As many workers as processors keep their threads on one each."""

from __future__ import annotations

import os

import psutil
import pytest

from tests.waiting import eventually
from tests.web.servers import Running, running

pytestmark = pytest.mark.slow

AVAILABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def processors_of(worker: psutil.Process) -> list[set[int]]:
    """Return, for each thread of a worker, the processors that it may use."""
    return [os.sched_getaffinity(thread.id) for thread in worker.threads()]


def processors_taken(server: Running) -> set[int]:
    """Return the processors on which all threads of a worker are kept."""
    taken = set()
    for worker in server.worker_processes():
        processors = processors_of(worker)
        if len(processors) > 1 and all(len(choice) == 1 for choice in processors):
            taken |= set.union(*processors)
    return taken


def send_request(server: Running) -> None:
    with server.connect() as wire:
        assert wire.get("/").status == 200


@pytest.mark.skipif(len(AVAILABLE) < 2, reason="there is one processor only")
def test_as_many_workers_as_processors_have_one_each_also_when_they_are_replaced() -> None:
    with running(workers=len(AVAILABLE)) as server:
        eventually(lambda: processors_taken(server) == AVAILABLE)
        youngest = max(server.worker_processes(), key=psutil.Process.create_time)
        youngest.kill()
        eventually(lambda: not youngest.is_running())
        eventually(lambda: processors_taken(server) == AVAILABLE)


@pytest.mark.parametrize(
    ("workers", "setting"), [(len(AVAILABLE), "off"), (len(AVAILABLE) + 1, "auto")]
)
def test_other_workers_use_all_processors(workers: int, setting: str) -> None:
    with running(workers=workers, environ={"WEB_CPU_AFFINITY": setting}) as server:
        send_request(server)
        for worker in server.worker_processes():
            assert all(choice == AVAILABLE for choice in processors_of(worker))
