"""A worker keeps its threads on one processor."""

from __future__ import annotations

import os
import signal
from functools import partial

import psutil
import pytest

from tests.waiting import eventually
from tests.web.servers import Running, running

pytestmark = pytest.mark.slow

AVAILABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def processors_of(worker: psutil.Process) -> list[set[int]]:
    """Return, for each thread of a worker, the processors that it may use."""
    return [os.sched_getaffinity(thread.id) for thread in worker.threads()]


def is_on_one_processor(worker: psutil.Process) -> bool:
    processors = processors_of(worker)
    return len(processors) > 1 and all(len(choice) == 1 for choice in processors)


def are_apart(server: Running) -> bool:
    """Tell whether there are two workers, each on a processor of its own."""
    workers = server.worker_processes()
    if len(workers) != 2 or not all(map(is_on_one_processor, workers)):
        return False
    first, second = map(processors_of, workers)
    return first[0] != second[0]


def is_gone(server: Running, worker: int) -> bool:
    return worker not in [each.pid for each in server.worker_processes()]


def send_request(server: Running) -> None:
    with server.connect() as wire:
        assert wire.get("/").status == 200


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="Linux alone lets a program choose"
)
def test_all_threads_of_a_worker_are_on_one_processor() -> None:
    with running(workers=1) as server:
        send_request(server)
        (worker,) = server.worker_processes()
        eventually(lambda: is_on_one_processor(worker))
        assert set.union(*processors_of(worker)) <= AVAILABLE


@pytest.mark.skipif(len(AVAILABLE) < 2, reason="there is one processor only")
def test_two_workers_are_on_two_processors() -> None:
    with running(workers=2) as server:
        eventually(lambda: len(server.worker_processes()) == 2)
        first, second = server.worker_processes()
        eventually(lambda: is_on_one_processor(first) and is_on_one_processor(second))
        assert processors_of(first)[0] != processors_of(second)[0]


@pytest.mark.skipif(len(AVAILABLE) < 2, reason="there is one processor only")
def test_a_worker_that_is_replaced_again_and_again_stays_beside_the_other_one() -> None:
    with running(workers=2) as server:
        for _ in range(3):
            eventually(lambda: are_apart(server))
            youngest = max(server.worker_processes(), key=psutil.Process.create_time)
            youngest.kill()
            eventually(partial(is_gone, server, youngest.pid))
        eventually(lambda: are_apart(server))


@pytest.mark.skipif(len(AVAILABLE) < 2, reason="there is one processor only")
def test_a_worker_that_is_added_gets_the_other_processor() -> None:
    with running(workers=1) as server:
        server.signal(signal.SIGTTIN)
        eventually(lambda: are_apart(server))


def test_a_worker_that_may_use_all_processors_does() -> None:
    with running(workers=1, environ={"WEB_CPU_AFFINITY": "off"}) as server:
        send_request(server)
        (worker,) = server.worker_processes()
        assert all(choice == AVAILABLE for choice in processors_of(worker))
