"""gunicorn stays in charge: stopping, reloading, a new binary, workers that die or hang."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from http.client import HTTPException

import psutil
import pytest

from tests.smoke.running import TIMEOUT_SECONDS
from tests.waiting import eventually
from tests.web.servers import Running, running

pytestmark = pytest.mark.slow


CLIENTS = 8
REQUESTS_OF_A_CONNECTION = 20


class Load:
    """Clients that ask again and again, several times on each
    connection, and count what comes of it.
    """

    def __init__(self, server: Running, clients: int = CLIENTS) -> None:
        self.outcomes: Counter[str] = Counter()
        self.processes: set[int] = set()
        self._server = server
        self._over = threading.Event()
        self._clients = [threading.Thread(target=self._send_requests) for _ in range(clients)]

    def __enter__(self) -> Load:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._over.set()
        for client in self._clients:
            client.join()

    def _send_requests(self) -> None:
        while not self._over.is_set():
            try:
                wire = self._server.connect(TIMEOUT_SECONDS)
            except ConnectionRefusedError:
                self.outcomes["refused"] += 1
                return
            except ConnectionResetError:  # the kernel's, as below
                self.outcomes["reset"] += 1
                continue
            with wire:
                keeps = True
                count = 0
                while keeps and count < REQUESTS_OF_A_CONNECTION and not self._over.is_set():
                    count += 1
                    try:
                        answer = wire.get("/")
                    except (OSError, HTTPException) as fault:
                        # The kernel resets a connection that is made in the moment in which the
                        # last listener closes.
                        is_new = count == 1 and isinstance(fault, ConnectionResetError)
                        self.outcomes["reset" if is_new else f"failed: {fault!r}"] += 1
                        break
                    keeps = answer.keeps
                    self.outcomes[str(answer.status)] += 1
                    self.processes.add(answer.json()["pid"])


def failures(load: Load) -> dict[str, int]:
    return {
        outcome: number for outcome, number in load.outcomes.items() if outcome.startswith("failed")
    }


def test_stopping_under_load_fails_no_request() -> None:
    with running(workers=2) as server, Load(server, clients=CLIENTS) as load:
        eventually(lambda: load.outcomes["200"] > 100)
        server.signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
    assert failures(load) == {}
    assert load.outcomes["reset"] <= CLIENTS


def test_reloading_under_load_fails_no_request() -> None:
    with running(workers=2) as server, Load(server) as load:
        eventually(lambda: len(load.processes) == 2)
        before = set(load.processes)
        server.signal(signal.SIGHUP)
        eventually(lambda: len(load.processes - before) == 2)
        eventually(lambda: not any(psutil.pid_exists(process) for process in before))
    assert failures(load) == {}
    assert load.outcomes["reset"] == 0


def test_a_new_binary_takes_over_under_load_without_a_failed_request() -> None:
    with running(workers=1) as server, Load(server) as load:
        eventually(lambda: len(load.processes) == 1)
        before = set(load.processes)
        server.signal(signal.SIGUSR2)
        eventually(lambda: len(load.processes - before) == 1)
        follower = next(
            child for child in psutil.Process(server.process.pid).children() if child.children()
        )
        server.signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        served = load.outcomes["200"]
        eventually(lambda: load.outcomes["200"] > served + 20)
        follower.terminate()
        eventually(lambda: not follower.is_running())
    assert failures(load) == {}


def spread(server: Running, connections: int) -> Counter[int]:
    """Open connections that stay; return how many of them each process has."""
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(connections)]
        return Counter(wire.get("/").json()["pid"] for wire in wires)


def open_connections(server: Running) -> list[object]:
    """Return the connections that the workers have not closed, though their clients may have."""
    connections: list[object] = []
    for worker in server.worker_processes():
        for connection in worker.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN:
                connections.append(connection)
    return connections


def test_connections_that_stay_are_spread_evenly_over_the_workers() -> None:
    with running(workers=2) as server:
        eventually(lambda: len(spread(server, 20)) == 2)
        # The workers count a connection until they have seen its end.
        eventually(lambda: not open_connections(server))
        counts = spread(server, 40)
        assert len(counts) == 2
        # A worker that wakes too late, on a busy machine, leaves a connection to the other.
        assert min(counts.values()) >= 18


def test_a_worker_that_does_nothing_takes_no_connection_from_others() -> None:
    with running(workers=2) as server:
        eventually(lambda: len(spread(server, 20)) == 2)
        stopped, *_ = server.worker_processes()
        stopped.suspend()
        try:
            counts = spread(server, 20)
        finally:
            stopped.resume()
        assert list(counts.values()) == [20]


def test_a_worker_that_is_killed_is_replaced_and_only_its_own_requests_notice() -> None:
    with running(workers=2) as server, Load(server) as load:
        eventually(lambda: len(load.processes) == 2)
        victim = next(iter(load.processes))
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(load.processes) == 3)
    assert sum(failures(load).values()) <= 8  # as many as had a connection to it


def test_a_worker_whose_thread_hangs_is_replaced() -> None:
    with running(workers=1, timeout=2, environ={"WEB_TIMEOUT": "2s"}) as server:
        with server.connect() as wire:
            before = wire.get("/").json()["pid"]
        hanging = server.connect()
        hanging.send(b"GET /spin HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: not psutil.pid_exists(before))
        eventually(lambda: len(server.worker_processes()) == 1)
        with server.connect() as wire:
            assert wire.get("/").json()["pid"] != before
        hanging.socket.close()
        assert "tests/web/echo.py" in server.log_text()  # where it hung


def test_a_worker_is_replaced_after_so_many_requests_without_a_failed_one() -> None:
    with running(workers=1, max_requests=200) as server, Load(server) as load:
        eventually(lambda: len(load.processes) >= 3)
    assert failures(load) == {}
    assert load.outcomes["reset"] == 0
