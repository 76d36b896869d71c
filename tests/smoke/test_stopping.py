"""How a server ends: a new connection is refused, a request that has come is answered whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.smoke.pinging import ANSWERED, CLIENTS, REFUSED, ping, ping_until_refused
from tests.smoke.running import (
    TIMEOUT_SECONDS,
    Service,
    environment,
    free_port,
    new_folder,
    processes_of,
    serving,
)
from tests.waiting import eventually
from tests.web.wire import open_wire

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PING = b"GET /server/ping HTTP/1.1\r\nHost: localhost\r\n"


def web_server_of(service: Service) -> psutil.Process:
    """Return the process that leads the web server's workers."""
    children = psutil.Process(service.process.pid).children()
    return next(child for child in children if "cms.gunicorn_process" in child.cmdline())


def require_refused_or_answered(outcomes: Counter[str]) -> None:
    """A connection may meet the very moment in which the last socket
    closes: the kernel then resets it.

    On a busy machine that moment may last for a time slice, in which each client has begun one.
    """
    assert outcomes[REFUSED] > 1
    assert outcomes.total() - outcomes[ANSWERED] - outcomes[REFUSED] <= CLIENTS, outcomes


def test_connections_that_come_while_the_service_stops_are_refused_or_answered(
    installed: Path,
) -> None:
    with (
        serving(installed, WEB_CONCURRENCY="2") as service,
        socket.create_connection(("127.0.0.1", service.port)) as slow,
    ):
        slow.sendall(PING + b"\r\n")
        slow.recv(1000)
        slow.sendall(PING)  # half a request keeps a worker for a while
        require_refused_or_answered(ping_until_refused(service.port, service.process.terminate))
        assert service.process.poll() is None
        slow.sendall(b"\r\n")
        answer = slow.makefile("rb").read()
        assert answer.endswith(b"pong")
        assert b"Connection: close" in answer
        assert service.wait_for_exit() == 0


def test_connections_that_come_while_a_gunicorn_of_your_own_stops_are_refused_or_answered() -> None:
    with (
        gunicorn(ROOT / "gunicorn.conf.py") as (server, port),
        socket.create_connection(("127.0.0.1", port)) as slow,
    ):
        slow.sendall(PING + b"\r\n")
        slow.recv(1000)
        slow.sendall(PING)
        require_refused_or_answered(ping_until_refused(port, server.terminate))
        assert server.poll() is None
        slow.close()
        assert server.wait(TIMEOUT_SECONDS) == 0


@contextmanager
def gunicorn(script: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a gunicorn with the settings of a script, over a database that is not asked for
    anything.
    """
    port = free_port()
    with new_folder() as folder:
        settings = {
            "DATABASE_URL": "postgresql://127.0.0.1:1/none",
            "SECRET": "only-for-tests-" * 3,
        }
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-c", str(script), "cms.app:create_wsgi()"],
            cwd=folder,
            env=environment(
                folder, port, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **settings
            ),
        )
        try:
            eventually(lambda: ping(port) == ANSWERED)
            yield server, port
        finally:
            server.kill()
            server.wait(TIMEOUT_SECONDS)


STOPPED_WHEN_FORKED = """
import os, signal
exec(open({ours!r}).read())
follow = post_fork
def post_fork(arbiter, worker):
    if worker.age == 1:
        open({first!r}, "w").write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGTERM)
    follow(arbiter, worker)
"""


def test_a_web_worker_that_is_stopped_before_it_handles_signals_ends(tmp_path: Path) -> None:
    script = tmp_path / "conf.py"
    first = tmp_path / "first"
    script.write_text(
        STOPPED_WHEN_FORKED.format(ours=str(ROOT / "gunicorn.conf.py"), first=str(first))
    )
    with gunicorn(script) as (server, _port):
        eventually(lambda: not psutil.pid_exists(int(first.read_text())))
        server.terminate()
        assert server.wait(TIMEOUT_SECONDS) == 0


def test_a_killed_web_server_ends_the_service_and_requests_under_way_are_answered(
    installed: Path,
) -> None:
    with serving(installed) as service, open_wire(service.port) as client:
        client.begin(PING)
        web_server_of(service).kill()
        eventually(lambda: ping(service.port) == REFUSED)
        client.send(b"\r\n")
        assert [answer.body for answer in client.rest()] == [b"pong"]
        assert service.wait_for_exit() == 1
        assert "The web server ended by itself (status -9)." in service.log_text()
    assert processes_of(installed) == []


def test_a_worker_of_a_killed_web_server_that_does_not_end_is_killed(installed: Path) -> None:
    with serving(installed) as service:
        server = web_server_of(service)
        (worker,) = server.children()
        worker.suspend()
        server.kill()
        server.wait(TIMEOUT_SECONDS)
        service.process.send_signal(signal.SIGTERM)
        service.process.send_signal(signal.SIGTERM)  # the second one does not wait for long
        service.wait_for_exit()
    assert processes_of(installed) == []


def test_each_web_worker_has_a_session_of_its_own(installed: Path) -> None:
    # The kernel's autogroups give each session the same share of the processors.
    with serving(installed, WEB_CONCURRENCY="2") as service:
        workers = [worker.pid for worker in web_server_of(service).children()]
        assert len(workers) == 2
        assert [os.getsid(worker) for worker in workers] == workers


def test_a_request_that_has_begun_when_the_terminal_closes_is_answered(installed: Path) -> None:
    with serving(installed) as service, open_wire(service.port) as client:
        client.begin(b"GET /server/health HTTP/1.1\r\nHost: localhost\r\n")
        service.signal_group(signal.SIGHUP)
        eventually(lambda: ping(service.port) == REFUSED)
        client.send(b"\r\n")
        # The database is there until the end.
        assert [answer.status for answer in client.rest()] == [200]
        assert service.wait_for_exit() == 0
    assert processes_of(installed) == []
