"""The web server of one worker: state that its connections share, and room for them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import islice
from typing import Any, Protocol

from cms.web import error_answers
from cms.web.client_limits import MAX_BUFFERED_IN_ALL, MAX_UNSENT_IN_ALL, ClientLimits
from cms.web.request_head import Environ
from cms.web.thread_pool import ThreadPool
from cms.web.worker_table import WorkerEntry

Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

log = logging.getLogger("cms")

_MAX_LOOKED_AT = 100  # connections of a full server, for each newcomer
_RELIEF_SECONDS = 0.05
_RECEIVE_BYTES = 2**18  # as many as the event loop would take at a time by itself
_REVIEW_BYTES = MAX_UNSENT_IN_ALL // 8


class ServedConnection(Protocol):
    """A connection as its server sees it."""

    transport: asyncio.Transport

    @property
    def is_idle(self) -> bool: ...
    @property
    def waiting_since(self) -> float: ...
    @property
    def body_since(self) -> float: ...
    @property
    def unsent_bytes(self) -> int: ...
    @property
    def unsent_since(self) -> float: ...
    def sweep(self, now: float) -> None: ...
    def end_idle(self) -> None: ...
    def end_body(self) -> None: ...
    def end_waiting(self, refusal: bytes) -> None: ...
    def cut_off(self) -> None: ...


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
        self.connections: dict[ServedConnection, None] = {}  # the oldest first
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._is_relieving = False
        self._reserved = 0
        self._written = 0  # since the last review of unsent answers
        self._lock = threading.Lock()
        self.is_draining = False
        self.proxies = Proxies()
        self.entry: WorkerEntry | None = None
        self.date = formatdate(usegmt=True)
        self.connecting: dict[asyncio.Task[Any], None] = {}
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

    def publish_connections(self) -> None:
        """Tell the other workers how many connections this one has."""
        if self.entry and not self.is_draining:
            self.entry.publish(self.connection_count)

    @property
    def connection_count(self) -> int:
        """The number of connections, those included that are being made."""
        return len(self.connections) + len(self.connecting)

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

    def make_room(self, newcomer: ServedConnection) -> bool:
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

    def count_unsent(self, size: int) -> None:
        """Count bytes of answers; look at the clients that do not take them after every so many."""
        self._written += size
        if self._written >= _REVIEW_BYTES:
            self._written = 0
            self._review_unsent()

    def _review_unsent(self) -> None:
        """Where too much is unsent, cut off the answers whose clients are waited for longest."""
        unsent = [connection for connection in self.connections if connection.unsent_bytes]
        total = sum(connection.unsent_bytes for connection in unsent)
        if total <= MAX_UNSENT_IN_ALL:
            return
        for connection in sorted(unsent, key=lambda connection: connection.unsent_since):
            total -= connection.unsent_bytes
            connection.cut_off()
            # Somewhat below the limit, or the next answer would start this again.
            if total < MAX_UNSENT_IN_ALL - _REVIEW_BYTES:
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
