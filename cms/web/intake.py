"""What comes in on a connection: bytes to the parser, heads and bodies to exchanges. All by the event loop."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import httptools

from cms.web import answers
from cms.web.body import Body
from cms.web.exchange import Exchange
from cms.web.head import Head
from cms.web.limits import MAX_BUFFERED_BODY, MAX_BUFFERED_IN_ALL, MAX_HEAD_BYTES, MAX_PIPELINED

if TYPE_CHECKING:
    from cms.web.connection import Connection

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_SLICE_OF_HEADS = 4_096
_SLICE_OF_BODIES = 65_536


class Intake:
    """The parser of one connection, with the request that comes in.

    `since` is when the head or the body that comes in has begun.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._server = connection.server
        self._parser = httptools.HttpRequestParser(self)
        self._environ = connection.server.environ_of(connection.transport)
        self._behind_proxy = connection.server.proxies.trust(self.client)
        self._head: Head | None = None
        self._exchange: Exchange | None = None  # the one whose body comes in
        self._buffer: bytearray | None = None  # that body, while it is read before a thread is taken
        self._rest = b""
        self.since = 0.0

    @property
    def client(self) -> str:
        """The address of the client, empty on a unix socket."""
        return str(self._environ["REMOTE_ADDR"])

    @property
    def body(self) -> Body | None:
        """The body that a thread reads while it comes in."""
        return self._exchange.body if self._exchange else None

    @property
    def is_due(self) -> bool:
        """Whether a head or a short body is coming in, which has to be whole in time."""
        return self._head is not None or (self._exchange is not None and self._exchange.body is None)

    def feed(self, data: bytes) -> None:
        """Parse what has come, as far as there is room for requests; the rest waits for `go_on`."""
        if self._rest:
            self._rest += data
            return
        position = 0
        while position < len(data) and not self._connection.is_closing:
            if self._connection.queued >= MAX_PIPELINED:
                self._rest = data[position:]
                self._connection.transport.pause_reading()
                return
            size = _SLICE_OF_HEADS if self._exchange is None else _SLICE_OF_BODIES
            self._parse(data[position : position + size])
            position += size

    def go_on(self) -> None:
        """Parse what has waited."""
        if self._rest and self._connection.queued < MAX_PIPELINED:
            rest, self._rest = self._rest, b""
            self._connection.transport.resume_reading()
            self.feed(rest)

    def end(self) -> None:
        """Take that nothing more will come: what is not whole is no request."""
        if self._exchange is not None:
            self._refuse(answers.BROKEN_BODY)

    def drop(self, fault: str) -> None:
        """Forget what comes in; a thread that reads it is told."""
        exchange, self._exchange = self._exchange, None
        self._head = None
        self._rest = b""
        self._forget_buffer()
        if exchange and exchange.body:
            exchange.body.fail(fault)

    def close(self) -> None:
        """Let go of the parser, which points back here."""
        self.drop("the client is gone")
        del self._parser

    def _parse(self, data: bytes) -> None:
        if self._head is not None:
            self._head.received += len(data)
            if self._head.received > MAX_HEAD_BYTES:
                self._refuse(answers.HEAD_TOO_LARGE)
                return
        if self._exchange is None and not data.isascii():
            data = self._with_plain_target(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._connection.end_after_answers()  # what follows is of another protocol
        except (httptools.HttpParserError, ValueError):
            self._refuse(answers.MALFORMED if self._exchange is None else answers.BROKEN_BODY)

    def _with_plain_target(self, data: bytes) -> bytes:
        """Escape what a request line holds beside ASCII: people type addresses as they read them, and llhttp minds."""
        if self._head is not None and self._head.size > len(self._head.target):
            return data  # its headers have begun
        line, newline, rest = data.partition(b"\n")
        return _BEYOND_ASCII.sub(lambda match: b"%%%02X" % ord(match[0]), line) + newline + rest

    def _refuse(self, answer: bytes) -> None:
        """Answer in place of the application, where no thread reads the body already: that one is told."""
        is_read = self.body is not None
        self.drop("the body breaks off, or is not in chunks as it should be")
        if is_read:
            self._connection.end_after_answers()
        else:
            self._connection.refuse(answer)

    # The parser's events

    def on_message_begin(self) -> None:
        self._head = Head(self._environ.copy())
        self.since = time.monotonic()

    def on_url(self, piece: bytes) -> None:
        if self._head is not None:
            self._head.add_target(piece)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is not None:
            self._head.add_header(name, value)

    def on_headers_complete(self) -> None:
        head, self._head = self._head, None
        if head is None or self._connection.is_closing:
            return
        if head.size > MAX_HEAD_BYTES:
            self._refuse(answers.HEAD_TOO_LARGE)
            return
        head.complete(self._parser.get_method().decode("ascii"), self._parser.get_http_version())
        self._begin(head)

    def on_body(self, piece: bytes) -> None:
        if self._exchange is None:
            return
        if self._exchange.body:
            if not self._exchange.body.feed(piece):
                self._connection.transport.pause_reading()
            return
        assert self._buffer is not None
        self._buffer += piece
        self._server.buffered += len(piece)
        if len(self._buffer) > MAX_BUFFERED_BODY:
            self._stream(continues=False)

    def on_message_complete(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exchange.body:
            exchange.body.complete()
            self._connection.transport.resume_reading()
            return
        exchange.buffered(bytes(self._buffer or b""))
        self._forget_buffer()
        self._connection.enqueue(exchange)

    # Bodies

    def _begin(self, head: Head) -> None:
        """Start with a request whose head is whole: read its body first where it is short."""
        length = head.content_length
        if self._behind_proxy and self._server.proxies.say_https(head.environ):
            head.environ["wsgi.url_scheme"] = "https"
        expects = head.environ.pop("HTTP_EXPECT", None) is not None
        self._exchange = Exchange(self._connection, head.environ, keep_alive=self._parser.should_keep_alive())
        self._buffer = bytearray()
        self.since = time.monotonic()
        if length != 0 and self._server.buffered > MAX_BUFFERED_IN_ALL:
            self._refuse(answers.OVERLOADED)
        elif length is not None and length > MAX_BUFFERED_BODY:
            self._stream(continues=expects)
        elif expects and not self._connection.queued:
            self._connection.transport.write(answers.CONTINUE)

    def _stream(self, *, continues: bool) -> None:
        """Let a thread read the body while it comes in."""
        assert self._exchange is not None
        connection = self._connection
        body = Body(
            self._server.threads,
            wanted=connection.ask_for_body if continues else _nothing,
            resume=connection.resume_reading,
        )
        body.feed(bytes(self._buffer or b""))
        self._exchange.stream(body)
        self._forget_buffer()
        connection.enqueue(self._exchange)

    def _forget_buffer(self) -> None:
        if self._buffer is not None:
            self._server.buffered -= len(self._buffer)
            self._buffer = None


def _nothing() -> None:
    """Nothing has to be said before the body is read."""
