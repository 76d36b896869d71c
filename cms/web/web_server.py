"""The web server of one worker: state that its connections share, and its listeners."""

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

from cms.web import error_answers
from cms.web.client_limits import DRAIN_SECONDS, MAX_BUFFERED_IN_ALL, ClientLimits
from cms.web.connection import ClientConnection
from cms.web.request_head import Environ
from cms.web.thread_pool import ThreadPool
from cms.web.unsent_answers import UnsentAnswers
from cms.web.worker_table import WorkerEntry

Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

log = logging.getLogger("cms")

_MAX_LOOKED_AT = 100  # connections of a full server, for each newcomer
_RELIEF_SECONDS = 0.05
_YIELD_SECONDS = 0.005
"""How long a worker leaves a connection to others: as long as one may wait for its interpreter."""
_RECEIVE_BYTES = 2**18  # as many as the event loop would take at a time by itself
_SHUTDOWN_SECONDS = 86_400.0  # no limit for TLS: the sweep ends clients that are too slow


@dataclass(frozen=True, slots=True)
class Proxies:
    """Proxies that are believed about the scheme: their addresses, or `*`, and their headers."""

    addresses: frozenset[str] = frozenset()
    https_headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, addresses: Iterable[str], headers: Mapping[str, str]) -> Proxies:
        """Return the proxies of gunicorn's settings; `headers` with these values mean TLS."""
        return cls(
            frozenset(addresses),
            {f"HTTP_{name.replace('-', '_')}": value for name, value in headers.items()},
        )

    def trust(self, address: str) -> bool:
        """Tell whether a client is a trusted proxy; one on a unix socket always is."""
        return not address or address in self.addresses or "*" in self.addresses

    def say_https(self, environ: Environ) -> bool:
        """Tell whether the headers of a proxy say that its client came over TLS."""
        return any(environ.get(name) == value for name, value in self.https_headers.items())


class WebServer:
    """The web server of one process: an event loop for connections, threads for the application.

    `is_immediate` tells for which requests the application waits for nothing, and returns a short
    list. The loop calls it for these itself, and serves nobody else meanwhile.
    """

    def __init__(
        self,
        application: Application,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: int,
        limits: ClientLimits,
        is_immediate: Callable[[Environ], bool] = lambda _: False,
    ) -> None:
        self.application = application
        self.is_immediate = is_immediate
        self.loop = loop
        self.limits = limits
        self.threads = ThreadPool(
            threads, max_waiting=limits.max_streams, relieve=self._relieve_threads
        )
        self.connections: dict[ClientConnection, None] = {}  # the oldest first
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.unsent_answers = UnsentAnswers(self.connections)
        self._is_relieving = False
        self._reserved = 0
        self._lock = threading.Lock()
        self.is_draining = False
        self.proxies = Proxies()
        self.entry: WorkerEntry | None = None
        self.date = formatdate(usegmt=True)
        self._listeners: list[socket.socket] = []
        self._connecting: dict[asyncio.Task[Any], None] = {}
        self._context: ssl.SSLContext | None = None
        self._environ: Environ = {
            "SCRIPT_NAME": os.environ.get("SCRIPT_NAME", ""),
            "SERVER_SOFTWARE": "cms",
            # This server ends connections with unread bodies itself
            # (cms/http/requests/request_body.py).
            "cms.ends_unread": True,
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
        """Accept connections on listening sockets, over TLS where there is a context."""
        self._context = context
        for listener in listeners:
            listener.setblocking(False)
            self.loop.add_reader(listener, self._accept, listener)
            self._listeners.append(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept one connection, or leave it for a moment to a worker that has fewer."""
        if self.entry is None or not self.entry.is_above_another(self._count):
            self._accept_one(listener)
            return
        self.loop.remove_reader(listener)
        self.loop.call_later(_YIELD_SECONDS, self._accept_left, listener)

    def _accept_left(self, listener: socket.socket) -> None:
        """Accept a connection that no other worker has accepted, and the next ones."""
        if not self.is_draining:
            self.loop.add_reader(listener, self._accept, listener)
            self._accept_one(listener)

    def _accept_one(self, listener: socket.socket) -> None:
        """Accept one connection; the loop's own method would take every one that waits."""
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # Too many open files: existing connections have to end first.
            log.warning("No connection can be accepted: %s", error.strerror)
            self.loop.remove_reader(listener)
            self.loop.call_later(1.0, self._resume_accepting, listener)
            return
        self._add_connection(accepted, address)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if not self.is_draining:
            self.loop.add_reader(listener, self._accept, listener)

    def _add_connection(self, accepted: socket.socket, address: object) -> None:
        accepted.setblocking(False)
        tls_options: dict[str, Any] = {}
        if self._context:
            tls_options = {
                "ssl": self._context,
                "ssl_handshake_timeout": self.limits.request_seconds,
                "ssl_shutdown_timeout": _SHUTDOWN_SECONDS,
            }
            # Handshakes that never end must not keep other clients out: the oldest goes.
            if len(self._connecting) >= self.limits.max_connections:
                next(iter(self._connecting)).cancel()
        connecting = self.loop.create_task(
            self.loop.connect_accepted_socket(
                lambda: ClientConnection(self, address), accepted, **tls_options
            )
        )
        self._connecting[connecting] = None
        self.publish_connections()
        connecting.add_done_callback(self._end_connecting)

    def _end_connecting(self, connecting: asyncio.Task[Any]) -> None:
        self._connecting.pop(connecting, None)
        self.publish_connections()
        if not connecting.cancelled() and connecting.exception():
            log.debug("A connection failed as it was made", exc_info=connecting.exception())

    def publish_connections(self) -> None:
        """Tell the other workers how many connections this one has."""
        if self.entry and not self.is_draining:
            self.entry.publish(self._count)

    @property
    def _count(self) -> int:
        """The number of connections, those included that are being made."""
        return len(self.connections) + len(self._connecting)

    def sweep(self) -> None:
        """Enforce the time limits of all connections; called twice a second."""
        self.publish_connections()
        self.date = formatdate(usegmt=True)
        now = time.monotonic()
        for connection in list(self.connections):
            try:
                connection.sweep(now)
            except Exception:
                # One connection must not end the worker, and with it all the others.
                log.exception("unexpected fault of the web server")
                connection.transport.abort()

    # Making room

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than the limit."""
        return len(self.connections) > self.limits.max_connections

    def make_room(self, newcomer: ClientConnection) -> bool:
        """Close an idle connection among the oldest; tell whether there was one."""
        for connection in islice(self.connections, _MAX_LOOKED_AT):
            if connection.is_idle and connection is not newcomer:
                connection.end_idle()
                return True
        return False

    def reserve(self, size: int) -> None:
        """Count bytes of waiting bodies; where these are too many, the oldest ones are refused."""
        with self._lock:
            self._reserved += size
        if self._reserved > MAX_BUFFERED_IN_ALL:
            self._relieve_memory()

    def release(self, size: int) -> None:
        """Count bytes that no longer wait; by any thread."""
        with self._lock:
            self._reserved -= size

    def _relieve_memory(self) -> None:
        # The oldest first: clients that send slowly on purpose are among these.
        incoming = [connection for connection in self.connections if connection.body_since]
        for connection in sorted(incoming, key=lambda connection: connection.body_since):
            connection.end_body()
            # Somewhat below the limit, or the next piece of a body would start this again.
            if self._reserved < MAX_BUFFERED_IN_ALL * 7 // 8:
                return

    def _relieve_threads(self) -> None:
        """End the clients for which threads have waited longest; by a thread."""
        self.loop.call_soon_threadsafe(self._begin_relief)

    def _begin_relief(self) -> None:
        if not self._is_relieving:
            self._is_relieving = True
            self._end_waiting()

    def _end_waiting(self) -> None:
        """End some clients, and look again once their threads have had time to notice."""
        surplus = self.threads.surplus_waiting
        if surplus <= 0:
            self._is_relieving = False
            return
        waiting = [connection for connection in self.connections if connection.waiting_since]
        waiting.sort(key=lambda connection: connection.waiting_since)
        # Some more than the surplus, or the next client that is waited for would start this again.
        for connection in waiting[: surplus + self.limits.max_streams // 8]:
            connection.end_waiting(error_answers.OVERLOADED)
        self.loop.call_later(_RELIEF_SECONDS, self._end_waiting)

    async def drain(self, seconds: float) -> None:
        """Accept nothing more, answer what has arrived, and return when done or out of time.

        Idle connections are kept for a moment, so that a request on its way is still answered.
        """
        self.is_draining = True
        if self.entry:
            self.entry.end()
        for listener in self._listeners:
            self.loop.remove_reader(listener)
            self._accept_waiting(listener)
            listener.close()
        deadline = time.monotonic() + seconds
        while (self.connections or self._connecting) and time.monotonic() < deadline:
            self.sweep()
            await asyncio.sleep(DRAIN_SECONDS / 10)

    def _accept_waiting(self, listener: socket.socket) -> None:
        """Accept connections that the kernel has taken: closing the listener would reset them.

        The last look at their number keeps the interpreter's lock, so that no other thread delays
        the close by milliseconds.
        """
        waiting = True
        while waiting:
            try:
                self._add_connection(*listener.accept())
            except BlockingIOError:
                waiting = _backlog_of(listener) > 0
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Too many open files: requests that are under way are answered nevertheless.
                log.warning("Connections that wait cannot be accepted: %s", error.strerror)
                return

    def has_hung_thread(self) -> bool:
        """Tell whether a thread has worked on one request for longer than the limit."""
        return self.threads.is_hung(time.monotonic(), seconds=self.limits.thread_seconds)

    def socket_of(self, transport: asyncio.Transport) -> socket.socket | None:
        """Return a socket by which threads write to the connection.

        It has a descriptor of its own, which belongs to this connection until it is closed here:
        the transport's descriptor may be given to another connection as soon as the transport
        closes it. None under TLS, and where no descriptor is left: then the loop writes.
        """
        if transport.get_extra_info("sslcontext"):
            return None
        try:
            duplicate = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError:
            return None
        duplicate.setblocking(False)
        if duplicate.family != socket.AF_UNIX:
            duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return duplicate

    def environ_of(self, transport: asyncio.Transport, client: Any) -> Environ:
        """Return the environ that all requests of a connection share; `client` is its address.

        The transport no longer knows that address where the client is already gone.
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
    # For a listening socket, Linux puts this number into the field `tcpi_unacked`.
    information = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(information[24:28], sys.byteorder)
