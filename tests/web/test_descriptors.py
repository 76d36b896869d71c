"""A worker with few open files: clients that only wait take none from the others."""

from __future__ import annotations

from contextlib import ExitStack

import psutil
import pytest

from tests.waiting import eventually
from tests.web.servers import Running, running
from tests.web.test_clients import HALF_A_HEAD, LONG_DEADLINES, send_by_many

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(psutil.Process, "rlimit"), reason="only Linux limits others"),
]


def allow_descriptors(server: Running, *, more: int) -> psutil.Process:
    """Let the worker open so many more files and no more; return the worker."""
    (worker,) = server.worker_processes()
    limit = worker.num_fds() + more
    worker.rlimit(psutil.RLIMIT_NOFILE, (limit, limit))
    return worker


@pytest.mark.parametrize("data", [b"", HALF_A_HEAD], ids=["nothing", "half a head"])
def test_a_worker_has_no_more_connections_than_its_open_files_allow(data: bytes) -> None:
    with running(environ=LONG_DEADLINES, descriptors=100) as server, ExitStack() as stack:
        send_by_many(server, data, 120, stack, addresses=1)
        for _ in range(10):
            with server.connect(10) as wire:
                assert wire.get("/").status == 200
        assert "Too many open files" not in server.log_text()


@pytest.mark.parametrize("more", [8, 9])
def test_a_worker_out_of_descriptors_answers_whom_it_has_accepted(more: int) -> None:
    with running(environ=LONG_DEADLINES) as server, ExitStack() as stack:
        worker = allow_descriptors(server, more=more)
        before = worker.num_fds()
        # Two descriptors each where there is an even number of them, else the last has one.
        wires = send_by_many(server, b"", (more + 1) // 2, stack, addresses=1)
        stack.enter_context(server.connect())  # it is not accepted
        for wire in wires:
            assert wire.get("/large?size=3000000").body == b"x" * 3_000_000
            assert wire.get("/stream?size=3000000").body == b"x" * 3_000_000
        stack.close()
        eventually(lambda: worker.num_fds() <= before)
        assert "Traceback" not in server.log_text()


def test_a_worker_out_of_descriptors_stops_without_a_failed_request() -> None:
    with running(environ=LONG_DEADLINES) as server, ExitStack() as stack:
        allow_descriptors(server, more=4)
        wires = send_by_many(server, b"", 2, stack, addresses=1)
        for wire in wires:
            wire.begin(b"GET /sleep?seconds=2 HTTP/1.1\r\nHost: x\r\n\r\n")
        stack.enter_context(server.connect())
        server.process.terminate()
        assert [wire.answer().status for wire in wires] == [200, 200]
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.log_text()
