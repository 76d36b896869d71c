"""The worker class of gunicorn that serves by an event loop and threads; gunicorn stays in charge of processes.

gunicorn's threaded worker gives each connection a thread from its first byte to its last: a dozen clients that send
nothing more than one byte are an outage. Here the event loop waits for clients, which costs nothing, and a thread is
taken when a request is whole.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import resource
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop
from gunicorn import sock

from cms.config import load
from cms.web.head import Environ
from cms.web.limits import SWEEP_SECONDS, Limits
from cms.web.server import Proxies, Server
from cms.web.starting import Starting


class EventWorker(Starting):
    """One process of the web server."""

    def run(self) -> None:
        _allow_descriptors()
        loop = uvloop.new_event_loop()
        server = Server(self._counted, loop, threads=self.cfg.threads, limits=self._limits())
        server.proxies = Proxies.of(self.cfg.forwarded_allow_ips, self.cfg.secure_scheme_headers)
        loop.run_until_complete(self._serve(server))
        if server.threads.is_busy:
            os._exit(0)  # what still works on a request after all that time must not keep the process
        loop.close()

    def handle_abort(self, number: int, frame: object) -> None:
        """End at once: the arbiter says that a thread or the loop hangs. The log tells where."""
        faulthandler.dump_traceback()
        os._exit(1)

    def _counted(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Call the application; a worker that has answered `max_requests` is replaced."""
        self.nr += 1
        if self.nr >= self.max_requests:
            self.alive = False
        answer: Iterable[bytes] = self.wsgi(environ, start_response)
        return answer

    async def _serve(self, server: Server) -> None:
        self._asked_to_stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            server.loop.add_signal_handler(number, self._stop)
        context = sock.ssl_context(self.cfg) if self.cfg.is_ssl else None
        server.listen([listener.sock for listener in self.sockets], context)
        while self.alive and self.ppid == os.getppid():
            if not server.is_hung():
                self.notify()
            server.sweep()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked_to_stop.wait(), SWEEP_SECONDS)
        await server.drain(self.cfg.graceful_timeout)

    def _stop(self) -> None:
        self.alive = False
        self._asked_to_stop.set()

    def _limits(self) -> Limits:
        config = load(os.environ, folder=Path.cwd())
        return Limits(
            request_seconds=config.request_timeout.total_seconds(),
            idle_seconds=self.cfg.keepalive,
            thread_seconds=config.web_timeout.total_seconds(),
            pace_seconds=config.send_timeout.total_seconds(),
            max_connections=self.cfg.worker_connections,
        )


def _allow_descriptors() -> None:
    """Let the process have as many connections as the system allows it: the usual limit is 1,024 files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
