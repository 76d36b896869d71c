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
from gunicorn.glogging import Logger

# Imported before the workers are forked, which so share its counters.
import cms.rate_limits.shared_table  # noqa: F401
from cms.config import Config, ConfigError, load
from cms.logs import JsonFormatter
from cms.text_shapes import url_host
from cms.web.worker_startup import choose_processor, remember_arbiter

WORKER = "worker "
READY = "ready"
FAILED = "fault "
"""Reports of workers to `cms serve`: their process, that they answer requests, why they cannot."""


def gunicorn_settings(config: Config) -> dict[str, object]:
    """Return gunicorn's settings by their names, for `cms serve` and for gunicorn.conf.py."""
    affinity = {"pre_fork": choose_processor} if config.web_cpu_affinity == "auto" else {}
    return affinity | {
        "logger_class": JsonLog if config.log_style == "json" else Logger,
        "bind": [f"{url_host(config.host)}:{config.port}"],
        "workers": config.web_concurrency,
        "threads": config.web_threads,
        "worker_class": "cms.web.event_worker.EventWorker",
        "post_fork": remember_arbiter,
        "keepalive": 5,
        "worker_connections": 10_000,
        # No header may move the application: only the environment sets SCRIPT_NAME.
        "forwarder_headers": "",
        "graceful_timeout": 8,  # containers are killed 10 seconds after they were asked to stop
        "limit_request_line": 8190,  # filters are long, and this is gunicorn's maximum
        "loglevel": "warning",
        "accesslog": None,  # the service writes a log of its own
        # In memory, so that a slow disk stops no heartbeat.
        "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,
        "control_socket_disable": True,  # it would run threads in the process that forks
    }


class JsonLog(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Writes gunicorn's own lines as the service writes its own."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(JsonFormatter())


class GunicornApplication(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The service under gunicorn, on a bound socket, with a line to `cms serve`."""

    def __init__(self, config: Config, *, listener: int, parent: ParentChannel) -> None:
        self._settings = gunicorn_settings(config) | {
            "bind": [f"fd://{listener}"],
            "post_fork": parent.worker_forked,
            "post_worker_init": parent.worker_started,
        }
        self._parent = parent
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            # The oldest version of gunicorn that the service supports lacks some settings.
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        try:
            from cms.app import create_wsgi

            return create_wsgi()
        except ConfigError as error:
            self._parent.report_failure(error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        except Exception as error:
            self._parent.report_failure(error)
            raise  # gunicorn logs where it comes from


class ParentChannel:
    """The line between the workers and `cms serve`; it closes when that process ends."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line

    def worker_forked(self, arbiter: Any, worker: Any) -> None:
        """Report the process of a new worker; gunicorn's `post_fork`."""
        remember_arbiter(arbiter, worker)
        self._send(f"{WORKER}{os.getpid()}")

    def worker_started(self, worker: Any) -> None:
        """Report that a worker answers requests, and stop the server when `cms serve` is gone."""
        self._send(READY)
        threading.Thread(target=self._end_with_parent, args=(worker.ppid,), daemon=True).start()

    def report_failure(self, error: Exception) -> None:
        """Report why no worker can answer."""
        self._send(FAILED + " ".join(str(error).split()))

    def _send(self, message: str) -> None:
        try:
            self._socket.sendall(f"{message}\n".encode())
        except BrokenPipeError:
            return  # `cms serve` is gone; `_end_with_parent` stops the server for that

    def _end_with_parent(self, arbiter: int) -> None:
        self._socket.recv(1)  # nothing is ever sent this way, so it returns when the line closes
        if os.getppid() == arbiter:  # else another process has adopted this one
            os.kill(arbiter, signal.SIGTERM)


def main() -> None:
    """Run the web server; the arguments are the descriptors of the socket and of the line."""
    listener = int(sys.argv[1])
    line = socket.socket(fileno=int(sys.argv[2]))
    config = load(os.environ, folder=Path.cwd())
    GunicornApplication(config, listener=listener, parent=ParentChannel(line)).run()


if __name__ == "__main__":
    main()
