"""The first request after a start: `cms serve` on an existing database that is not running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.wire import RequestFailed, exchange, request

TIMEOUT_SECONDS = 60.0


def measure(folder: Path, environ: Mapping[str, str], *, token: str) -> float:
    """Return the seconds from the start of the command until an item has been answered."""
    # Without an address of a database, so that the start of the embedded one is in the time.
    settings = {name: value for name, value in environ.items() if name != "DATABASE_URL"}
    return until_answer(folder, settings, request("GET", "/items/articles/1", token=token))


def until_answer(folder: Path, settings: Mapping[str, str], message: bytes) -> float:
    """Return the seconds from the start of `cms serve` until a request has been answered."""
    port = _free_port()
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with (folder / "start.log").open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "cms", "serve"],
            env={**inherited, **settings, "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            _exchange_when_ready(port, message, process)
            return time.perf_counter() - started
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_SECONDS)


def _exchange_when_ready(port: int, message: bytes, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            exchange(("127.0.0.1", port), message)
            return
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RequestFailed("the service did not start") from None
            time.sleep(0.01)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
