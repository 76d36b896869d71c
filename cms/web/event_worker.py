"""gunicorn's worker class with an event loop and threads; gunicorn itself manages the processes.

gunicorn's threaded worker gives each connection a thread from its first byte to its last, so that a
dozen clients that send one byte and wait are an outage. Here the event loop waits for clients,
which costs nothing, and a thread is taken once a request is complete.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import uvloop
from gunicorn import sock

from cms.config import Config, load
from cms.processes.slots import this_thread
from cms.web.client_limits import DESCRIPTORS_PER_CONNECTION, SWEEP_SECONDS, ClientLimits
from cms.web.listeners import Listeners
from cms.web.request_head import Environ
from cms.web.web_server import Proxies, WebServer
from cms.web.worker_startup import StoppableWorker
from cms.web.worker_table import WorkerTable


class EventWorker(StoppableWorker):
    """One process of the web server."""

    _table: ClassVar[WorkerTable | None] = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # gunicorn makes a worker before it forks, so that all workers share this memory.
        if EventWorker._table is None:
            EventWorker._table = WorkerTable()
        self._entry = EventWorker._table.new_entry()

    def run(self) -> None:
        descriptors = _allow_descriptors()
        config = load(os.environ, folder=Path.cwd())
        loop = uvloop.new_event_loop()
        server = WebServer(
            self._call_application,
            loop,
            threads=self.cfg.threads,
            limits=self._limits(config, descriptors),
            is_immediate=is_immediate_of(self.wsgi),
        )
        server.proxies = Proxies.from_settings(
            self.cfg.forwarded_allow_ips, self.cfg.secure_scheme_headers
        )
        server.entry = self._entry
        this_thread.must_not_wait = True
        loop.run_until_complete(self._serve(server))
        if server.threads.is_busy:
            # A thread that still works after all that time must not keep the process alive.
            os._exit(0)
        loop.close()

    def handle_abort(self, number: int, frame: object) -> None:
        """End at once, and log where: the arbiter found that a thread or the loop hangs."""
        faulthandler.dump_traceback()
        os._exit(1)

    def _call_application(
        self, environ: Environ, start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Call the application; a worker that has answered `max_requests` is replaced."""
        self.nr += 1
        if self.nr >= self.max_requests:
            self.alive = False
        answer: Iterable[bytes] = self.wsgi(environ, start_response)
        return answer

    async def _serve(self, server: WebServer) -> None:
        self._stop_requested = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            server.loop.add_signal_handler(number, self._request_stop)
        context = sock.ssl_context(self.cfg) if self.cfg.is_ssl else None
        sockets = [listener.sock for listener in self.sockets]
        listeners = Listeners(server, sockets, context)
        while self.alive and self.ppid == os.getppid():
            # Without this sign of life the arbiter replaces the worker.
            if not server.has_hung_thread():
                self.notify()
            server.sweep()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_requested.wait(), SWEEP_SECONDS)
        await listeners.drain(self.cfg.graceful_timeout)

    def _request_stop(self) -> None:
        self.alive = False
        self._stop_requested.set()

    def _limits(self, config: Config, descriptors: int) -> ClientLimits:
        # The rest is for files and for connections to the database.
        for_connections = descriptors * 3 // 4 // DESCRIPTORS_PER_CONNECTION
        return ClientLimits(
            request_seconds=config.request_timeout.total_seconds(),
            idle_seconds=self.cfg.keepalive,
            thread_seconds=config.web_timeout.total_seconds(),
            rate_window_seconds=config.send_timeout.total_seconds(),
            max_connections=min(self.cfg.worker_connections, for_connections),
        )


def is_immediate_of(application: Any) -> Callable[[Environ], bool]:
    """Return what tells which requests an application answers without waiting for anything."""
    # Asked of its class: a wrapper of another application may have the attributes of the service
    # (`functools.wraps`, proxies), and wait nevertheless.
    if hasattr(type(application), "is_immediate"):
        is_immediate: Callable[[Environ], bool] = application.is_immediate
        return is_immediate
    return lambda _: False


def _allow_descriptors() -> int:
    """Raise the limit of open files to what the system allows, and return it.

    The default is 1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
