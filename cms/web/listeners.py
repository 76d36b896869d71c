"""The listening sockets of one worker: they accept its connections until it stops."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Any

from cms.web.client_limits import DRAIN_SECONDS
from cms.web.connection import ClientConnection
from cms.web.web_server import WebServer

log = logging.getLogger("cms")

_YIELD_SECONDS = 0.005
"""How long a worker leaves a connection to others: as long as one may wait for its interpreter."""
_SHUTDOWN_SECONDS = 86_400.0  # no limit for TLS: the sweep ends clients that are too slow


class Listeners:
    """Accepts connections on listening sockets, over TLS where there is a context."""

    def __init__(
        self,
        server: WebServer,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._server = server
        self._sockets = sockets
        self._context = context
        for listener in sockets:
            listener.setblocking(False)
            server.loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept one connection, or leave it for a moment to a worker that has fewer."""
        entry = self._server.entry
        if entry is None or not entry.is_above_another(self._server.connection_count):
            self._accept_one(listener)
            return
        self._server.loop.remove_reader(listener)
        self._server.loop.call_later(_YIELD_SECONDS, self._accept_left, listener)

    def _accept_left(self, listener: socket.socket) -> None:
        """Accept a connection that no other worker has accepted, and the next ones."""
        if not self._server.is_draining:
            self._server.loop.add_reader(listener, self._accept, listener)
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
            self._server.loop.remove_reader(listener)
            self._server.loop.call_later(1.0, self._resume_accepting, listener)
            return
        self._add_connection(accepted, address)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if not self._server.is_draining:
            self._server.loop.add_reader(listener, self._accept, listener)

    def _add_connection(self, accepted: socket.socket, address: object) -> None:
        accepted.setblocking(False)
        tls_options: dict[str, Any] = {}
        if self._context:
            tls_options = {
                "ssl": self._context,
                "ssl_handshake_timeout": self._server.limits.request_seconds,
                "ssl_shutdown_timeout": _SHUTDOWN_SECONDS,
            }
            # Handshakes that never end must not keep other clients out: the oldest goes.
            if len(self._server.connecting) >= self._server.limits.max_connections:
                next(iter(self._server.connecting)).cancel()
        connecting = self._server.loop.create_task(
            self._server.loop.connect_accepted_socket(
                lambda: ClientConnection(self._server, address), accepted, **tls_options
            )
        )
        self._server.connecting[connecting] = None
        self._server.publish_connections()
        connecting.add_done_callback(self._end_connecting)

    def _end_connecting(self, connecting: asyncio.Task[Any]) -> None:
        self._server.connecting.pop(connecting, None)
        self._server.publish_connections()
        if not connecting.cancelled() and connecting.exception():
            log.debug("A connection failed as it was made", exc_info=connecting.exception())

    async def drain(self, seconds: float) -> None:
        """Accept nothing more, answer what has arrived, and return when done or out of time.

        Idle connections are kept for a moment, so that a request on its way is still answered.
        """
        self._server.is_draining = True
        if self._server.entry:
            self._server.entry.end()
        for listener in self._sockets:
            self._server.loop.remove_reader(listener)
            self._accept_waiting(listener)
            listener.close()
        deadline = time.monotonic() + seconds
        while (self._server.connections or self._server.connecting) and time.monotonic() < deadline:
            self._server.sweep()
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


def _backlog_of(listener: socket.socket) -> int:
    """Return how many connections wait to be accepted; 0 where the system does not tell."""
    if listener.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return 0
    # For a listening socket, Linux puts this number into the field `tcpi_unacked`.
    information = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(information[24:28], sys.byteorder)
