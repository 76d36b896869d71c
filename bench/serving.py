"""Web servers in processes of their own: service and floor under the same gunicorn settings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication

from bench.wire import Address, exchange, request
from cms.config import load
from cms.gunicorn_process import gunicorn_settings

TIMEOUT_SECONDS = 60.0
BACKLOG = 2048
PROBE = "/server/ping"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A web server that answers."""

    address: Address
    process: subprocess.Popen[bytes]


@contextmanager
def serving(kind: str, folder: Path, environ: Mapping[str, str]) -> Iterator[RunningServer]:
    """Run the `service` or the `floor`, with its log in `folder`."""
    log = folder / f"{kind}.log"
    with (
        socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener,
        log.open("wb") as output,
    ):
        address: Address = listener.getsockname()
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.serving", kind, str(listener.fileno())],
            env={**os.environ, **environ},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        # The listening socket is open already, so that this waits for the first worker.
        exchange(address, request("GET", PROBE))
        yield RunningServer(address, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)


class _GunicornApplication(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, make: Callable[[], Any], server_settings: Mapping[str, object]) -> None:
        self._make = make
        self._server_settings = server_settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._server_settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        return self._make()


def _application(kind: str) -> Any:
    if kind == "service":
        from cms.app import create_wsgi

        return create_wsgi()
    from bench.floor import create_floor

    return create_floor(load(os.environ, folder=Path.cwd()))


def main() -> None:
    """Run the web server; the arguments are the kind, and the descriptor to listen on."""
    kind = sys.argv[1]
    descriptor = sys.argv[2]
    server_settings = gunicorn_settings(load(os.environ, folder=Path.cwd()))
    _GunicornApplication(
        lambda: _application(kind), {**server_settings, "bind": [f"fd://{descriptor}"]}
    ).run()


if __name__ == "__main__":
    main()
