"""The web server: gunicorn's settings, and the process in which `cms serve` runs it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from cms.config import Config, ConfigError, load
from cms.web.starting import remember_arbiter

WORKERS = {"event": "cms.web.worker.EventWorker", "gthread": "cms.web.threaded.ThreadedWorker"}

READY = "ready"
FAULT = "fault "


def gunicorn_settings(config: Config) -> dict[str, object]:
    """Return gunicorn's settings by its names, for `cms serve` and for gunicorn.conf.py."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return {
        "bind": [f"{host}:{config.port}"],
        "workers": config.web_concurrency,
        "threads": config.web_threads,
        "worker_class": WORKERS[config.web_worker],
        "post_fork": remember_arbiter,
        "keepalive": 5,
        "worker_connections": 10_000,
        "forwarder_headers": "",  # no header moves the application: SCRIPT_NAME is for the environment to say
        "graceful_timeout": 8,  # containers are killed 10 seconds after they were asked to stop
        "limit_request_line": 8190,  # filters are long, and this is the most that gunicorn bounds
        "loglevel": "warning",
        "accesslog": None,  # the service writes a log of its own
        "worker_tmp_dir": "/dev/shm"
        if Path("/dev/shm").is_dir()
        else None,  # a slow disk stops no heartbeat
        "control_socket_disable": True,  # it would run threads in the process that forks
    }


class GunicornApplication(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The service under gunicorn, on a socket that is bound already, with a line to `cms serve`."""

    def __init__(self, config: Config, *, listener: int, parent: ParentChannel) -> None:
        self._settings = gunicorn_settings(config) | {
            "bind": [f"fd://{listener}"],
            "post_worker_init": parent.worker_started,
        }
        self._parent = parent
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            if (
                name in self.cfg.settings
            ):  # some came with newer versions than the oldest that will do
                self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        try:
            from cms.app import create_wsgi

            return create_wsgi()
        except ConfigError as fault:
            self._parent.report_fault(fault)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        except Exception as fault:
            self._parent.report_fault(fault)
            raise  # gunicorn logs where it comes from


class ParentChannel:
    """The line between the workers and `cms serve`; it closes when that process is gone, however it ended."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line

    def worker_started(self, worker: Any) -> None:
        """Tell that a worker answers requests, and end the server when `cms serve` is gone."""
        self._send(READY)
        threading.Thread(target=self._end_with_parent, args=(worker.ppid,), daemon=True).start()

    def report_fault(self, fault: Exception) -> None:
        """Tell why no worker can answer."""
        self._send(FAULT + " ".join(str(fault).split()))

    def _send(self, message: str) -> None:
        try:
            self._socket.sendall(f"{message}\n".encode())
        except BrokenPipeError:
            return  # nobody is there to be told; the worker that follows ends for that

    def _end_with_parent(self, arbiter: int) -> None:
        self._socket.recv(1)  # nothing is ever sent this way, so it returns at the end of the line
        if os.getppid() == arbiter:  # else the parent is some process that has adopted this one
            os.kill(arbiter, signal.SIGTERM)


def main() -> None:
    """Run the web server; the arguments are the descriptors of the socket and of the supervisor's line."""
    listener, line = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    GunicornApplication(
        load(os.environ, folder=Path.cwd()), listener=listener, parent=ParentChannel(line)
    ).run()


if __name__ == "__main__":
    main()
