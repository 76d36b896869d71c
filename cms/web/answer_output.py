"""Writes the answers of one connection: from their threads to the socket, or through the loop.

A short answer goes from its thread straight to the socket: waking the loop for it would cost as
much as writing it.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
import threading
import time

from cms.web.client_limits import MAX_UNSENT
from cms.web.web_server import WebServer


class ClientGone(OSError):
    """The connection ended before the answer did."""


class AnswerOutput:
    """The answers of one connection, one after another.

    `is_full` tells that the transport takes no more for now; `waiting_since` is when a thread began
    to wait until it does, 0 while none waits.
    """

    def __init__(self, server: WebServer, transport: asyncio.Transport) -> None:
        self._server = server
        self._transport = transport
        self._socket = server.socket_of(transport)
        self._is_lost = False
        self.is_full = False
        self._unwritten_chunks = 0  # that threads have handed to the loop
        self._writes_directly = False  # the thread writes to the socket, not through the loop
        self._room = threading.Event()  # for the next chunk of a stream
        self.waiting_since = 0.0
        self._unsent_since = 0.0  # when the answer began, or the client took a piece of it
        self._piecewise_bytes = 0  # of an answer, by the thread that writes it in pieces
        self._written_bytes = 0  # handed to the transport or to the socket
        transport.set_write_buffer_limits(high=MAX_UNSENT)

    # By a thread

    def write(self, data: bytes) -> None:
        """Send bytes; what the socket does not take at once is left to the loop."""
        rest = self._send(data) if self._writes_directly else data
        if rest:
            self._write_in_loop(rest)

    def write_chunk(self, data: bytes) -> None:
        """Send a chunk of a stream and wait until there is room for the next.

        Raises `ClientGone`.
        """
        threads = self._server.threads
        rest = self._send(data) if self._writes_directly else data
        if rest:
            self._room.clear()
            self._write_in_loop(rest)
            self.waiting_since = time.monotonic()
            with threads.waiting():
                self._room.wait()
            self._unsent_since = time.monotonic()
            self.waiting_since = 0.0
        elif threads.is_awaited:
            # A client that takes everything at once would keep the thread to itself.
            threads.yield_slot()
        if self._is_lost:
            raise ClientGone

    def write_in_pieces(self, data: bytes) -> None:
        """Send a long answer at the pace of the client; raises `ClientGone`."""
        self._unsent_since = time.monotonic()  # first, or a review would think it the oldest
        self._piecewise_bytes = len(data)  # all of it stays in memory until the last piece has gone
        self._server.loop.call_soon_threadsafe(self._server.count_unsent, len(data))
        for start in range(0, len(data), MAX_UNSENT):
            self.write_chunk(data[start : start + MAX_UNSENT])
        self._piecewise_bytes = 0

    @property
    def needs_loop(self) -> bool:
        """Whether threads write through the loop alone, as under TLS."""
        return self._socket is None

    def _send(self, data: bytes) -> bytes:
        """Send bytes through the socket, and return those that it does not take at once."""
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        except OSError:
            raise ClientGone from None
        self._written_bytes += sent
        return data[sent:]

    def _write_in_loop(self, data: bytes) -> None:
        """Let the loop write this and the rest of the answer, so that the order is kept."""
        self._writes_directly = False
        self._unwritten_chunks += 1
        self._server.loop.call_soon_threadsafe(self._write, data)

    # By the event loop

    def begin(self) -> None:
        """Prepare for the next answer."""
        # Bytes from a thread must not overtake bytes that the loop still has to write.
        self._writes_directly = self._socket is not None and self.is_written

    def _write(self, data: bytes) -> None:
        self._unwritten_chunks -= 1
        if not self._is_lost:
            self._written_bytes += len(data)
            if not self._transport.get_write_buffer_size():
                self._unsent_since = time.monotonic()
            self._transport.write(data)
            self._server.count_unsent(len(data))
        if self._is_lost or not self.is_full:
            self._room.set()

    def resume(self) -> None:
        """Note that the transport takes more again."""
        self.is_full = False
        self._room.set()

    def lose_client(self) -> None:
        """Note that the connection has ended; a thread that waits for room learns it."""
        self._is_lost = True
        self._room.set()

    def close(self) -> None:
        """Close the socket of the threads."""
        if self._socket is not None:
            self._socket.close()

    @property
    def is_handed_over(self) -> bool:
        """Whether the loop has got all that threads have sent."""
        return self._unwritten_chunks == 0

    @property
    def is_written(self) -> bool:
        """Whether nothing is left that the loop has to write."""
        return self.is_handed_over and self._transport.get_write_buffer_size() == 0

    @property
    def taken_bytes(self) -> int:
        """How many bytes the client has taken so far."""
        descriptor = self._transport.get_extra_info("socket").fileno()
        unsent = self._transport.get_write_buffer_size()
        return self._written_bytes - unsent - unacknowledged_bytes(descriptor)

    @property
    def unsent_bytes(self) -> int:
        """How many bytes are kept in memory until the client takes them."""
        return self._transport.get_write_buffer_size() + self._piecewise_bytes

    @property
    def unsent_since(self) -> float:
        """When the client was last seen to take all there was, or a chunk of a stream."""
        return self.waiting_since or self._unsent_since


def unacknowledged_bytes(descriptor: int) -> int:
    """Return how many written bytes the client has not acknowledged yet.

    The kernel may take megabytes at once, and nothing more until a third of them has left.
    Where the system does not tell, the number is 0.
    """
    if not sys.platform.startswith("linux"):
        return 0
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder, signed=True)
