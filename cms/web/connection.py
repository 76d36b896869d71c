"""One connection: its requests one after another to threads, their answers out, and the deadlines
of its client.

The event loop runs everything here but what says "by a thread". A short answer goes from its thread
straight to the socket: waking the loop for it would cost as much as writing it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from cms.web import answers
from cms.web.exchange import ClientGone, Exchange
from cms.web.limits import (
    DRAIN_SECONDS,
    LINGER_SECONDS,
    MAX_LINGERING_BYTES,
    MAX_UNSENT,
    PACE_BYTES,
)
from cms.web.request_reader import RequestReader

if TYPE_CHECKING:
    from cms.web.server import WebServer

log = logging.getLogger("cms")


class Connection(asyncio.Protocol):
    """The protocol object of one client's connection."""

    transport: asyncio.Transport

    def __init__(self, server: WebServer, address: object) -> None:
        self.server = server
        self.address = address
        self.is_lost = False
        self.is_closing = False
        self.refusal: bytes | None = (
            None  # the answer of whoever has to end before its body is whole
        )
        self._pending: deque[Exchange] = deque()
        self._current_exchange: Exchange | None = None  # the last one that a thread was given
        self._is_busy = False
        self._is_half_closed = False
        self._discarded_bytes = 0
        self._unwritten_chunks = 0  # pieces that threads have handed to the loop
        self._writes_directly = False
        self._is_full = False
        self._room = threading.Event()  # for the next piece of a stream
        self._idle_since = (
            time.monotonic()
        )  # when the last answer ended, or the end of the connection began
        self._handed_bytes = 0  # bytes that the transport was given
        self._pace_started = 0.0
        self._paced_bytes = 0
        self._waiting_since = 0.0  # for room for the next piece

    # The connection's own events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._socket = self.server.socket_of(self.transport)
        self._request_reader = RequestReader(self)
        self.transport.set_write_buffer_limits(high=MAX_UNSENT)
        self.server.connections[self] = None
        if self.server.is_full and not self.server.make_room(self):
            self.refuse(answers.OVERLOADED)

    def connection_lost(self, fault: Exception | None) -> None:
        self.server.connections.pop(self, None)
        self.is_lost = True
        self._room.set()
        self._request_reader.close()
        for exchange in self._pending:
            exchange.reload_structure()
            if exchange.body:
                exchange.body.fail("the client is gone")
        if not self._is_busy:
            self._close_socket()

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            self._discard(len(data))
        else:
            self._request_reader.feed(data)

    def eof_received(self) -> bool:
        """Keep a half-closed connection for the answers that are still to come."""
        self._is_half_closed = True
        self._request_reader.end()
        if self.queued or self._unwritten_chunks:
            self.server.loop.call_soon(
                self._advance
            )  # a thread may have finished without knowing of the end
            return True
        return False

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._room.set()
        self._advance()

    # Requests

    @property
    def queued(self) -> int:
        """How many requests are here and not answered."""
        return len(self._pending) + self._is_busy

    def enqueue(self, exchange: Exchange) -> None:
        """Take a request that is ready for a thread."""
        self._pending.append(exchange)
        self._advance()

    def _advance(self) -> None:
        """Hand the next request to a thread, or end the connection when there is none and it ends."""
        if self.is_lost:
            if not self._is_busy:
                self._close_socket()
        elif self._is_busy or self._is_full:
            return
        elif self._pending:
            self._is_busy = True
            self._writes_directly = self._socket is not None and not self._is_writing()
            exchange = self._current_exchange = self._pending.popleft()
            exchange.queued_at = time.monotonic()
            self.server.threads.submit(exchange.run)
        elif self.is_closing or self._is_half_closed:
            self._end()
        self._request_reader.go_on()

    def _is_writing(self) -> bool:
        """Tell whether the loop still writes an earlier answer."""
        return self._unwritten_chunks > 0 or self.transport.get_write_buffer_size() > 0

    def finished(self, *, keep_alive: bool) -> None:
        """Go on after an answer; by a thread."""
        self._idle_since = time.monotonic()
        if not keep_alive:
            self.server.loop.call_soon_threadsafe(self._end_after_answer)
            return
        self._is_busy = False
        if self._pending or self._request_reader.is_holding or self.is_ending or self.is_lost:
            self.server.loop.call_soon_threadsafe(self._advance)

    def _end_after_answer(self) -> None:
        self._is_busy = False
        for exchange in self._pending:
            exchange.reload_structure()
        self._pending.clear()
        if self.is_lost:
            self._close_socket()
        else:
            self._end()

    # Answers

    def write(self, data: bytes) -> None:
        """Send bytes, or have the loop send what the socket does not take at once; by a thread."""
        rest = self._send(data) if self._writes_directly else data
        if rest:
            self._write_in_loop(rest)

    def write_chunk(self, data: bytes) -> None:
        """Send a piece of a stream, and wait until there is room for the next; by a thread. Raises
        `ClientGone`.
        """
        rest = self._send(data) if self._writes_directly else data
        if rest:
            self._room.clear()
            self._write_in_loop(rest)
            self._waiting_since = time.monotonic()
            with self.server.threads.waiting():
                self._room.wait()
            self._waiting_since = 0.0
        elif self.server.threads.queued:
            self.server.threads.yield_slot()
        if self.is_lost:
            raise ClientGone

    def abort(self) -> None:
        """End the connection so that the client sees that its answer is not whole; by a thread."""
        self.server.loop.call_soon_threadsafe(self.transport.abort)

    def _send(self, data: bytes) -> bytes:
        """Return what the socket does not take at once."""
        assert self._socket is not None
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            raise ClientGone from None

    def _write_in_loop(self, data: bytes) -> None:
        """Let the loop write: from now on everything of this answer goes that way, in its order."""
        self._writes_directly = False
        self._unwritten_chunks += 1
        self.server.loop.call_soon_threadsafe(self._write, data)

    def _write(self, data: bytes) -> None:
        self._unwritten_chunks -= 1
        if not self.is_lost:
            self._handed_bytes += len(data)
            self.transport.write(data)
        if self.is_lost or not self._is_full:
            self._room.set()

    # Bodies

    def resume_reading(self) -> None:
        """Let more of a body come in; by a thread."""
        self.server.loop.call_soon_threadsafe(self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.is_lost:
            self._request_reader.resume()

    def ask_for_body(self) -> None:
        """Tell a client that has announced a body to send it; by the thread whose answer comes
        behind.
        """
        with suppress(ClientGone):
            self.write(answers.CONTINUE)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is under way to the client, so that the loop may write."""
        return not self.queued and not self._unwritten_chunks

    # Ends

    @property
    def is_ending(self) -> bool:
        """Whether no request after this one is answered."""
        return self.is_closing or self._is_half_closed or self.server.is_draining

    def refuse(self, answer: bytes) -> None:
        """Answer in place of the application and end; where other answers are under way, only end
        after them.
        """
        if answer is answers.MALFORMED:
            log.info("%s sent what is no request", self._request_reader.client or "A client")
        if self.is_silent:
            self.transport.write(answer)
            self._end()
        else:
            self.end_after_answers()
            self.server.loop.call_soon(
                self._advance
            )  # the last answer may just be on its way to the loop

    def end_after_answers(self) -> None:
        """Read no more requests; those that are here are answered."""
        self.is_closing = True

    def _end(self) -> None:
        """Close after the client has had time to read: bytes that nobody reads would reset the
        connection.
        """
        self.is_closing = True
        self._idle_since = time.monotonic()
        self.transport.resume_reading()
        if self._is_half_closed or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > MAX_LINGERING_BYTES:
            self.transport.abort()

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()

    # Deadlines

    def sweep(self, now: float) -> None:
        """End what has waited too long for this client."""
        body = self._request_reader.body
        if self.transport.get_write_buffer_size() or (body and body.is_awaited):
            self._check_pace(now)
            return
        self._pace_started = 0.0
        if self._request_reader.is_due:
            if now - self._request_reader.started_at > self.server.limits.request_seconds:
                self._request_reader.drop("the client is too slow")
                self.refuse(answers.TOO_SLOW)
        elif not self.queued and now - self._idle_since > self._patience():
            self.end_idle()

    def _patience(self) -> float:
        """How many seconds the next request may take to begin, or the client to end as well."""
        if self.is_closing:
            return LINGER_SECONDS
        return DRAIN_SECONDS if self.server.is_draining else self.server.limits.idle_seconds

    def _check_pace(self, now: float) -> None:
        """End a client that neither takes nor sends `PACE_BYTES` within the time for them."""
        moved = (
            self._handed_bytes
            - self.transport.get_write_buffer_size()
            + self._request_reader.received
        )
        if not self._pace_started:
            self._pace_started, self._paced_bytes = now, moved
        elif now - self._pace_started >= self.server.limits.pace_seconds:
            if moved - self._paced_bytes < PACE_BYTES:
                self.end_waiting(answers.TOO_SLOW)
            self._pace_started, self._paced_bytes = now, moved

    # Ends for want of room

    @property
    def waiting_since(self) -> float:
        """When a thread began to wait for this client, 0 where none does."""
        body = self._request_reader.body
        return body.awaited_since if body and body.is_awaited else self._waiting_since

    @property
    def body_since(self) -> float:
        """When the body that is kept until it is whole began to come in, 0 where none does."""
        return self._request_reader.started_at if self._request_reader.holds_body else 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request that is not whole yet, or for its client to end."""
        return (
            not self.queued
            and not self._unwritten_chunks
            and self.transport.get_write_buffer_size() == 0
        )

    def end_idle(self) -> None:
        """Close the connection of a client that sends nothing, or nothing whole; at once where it
        was told before.
        """
        if self.is_closing:
            self.transport.abort()
            return
        self.is_closing = True
        self._idle_since = time.monotonic()
        self._request_reader.drop("the client is too slow")
        self.transport.close()

    def end_waiting(self, refusal: bytes) -> None:
        """End a client for which a thread waits: refuse its upload, or cut its answer off."""
        body = self._request_reader.body
        if body and body.is_awaited:
            self.refusal = refusal
            body.fail("the client is too slow")
        else:
            log.warning(
                "The answer to %s was cut off: its client did not take it in time",
                self._current_exchange,
            )
            self.transport.abort()

    def end_body(self) -> None:
        """Refuse a request whose body is not whole yet."""
        self._request_reader.drop("the server has too many of them")
        self.refuse(answers.OVERLOADED)
