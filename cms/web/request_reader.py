"""The requests of a connection: bytes go to the parser, heads and bodies to exchanges.

Everything here runs in the event loop.
"""

from __future__ import annotations

import re
import time

import httptools

from cms.errors import BODY_BREAKS_OFF
from cms.web import error_answers
from cms.web.client_limits import (
    MAX_BUFFERED_BODY,
    MAX_FRAMING_BYTES,
    MAX_HEAD_BYTES,
    MAX_PIPELINED,
    MAX_PIPELINED_BYTES,
    PARSE_SECONDS,
)
from cms.web.http_exchange import HttpExchange, RequestConnection
from cms.web.request_head import Environ, RequestHead
from cms.web.streamed_body import StreamedBody

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_SLICE_OF_HEADS = 4_096
_SLICE_OF_BODIES = 65_536


class RequestReader:
    """The parser of one connection, and the request that is arriving.

    `started_at` is when the current head or body began, `received` how many bytes of bodies went to
    threads. While `is_holding`, bytes wait here: for room, or for this connection's turn.
    """

    def __init__(self, connection: RequestConnection) -> None:
        self._connection = connection
        self._server = connection.server
        self._parser = httptools.HttpRequestParser(self)
        self._environ = connection.server.environ_of(connection.transport, connection.address)
        self._behind_proxy = connection.server.proxies.trust(self.client)
        self._head: RequestHead | None = None
        self._exchange: HttpExchange | None = None  # whose body is arriving
        self._buffer: bytearray | None = None  # that body, if it is read before a thread is taken
        self._upgrade_exchange: HttpExchange | None = None  # it asks for another protocol
        self._chunks: list[bytes] = []  # of a body that a thread reads
        self._body_bytes = 0
        self._framing_bytes = 0  # of chunks, beyond the usual number
        self._pipelined_bytes = 0  # behind a request that is not answered yet
        self._unparsed = b""
        self._is_full = False  # the thread has to read its body before more may arrive
        self.is_holding = False
        self._paused_since = 0.0
        self.received = 0
        self.started_at = 0.0

    @property
    def client(self) -> str:
        """The address of the client, empty on a unix socket."""
        return str(self._environ["REMOTE_ADDR"])

    @property
    def body(self) -> StreamedBody | None:
        """The arriving body that a thread reads, if any."""
        return self._exchange.body if self._exchange else None

    @property
    def holds_body(self) -> bool:
        """Whether the arriving body is buffered until it is complete."""
        return bool(self._buffer)

    @property
    def is_due(self) -> bool:
        """Whether a head or a short body is arriving, for which there is a time limit."""
        if self.is_holding:
            return False
        return self._head is not None or (
            self._exchange is not None and self._exchange.body is None
        )

    def feed(self, arrived: bytes | memoryview) -> None:
        """Parse what has arrived, as far as there is room; the rest waits for `resume_parsing`."""
        try:
            self._feed(bytes(arrived))
        except MemoryError:
            self._give_up()

    def _feed(self, data: bytes) -> None:
        if self.is_holding:
            self._unparsed += data
            return
        position = 0
        began = time.monotonic() if len(data) > _SLICE_OF_HEADS else 0.0
        while position < len(data) and not self._connection.is_closing:
            if not self._has_room():
                self._hold(data[position:])
                return
            # In slices: many short requests may arrive at once, and each may fill the room.
            size = _SLICE_OF_HEADS if self._exchange is None else _SLICE_OF_BODIES
            self._parse(data[position : position + size])
            position += size
            if began and time.monotonic() - began > PARSE_SECONDS:
                self._hold(data[position:])
                return

    def resume_parsing(self) -> None:
        """Parse what has been waiting."""
        if self.is_holding and not self._connection.is_lost and self._has_room():
            rest = self._unparsed
            self._unparsed = b""
            self.is_holding = False
            # The time in which the server did not read is not counted against the client.
            self.started_at += time.monotonic() - self._paused_since
            self._connection.transport.resume_reading()
            self.feed(rest)

    def resume(self) -> None:
        """Let more of a body arrive: its thread has read some."""
        self._is_full = False
        if self.is_holding:
            self.resume_parsing()
        else:
            self._connection.transport.resume_reading()

    def _has_room(self) -> bool:
        """Tell whether more may be parsed: not with too much unread or unanswered."""
        if self._is_full:
            return False
        queued = self._connection.queued
        if not queued:
            self._pipelined_bytes = 0
            return True
        return queued < MAX_PIPELINED and (
            self._exchange is not None or self._pipelined_bytes < MAX_PIPELINED_BYTES
        )

    def _hold(self, rest: bytes) -> None:
        """Keep what is not parsed yet, and let other connections have their turn."""
        if self._connection.is_closing:
            return  # what is behind a refused request is not parsed, and not read meanwhile
        self._unparsed = rest
        self._paused_since = time.monotonic()
        self.is_holding = True
        self._connection.transport.pause_reading()
        if self._has_room():
            self._server.loop.call_soon(self.resume_parsing)

    def end(self) -> None:
        """Note that the client sends no more: an incomplete request is refused."""
        if self._exchange is not None:
            self._refuse(error_answers.BROKEN_BODY)

    def drop(self, reason: str) -> None:
        """Forget the arriving request; a thread that reads its body is told the reason."""
        exchange = self._exchange
        self._exchange = None
        self._head = None
        self._upgrade_exchange = None
        self._unparsed = b""
        self._is_full = False
        self.is_holding = False
        self._chunks.clear()
        self._forget_buffer()
        if exchange and exchange.body:
            exchange.body.fail(reason)

    def close(self) -> None:
        """Release the parser, which refers back to this reader."""
        self.drop("the client is gone")
        del self._parser

    def _parse(self, data: bytes) -> None:
        if self._head is not None:
            self._head.received += len(data)
            if self._head.received > MAX_HEAD_BYTES:
                self._refuse(error_answers.HEAD_TOO_LARGE)
                return
        exchange = self._exchange
        if exchange is None and not data.isascii():
            data = self._with_plain_target(data)
        body_bytes = self._body_bytes
        self._pipelined_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._continue_without_upgrade(data[upgrade.args[0] :])
        except (httptools.HttpParserError, ValueError) as error:
            # The parser reports errors of its callbacks so.
            if isinstance(error.__context__, MemoryError):
                raise error.__context__ from None
            self._refuse(
                error_answers.MALFORMED if self._exchange is None else error_answers.BROKEN_BODY
            )
        self._feed_body()
        if exchange is not None and exchange is self._exchange:
            self._check_framing(len(data), self._body_bytes - body_bytes)

    def _feed_body(self) -> None:
        """Give the thread what has arrived of its body.

        All at once: waking the thread costs more than a chunk.
        """
        body = self.body
        if not self._chunks or body is None:
            return
        data = b"".join(self._chunks)
        self._chunks.clear()
        self.received += len(data)
        if not body.feed(data):
            self._is_full = True
            self._connection.transport.pause_reading()

    def _check_framing(self, size: int, body_bytes: int) -> None:
        """Refuse a body that is mostly extensions of chunks and trailers.

        A client may make these as long as it likes.
        """
        # An honest chunk of one byte has up to 16 bytes around it.
        self._framing_bytes = max(0, self._framing_bytes + size - 17 * body_bytes)
        if self._framing_bytes > MAX_FRAMING_BYTES:
            self._refuse(error_answers.BROKEN_BODY)

    def _continue_without_upgrade(self, rest: bytes) -> None:
        """Answer a request that offers another protocol as if it had not.

        The parser gives up behind such a head. A new parser reads the body, after a made-up head
        that tells its length.
        """
        exchange = self._upgrade_exchange
        if exchange is None:
            self._connection.end_after_answers()  # a tunnel, or the request was refused
            return
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % exchange.framing)
        if rest:
            self._parse(rest)

    def _with_plain_target(self, data: bytes) -> bytes:
        """Escape non-ASCII characters of the request line, which people type but llhttp rejects."""
        if self._head is not None and self._head.size > len(self._head.target):
            return data  # its headers have begun
        line, newline, rest = data.partition(b"\n")
        return _BEYOND_ASCII.sub(lambda match: b"%%%02X" % ord(match[0]), line) + newline + rest

    def _refuse(self, answer: bytes) -> None:
        """Answer in place of the application, or tell the thread that already reads the body."""
        has_reader = self.body is not None
        self.drop(BODY_BREAKS_OFF)
        if has_reader:
            self._connection.end_after_answers()
        else:
            self._connection.refuse(answer)

    def _give_up(self) -> None:
        """Refuse a request for which there is no memory, and free what it has taken."""
        has_reader = self.body is not None
        self._chunks.clear()
        if self.body is not None:
            self.body.fail("there is no memory for the rest of the body", MemoryError)
        self.drop("there is no memory for it")
        if has_reader:
            self._connection.end_after_answers()
        else:
            self._connection.refuse(error_answers.OVERLOADED)

    # The parser's events

    def on_message_begin(self) -> None:
        self._head = RequestHead(self._environ.copy())
        self.started_at = time.monotonic()

    def on_url(self, piece: bytes) -> None:
        if self._head is not None:
            self._head.add_target(piece)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is not None:
            self._head.add_header(name, value)

    def on_headers_complete(self) -> None:
        head = self._head
        self._head = None
        if self._upgrade_exchange:
            # This is the made-up head of `_continue_without_upgrade`.
            self._exchange = self._upgrade_exchange
            self._upgrade_exchange = None
            return
        if head is None or self._connection.is_closing:
            return
        if head.size > MAX_HEAD_BYTES:
            self._refuse(error_answers.HEAD_TOO_LARGE)
            return
        head.complete(self._parser.get_method().decode("ascii"), self._parser.get_http_version())
        self._begin(head)
        if self._exchange and "HTTP_UPGRADE" in head.environ and self._parser.should_upgrade():
            self._upgrade_exchange = self._exchange
            self._exchange = None

    def on_body(self, piece: bytes) -> None:
        if self._exchange is None:
            return
        self._body_bytes += len(piece)
        if self._exchange.body:
            self._chunks.append(piece)
            return
        assert self._buffer is not None
        self._buffer += piece
        self._server.reserve(len(piece))
        if self._buffer and len(self._buffer) > MAX_BUFFERED_BODY:
            self._stream(continues=False)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.body:
            self._feed_body()
            self._exchange = None
            exchange.body.complete()
            self._is_full = False
            self._connection.transport.resume_reading()
            return
        self._exchange = None
        exchange.set_body(bytes(self._buffer or b""))
        self._buffer = None  # its bytes stay reserved until a thread takes the request
        self._connection.enqueue(exchange)

    # Bodies

    def _begin(self, head: RequestHead) -> None:
        """Begin a request whose head is complete; a short body is read first."""
        length = head.content_length
        if self._behind_proxy and self._server.proxies.say_https(head.environ):
            head.environ["wsgi.url_scheme"] = "https"
        expects_continue = _pop_expectation(head.environ) and length != 0
        self._exchange = HttpExchange(
            self._connection, head.environ, keep_alive=self._parser.should_keep_alive()
        )
        self._buffer = bytearray()
        self.started_at = time.monotonic()
        self._framing_bytes = 0
        if length is not None and length > MAX_BUFFERED_BODY:
            self._stream(continues=expects_continue)
        elif expects_continue and self._connection.is_silent:
            self._connection.transport.write(error_answers.CONTINUE)
        elif expects_continue:
            # Answers to earlier requests come first, so the thread asks for this body.
            self._stream(continues=True)

    def _stream(self, *, continues: bool) -> None:
        """Let a thread read the body while it arrives."""
        assert self._exchange is not None
        connection = self._connection
        body = StreamedBody(
            self._server.threads,
            on_first_read=connection.ask_for_body if continues else _do_nothing,
            resume_reading=connection.resume_reading,
        )
        body.feed(bytes(self._buffer or b""))
        self._exchange.stream(body)
        self._forget_buffer()
        connection.enqueue(self._exchange)

    def _forget_buffer(self) -> None:
        if self._buffer is not None:
            self._server.release(len(self._buffer))
            self._buffer = None


def _pop_expectation(environ: Environ) -> bool:
    """Tell whether the client waits to be asked for its body, which HTTP/1.0 does not know."""
    value = environ.pop("HTTP_EXPECT", None)
    return (
        value is not None
        and environ["SERVER_PROTOCOL"] != "HTTP/1.0"
        and str(value).lower() == "100-continue"
    )


def _do_nothing() -> None:
    """Stand in for the question for a body, where the client sends it unasked."""
