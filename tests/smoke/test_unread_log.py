"""A web worker whose log nobody reads, as where the program that collects it hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.smoke.running import TIMEOUT_SECONDS, free_port
from tests.waiting import eventually
from tests.web.servers import ROOT, environment
from tests.web.wire import Wire, open_wire

pytestmark = pytest.mark.slow

PINGS = 2_000  # their lines are longer than what a pipe holds
THREADS = 4
SETTINGS = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",  # no ping needs it
    "SECRET": "only-for-tests-" * 3,
    "LOG_LEVEL": "info",
    "RATE_LIMITER_ENABLED": "false",
    "REQUEST_TIMEOUT": "1s",
    "WEB_THREADS": str(THREADS),
}


@contextmanager
def serving_into(pipe: int, folder: Path) -> Iterator[int]:
    """Serve with a pipe as the log, and yield the port."""
    port = free_port()
    gunicorn = str(Path(sys.executable).with_name("gunicorn"))
    options = ["--config=gunicorn.conf.py", "--workers=1", f"--bind=127.0.0.1:{port}"]
    process = subprocess.Popen(
        [gunicorn, *options, "cms.app:create_wsgi()"],
        cwd=ROOT,
        env=environment(folder, **SETTINGS),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=pipe,
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def await_connection(port: int) -> Wire:
    def connection() -> Wire | None:
        try:
            return open_wire(port)
        except ConnectionRefusedError:
            return None

    return eventually(connection)


def fill_the_log(port: int, stack: ExitStack) -> None:
    """Ping until the log is full, and leave requests behind whose threads wait for its reader."""
    with open_wire(port) as wire:
        for _ in range(PINGS):
            assert wire.get("/server/ping").body == b"pong"
    for _ in range(THREADS):
        wire = stack.enter_context(open_wire(port))
        wire.send(b"GET /items/things HTTP/1.1\r\nHost: x\r\n\r\n")
    with open_wire(port) as later:
        later.send(b"GET / HTTP/1.1\r\n")
        assert later.answer().status == 408
    assert not wire.has_come()


def read_all(descriptor: int) -> None:
    while os.read(descriptor, 65_536):
        pass


def test_the_event_loop_waits_for_nobody_who_reads_the_log(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    reader = threading.Thread(target=read_all, args=[read_end])
    with serving_into(write_end, tmp_path) as port:
        os.close(write_end)
        with ExitStack() as stack:
            # gunicorn's arbiter, which writes a line when it stops, could not end otherwise.
            stack.callback(reader.start)
            with await_connection(port):
                fill_the_log(port, stack)
            slow, odd, other = (stack.enter_context(open_wire(port)) for _ in range(3))
            odd.send(b"no request\r\n\r\n")
            assert odd.answer().status == 400
            slow.send(b"GET / HTTP/1.1\r\n")
            assert slow.answer().status == 408
            assert other.get("/server/ping").body == b"pong"
    reader.join(TIMEOUT_SECONDS)
    os.close(read_end)
