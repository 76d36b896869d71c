"""One connection: its requests go to threads one after another, and their answers to the client.

Requests for which the application waits for nothing are answered by the event loop itself.

Everything here runs in the event loop, except methods that say "by a thread".
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from typing import cast

from cms.web import error_answers
from cms.web.answer_output import AnswerOutput, ClientGone
from cms.web.client_limits import (
    DRAIN_SECONDS,
    LINGER_SECONDS,
    MAX_LINGERING_BYTES,
    TransferRate,
)
from cms.web.http_exchange import HttpExchange
from cms.web.request_reader import RequestReader
from cms.web.web_server import WebServer

log = logging.getLogger("cms")

_TOO_SLOW = "the client is too slow"


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    transport: asyncio.Transport

    def __init__(self, server: WebServer, address: object) -> None:
        self.server = server
        self.address = address
        self.is_lost = False
        self.is_closing = False
        self.refusal: bytes | None = None  # replaces the answer to a body that was cut off
        self._pending: deque[HttpExchange] = deque()
        self._current_exchange: HttpExchange | None = None  # the last one that went to a thread
        self._is_busy = False  # a thread is answering a request
        self._is_half_closed = False
        self._discarded_bytes = 0
        # When the last answer ended, or the end of the connection began.
        self._idle_since = time.monotonic()
        self._transfer_rate = TransferRate()

    # The connection's own events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.output = AnswerOutput(self.server, self.transport)
        self._request_reader = RequestReader(self)
        self.server.connections[self] = None
        if self.server.is_full and not self.server.make_room(self):
            self.refuse(error_answers.OVERLOADED)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.pop(self, None)
        self.server.publish_connections()
        self.is_lost = True
        self.output.lose_client()
        self._request_reader.close()
        for exchange in self._pending:
            exchange.release_body()
            if exchange.body:
                exchange.body.fail("the client is gone")
        # A thread that is answering may be writing to the socket: it is closed when that thread
        # has finished. Its descriptor could otherwise belong to another connection by then.
        if not self._is_busy:
            self.output.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the event loop puts what has arrived: it allocates nothing, and cannot fail.

        One buffer serves all connections, since `buffer_updated` empties it at once.
        """
        return self.server.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closing:
            self._discard(nbytes)
        else:
            self._request_reader.feed(self.server.receive_buffer[:nbytes])

    def eof_received(self) -> bool:
        """Keep a half-closed connection open for the answers that are still to come."""
        self._is_half_closed = True
        self._request_reader.end()
        if not self.is_silent:
            # A thread may have finished before it could know that the client sends no more.
            self.server.loop.call_soon(self._advance)
            return self.transport.can_write_eof()  # TLS ends as a whole
        return False

    def pause_writing(self) -> None:
        self.output.is_full = True

    def resume_writing(self) -> None:
        self.output.resume()
        self._advance()

    # Requests

    @property
    def queued(self) -> int:
        """How many requests have arrived and are not answered yet."""
        return len(self._pending) + self._is_busy

    def enqueue(self, exchange: HttpExchange) -> None:
        """Add a request that is ready for a thread."""
        self._pending.append(exchange)
        self._advance()

    def _advance(self) -> None:
        """Give the next request to a thread; without one, end a connection that is ending."""
        if self.is_lost:
            if not self._is_busy:
                self.output.close()
        elif self._is_busy or self.output.is_full:
            return  # one at a time: answers leave in the order of their requests
        elif self._pending:
            self._is_busy = True
            self.output.begin()
            exchange = self._pending.popleft()
            self._current_exchange = exchange
            exchange.queued_at = time.monotonic()
            if exchange.is_immediate:
                # A thread would only take the interpreter from others. Not at once, because the
                # parser has not ended yet, and other connections have their turns.
                self.server.loop.call_soon(exchange.run)
            else:
                self.server.threads.submit(exchange.run)
        elif self.is_closing or self._is_half_closed:
            self._end()
        self._request_reader.resume_parsing()

    def finished(self, *, keep_alive: bool) -> None:
        """Continue after an answer; by a thread, or by the loop after an answer of its own."""
        self._idle_since = time.monotonic()
        if not keep_alive:
            self.server.loop.call_soon_threadsafe(self._end_after_answer)
            return
        self._is_busy = False
        # Most connections have nothing waiting: then the loop is not woken.
        if self._pending or self._request_reader.is_holding or self.is_ending or self.is_lost:
            self.server.loop.call_soon_threadsafe(self._advance)

    def _end_after_answer(self) -> None:
        self._is_busy = False
        for exchange in self._pending:
            exchange.release_body()
        self._pending.clear()
        if self.is_lost:
            self.output.close()
        else:
            self._end()

    def abort(self) -> None:
        """Reset the connection: the client must see that its answer is incomplete; by a thread."""
        self.server.loop.call_soon_threadsafe(self.transport.abort)

    # Bodies

    def resume_reading(self) -> None:
        """Let more of a body arrive; by a thread."""
        self.server.loop.call_soon_threadsafe(self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.is_lost and not self.is_closing:
            self._request_reader.resume()

    def ask_for_body(self) -> None:
        """Tell a client that announced its body to send it; by the thread that reads the body."""
        with suppress(ClientGone):
            self.output.write(error_answers.CONTINUE)

    @property
    def is_silent(self) -> bool:
        """Whether no answer is under way, so that the loop itself may write one."""
        return not self.queued and self.output.is_handed_over

    # Ends

    @property
    def is_ending(self) -> bool:
        """Whether no request after the current one is answered.

        Complete requests that have arrived still are, except by a server that stops.
        """
        if self.server.is_draining:
            return True
        is_last = not self._pending and not self._request_reader.is_holding
        return is_last and (self.is_closing or self._is_half_closed)

    def refuse(self, answer: bytes) -> None:
        """Answer in place of the application and end the connection.

        While other answers are under way the refusal is left out: the connection ends after them.
        """
        if answer is error_answers.MALFORMED:
            log.info("%s sent what is no request", self._request_reader.client or "A client")
        if self.is_silent:
            self.transport.write(answer)
            self._end()
        else:
            self.end_after_answers()
            # The last answer may be finished by now, and nothing else would end the connection.
            self.server.loop.call_soon(self._advance)

    def end_after_answers(self) -> None:
        """Read no more requests, but answer those that have arrived.

        What comes meanwhile waits in the socket: a client that sends too much is reset once it has
        its answers, and not before.
        """
        self.is_closing = True
        self.transport.pause_reading()

    def _end(self) -> None:
        """Close, but give the client time to read.

        Closing at once, with bytes of the client unread, would reset the connection.
        """
        self.is_closing = True
        # Half a request behind the last answer would be refused, and nothing may be written now.
        self._request_reader.drop("the connection has ended")
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

    # Deadlines

    def sweep(self, now: float) -> None:
        """End the connection where its client has exceeded a time limit."""
        body = self._request_reader.body
        # While bytes move, their rate counts; else the time that a head or an idle client may take.
        if self.transport.get_write_buffer_size() or (body and body.is_awaited):
            self._check_transfer_rate(now)
            return
        self._transfer_rate.reset()
        if self._request_reader.is_due:
            if now - self._request_reader.started_at > self.server.limits.request_seconds:
                self._request_reader.drop(_TOO_SLOW)
                self.refuse(error_answers.TOO_SLOW)
        elif not self.queued and now - self._idle_since > self._idle_limit():
            self.end_idle()

    def _idle_limit(self) -> float:
        """Return the seconds in which the next request must begin, or the client must close too."""
        if self.is_closing:
            return LINGER_SECONDS
        return DRAIN_SECONDS if self.server.is_draining else self.server.limits.idle_seconds

    def _check_transfer_rate(self, now: float) -> None:
        """End a client that moves fewer than `MIN_BYTES_PER_WINDOW` in the time for them."""
        moved = self.output.taken_bytes + self._request_reader.received
        limits = self.server.limits
        if self._transfer_rate.is_too_slow(
            moved, now=now, window_seconds=limits.rate_window_seconds
        ):
            self.end_waiting(error_answers.TOO_SLOW)

    # Ending clients to make room

    @property
    def waiting_since(self) -> float:
        """When a thread began to wait for this client, 0 where none waits."""
        body = self._request_reader.body
        return body.awaited_since if body and body.is_awaited else self.output.waiting_since

    @property
    def body_since(self) -> float:
        """When the body that is buffered until it is complete began to arrive, 0 without one."""
        return self._request_reader.started_at if self._request_reader.holds_body else 0.0

    @property
    def unsent_bytes(self) -> int:
        """How many bytes of answers are kept in memory until the client takes them."""
        return self.output.unsent_bytes

    @property
    def unsent_since(self) -> float:
        """When the client was last seen to take all there was, or a chunk of a stream."""
        return self.output.unsent_since

    @property
    def is_idle(self) -> bool:
        """Whether no complete request is here and no answer is under way."""
        return not self.queued and self.output.is_written

    def end_idle(self) -> None:
        """Close the connection of a client without a complete request; reset it the second time."""
        if self.is_closing:
            self.transport.abort()
            return
        self.is_closing = True
        self._idle_since = time.monotonic()
        self._request_reader.drop(_TOO_SLOW)
        self.transport.close()

    def end_waiting(self, refusal: bytes) -> None:
        """End a client for which a thread waits: refuse its upload, or cut its answer off."""
        body = self._request_reader.body
        if body and body.is_awaited:
            self.refusal = refusal
            body.fail(_TOO_SLOW)
        else:
            self.cut_off()

    def cut_off(self) -> None:
        """End a client that does not take its answer."""
        log.warning(
            "The answer to %s was cut off: its client did not take it in time",
            self._current_exchange,
        )
        self.transport.abort()

    def end_body(self) -> None:
        """Refuse a request whose body is incomplete."""
        self._request_reader.drop("the server has too many of them")
        self.refuse(error_answers.OVERLOADED)
