"""What the connections of one worker share, and the life of its listeners: open, serving, draining,
closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import islice
from typing import Any

from cms.web import answers
from cms.web.connection import Connection
from cms.web.head import Environ
from cms.web.limits import DRAIN_SECONDS, MAX_BUFFERED_IN_ALL, ClientLimits
from cms.web.thread_pool import ThreadPool

Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

log = logging.getLogger("cms")

_LOOKED_AT = 100
_RELIEF_SECONDS = 0.05
_SHUTDOWN_SECONDS = 86_400.0  # the sweep ends whoever is too slow for what is left; TLS cannot know


@dataclass(frozen=True, slots=True)
class Proxies:
    """Whose word on the scheme counts: addresses (or `*`), and what of their environment says TLS
    by which value.
    """

    addresses: frozenset[str] = frozenset()
    https_headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, addresses: Iterable[str], headers: Mapping[str, str]) -> Proxies:
        """Return the proxies of the settings; `headers` are those that say TLS, with their values."""
        return cls(
            frozenset(addresses),
            {f"HTTP_{name.replace('-', '_')}": value for name, value in headers.items()},
        )

    def trust(self, address: str) -> bool:
        """Tell whether a client is a proxy; one on a unix socket always is."""
        return not address or address in self.addresses or "*" in self.addresses

    def say_https(self, environ: Environ) -> bool:
        """Tell whether the headers of a proxy say that its own client came over TLS."""
        return any(environ.get(name) == value for name, value in self.https_headers.items())


class WebServer:
    """The web server of one process: an event loop for connections, threads for the application."""

    def __init__(
        self,
        application: Application,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: int,
        limits: ClientLimits,
    ) -> None:
        self.application = application
        self.loop = loop
        self.limits = limits
        self.threads = ThreadPool(
            threads, max_waiting=limits.max_streams, relieve=self._relieve_threads
        )
        self.connections: dict[Connection, None] = {}  # the oldest first
        self._is_relieving = False
        self._reserved = 0
        self._lock = threading.Lock()
        self.is_draining = False
        self.proxies = Proxies()
        self.date = formatdate(usegmt=True)
        self._listeners: list[socket.socket] = []
        self._connecting: dict[asyncio.Task[Any], None] = {}
        self._context: ssl.SSLContext | None = None
        self._environ: Environ = {
            "SCRIPT_NAME": os.environ.get("SCRIPT_NAME", ""),
            "SERVER_SOFTWARE": "cms",
            "cms.ends_unread": True,  # this server itself ends connections whose bodies are left unread
            "wsgi.errors": sys.stderr,
            "wsgi.input_terminated": True,
            "wsgi.multiprocess": True,
            "wsgi.multithread": True,
            "wsgi.run_once": False,
            "wsgi.url_scheme": "http",
            "wsgi.version": (1, 0),
        }

    def listen(
        self, listeners: Sequence[socket.socket], context: ssl.SSLContext | None = None
    ) -> None:
        """Accept connections of sockets that listen, over TLS with a context."""
        self._context = context
        for listener in listeners:
            listener.setblocking(False)
            self.loop.add_reader(listener, self._accept, listener)
            self._listeners.append(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept one connection and leave the next to whichever worker is free first: the loop's
        own way takes all.
        """
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as fault:  # too many open files: those that are there have to end first
            log.warning("No connection can be accepted: %s", fault.strerror)
            self.loop.remove_reader(listener)
            self.loop.call_later(1.0, self._resume_accepting, listener)
            return
        self._add_connection(accepted, address)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if not self.is_draining:
            self.loop.add_reader(listener, self._accept, listener)

    def _add_connection(self, accepted: socket.socket, address: object) -> None:
        accepted.setblocking(False)
        secured: dict[str, Any] = {}
        if self._context:
            secured = {
                "ssl": self._context,
                "ssl_handshake_timeout": self.limits.request_seconds,
                "ssl_shutdown_timeout": _SHUTDOWN_SECONDS,
            }
            if len(self._connecting) >= self.limits.max_connections:
                next(iter(self._connecting)).cancel()
        connecting = self.loop.create_task(
            self.loop.connect_accepted_socket(
                lambda: Connection(self, address), accepted, **secured
            )
        )
        self._connecting[connecting] = None
        connecting.add_done_callback(self._log_failed_connection)

    def _log_failed_connection(self, connecting: asyncio.Task[Any]) -> None:
        self._connecting.pop(connecting, None)
        if not connecting.cancelled() and connecting.exception():
            log.debug("A connection failed as it was made", exc_info=connecting.exception())

    def sweep(self) -> None:
        """Keep the deadlines of all connections; called twice a second."""
        self.date = formatdate(usegmt=True)
        now = time.monotonic()
        for connection in list(self.connections):
            connection.sweep(now)

    # Want of room

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than may be."""
        return len(self.connections) > self.limits.max_connections

    def make_room(self, newcomer: Connection) -> bool:
        """Close the oldest connection that waits for a request; tell whether there was one among
        the oldest.
        """
        for connection in islice(self.connections, _LOOKED_AT):
            if connection.is_idle and connection is not newcomer:
                connection.end_idle()
                return True
        return False

    def reserve(self, size: int) -> None:
        """Count bytes of bodies that wait; where all together are too many, those that came first
        have to go.
        """
        with self._lock:
            self._reserved += size
        if self._reserved > MAX_BUFFERED_IN_ALL:
            self._relieve_memory()

    def release(self, size: int) -> None:
        """Count bytes that wait no more; by any thread."""
        with self._lock:
            self._reserved -= size

    def _relieve_memory(self) -> None:
        incoming = [connection for connection in self.connections if connection.body_since]
        for connection in sorted(incoming, key=lambda connection: connection.body_since):
            connection.end_body()
            if self._reserved < MAX_BUFFERED_IN_ALL * 7 // 8:
                return

    def _relieve_threads(self) -> None:
        """Have the clients end that threads have waited for longest; by a thread."""
        self.loop.call_soon_threadsafe(self._begin_relief)

    def _begin_relief(self) -> None:
        if not self._is_relieving:
            self._is_relieving = True
            self._end_waiting()

    def _end_waiting(self) -> None:
        """End some clients, and look again when their threads had time to notice."""
        surplus = self.threads.surplus_waiting
        if surplus <= 0:
            self._is_relieving = False
            return
        waiting = [connection for connection in self.connections if connection.waiting_since]
        waiting.sort(key=lambda connection: connection.waiting_since)
        for connection in waiting[: surplus + self.limits.max_streams // 8]:
            connection.end_waiting(answers.OVERLOADED)
        self.loop.call_later(_RELIEF_SECONDS, self._end_waiting)

    async def drain(self, seconds: float) -> None:
        """Accept nothing more, answer what has come, and return when that is done or the time is
        over.

        Idle connections are kept for a moment, in which a request that is on its way still gets its
        answer.
        """
        self.is_draining = True
        for listener in self._listeners:
            self.loop.remove_reader(listener)
            self._accept_waiting(listener)
            listener.close()
        end = time.monotonic() + seconds
        while (self.connections or self._connecting) and time.monotonic() < end:
            self.sweep()
            await asyncio.sleep(DRAIN_SECONDS / 10)

    def _accept_waiting(self, listener: socket.socket) -> None:
        """Accept the connections that the kernel has taken, which would be reset with their
        listener.

        The last look at their number keeps the interpreter's lock, which another thread could hold
        for milliseconds.
        """
        waiting = True
        while waiting:
            try:
                self._add_connection(*listener.accept())
            except BlockingIOError:
                waiting = _backlog_of(listener) > 0

    def is_hung(self) -> bool:
        """Tell whether a thread works on one request for longer than any takes."""
        return self.threads.is_hung(time.monotonic(), seconds=self.limits.thread_seconds)

    def socket_of(self, transport: asyncio.Transport) -> socket.socket | None:
        """Return the connection's socket to write to from threads; None where TLS stands between.

        It has a descriptor of its own, which stays this connection's until it is closed here: the
        transport's would be another connection's as soon as the transport has closed it.
        """
        if transport.get_extra_info("sslcontext"):
            return None
        own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        own.setblocking(False)
        if own.family != socket.AF_UNIX:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return own

    def environ_of(self, transport: asyncio.Transport, client: Any) -> Environ:
        """Return what the environment of all requests of a connection has in common; `client` is
        its address.

        The transport does not know that address any more where the client is gone already.
        """
        server = transport.get_extra_info("sockname")
        environ = self._environ.copy()
        if transport.get_extra_info("sslcontext"):
            environ["wsgi.url_scheme"] = "https"
        if isinstance(server, tuple):
            environ |= {"SERVER_NAME": server[0], "SERVER_PORT": str(server[1])}
            environ |= {"REMOTE_ADDR": client[0], "REMOTE_PORT": str(client[1])}
        else:
            environ |= {"SERVER_NAME": str(server), "SERVER_PORT": "", "REMOTE_ADDR": ""}
        return environ


def _backlog_of(listener: socket.socket) -> int:
    """Return how many connections wait to be accepted; 0 where the system does not tell."""
    if listener.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return 0
    information = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(information[24:28], sys.byteorder)  # tcpi_unacked
