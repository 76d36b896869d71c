"""A request and its answer: the application is called in a thread, and its answer written."""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from cms.web import error_answers
from cms.web.answer_output import AnswerOutput, ClientGone
from cms.web.client_limits import MAX_UNSENT
from cms.web.request_head import Environ
from cms.web.streamed_body import BodyError, StreamedBody
from cms.web.web_server import WebServer

log = logging.getLogger("cms.web")

AnswerHeaders = Sequence[tuple[str, str]]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType]

_MAX_LOGGED_PATH = 500
_BODILESS = ("1", "204", "304")  # how statuses begin whose answers have no body


class RequestConnection(Protocol):
    """A connection as its requests see it."""

    server: WebServer
    address: object
    transport: asyncio.Transport
    output: AnswerOutput
    is_lost: bool
    is_closing: bool
    refusal: bytes | None

    @property
    def queued(self) -> int: ...
    @property
    def is_silent(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...
    def enqueue(self, exchange: HttpExchange) -> None: ...
    def ask_for_body(self) -> None: ...
    def resume_reading(self) -> None: ...
    def finished(self, *, keep_alive: bool) -> None: ...
    def refuse(self, answer: bytes) -> None: ...
    def end_after_answers(self) -> None: ...
    def abort(self) -> None: ...


class HttpExchange:
    """A request with what a thread needs to answer it.

    `body` is a body that is still arriving, None where it was read before. `queued_at` is when the
    request began to wait for a thread.
    """

    def __init__(
        self, connection: RequestConnection, environ: Environ, *, keep_alive: bool
    ) -> None:
        self._connection = connection
        self._environ = environ
        self._keep_alive = keep_alive
        self._is_http_1_0 = environ["SERVER_PROTOCOL"] == "HTTP/1.0"
        self._head: bytes | None = None
        self._length: int | None = None
        self._reserved = 0
        self.body: StreamedBody | None = None
        self.queued_at = 0.0

    def __str__(self) -> str:
        """Return the request's method and path, as short as a line of the log must be."""
        path = str(self._environ["PATH_INFO"])
        return f"{self._environ['REQUEST_METHOD']} {path[:_MAX_LOGGED_PATH]}"

    def set_body(self, raw: bytes) -> None:
        """Set the complete body."""
        self._environ["wsgi.input"] = io.BytesIO(raw)
        self._reserved = len(raw)

    def stream(self, body: StreamedBody) -> None:
        """Set a body that is still arriving."""
        self.body = body
        self._environ["wsgi.input"] = body

    @property
    def framing(self) -> bytes:
        """The header that tells the length of the body, empty without a body."""
        if "HTTP_TRANSFER_ENCODING" in self._environ:
            return b"Transfer-Encoding: chunked\r\n"
        length = self._environ.get("CONTENT_LENGTH")
        return b"" if length is None else f"Content-Length: {length}\r\n".encode("latin-1")

    @property
    def is_immediate(self) -> bool:
        """Whether the application waits for nothing, so that the event loop may call it."""
        return self.body is None and self._connection.server.is_immediate(self._environ)

    def release_body(self) -> None:
        """Release the memory of the body: a thread has taken the request, or none will."""
        if self._reserved:
            self._connection.server.release(self._reserved)
            self._reserved = 0

    def run(self) -> None:
        """Answer the request; errors end the connection, and none is raised."""
        connection = self._connection
        self.release_body()  # the limit is for bodies that wait
        try:
            # The client may have gone while the request waited for this thread.
            if connection.is_lost:
                raise ClientGone
            if time.monotonic() - self.queued_at > connection.server.limits.queue_seconds:
                self._refuse(error_answers.OVERLOADED)
            else:
                self._answer()
        except (ClientGone, BodyError):
            self._keep_alive = False
        except BaseException as error:
            # Also SystemExit: an application must end neither this thread nor the loop.
            log.error("unexpected fault of the web server", exc_info=error)
            self._fail()
        connection.finished(keep_alive=self._keep_alive)

    def _refuse(self, answer: bytes) -> None:
        self._keep_alive = False
        self._connection.output.write(answer)

    def _fail(self) -> None:
        """Answer an error, or break off an answer that has begun: it must not seem complete."""
        self._keep_alive = False
        if self._head is not None:
            self._connection.abort()
            return
        # To raise here would end the thread as well.
        with suppress(ClientGone):
            self._connection.output.write(error_answers.INTERNAL_ERROR)

    def _answer(self) -> None:
        """Call the application and send its answer."""
        # A list, as PEP 3333 lets an application replace its answer until the head is sent.
        started: list[tuple[str, AnswerHeaders]] = []

        def start_response(
            status: str, headers: AnswerHeaders, exc_info: ExcInfo | None = None
        ) -> Callable[[bytes], None]:
            # PEP 3333: an answer whose head has been sent cannot be replaced by an error.
            if exc_info and self._head is not None:
                raise exc_info[1].with_traceback(exc_info[2])
            started[:] = [(status, headers)]
            return _refuse_write

        content = self._connection.server.application(self._environ, start_response)
        try:
            self._send(started, content)
        finally:
            close = getattr(content, "close", None)
            if close:
                close()

    def _send(self, started: list[tuple[str, AnswerHeaders]], content: Iterable[bytes]) -> None:
        # The body was cut off: what the application has made of the rest is not sent.
        if self._connection.refusal:
            self._refuse(self._connection.refusal)
        elif isinstance(content, list | tuple):
            self._send_whole(*started[0], b"".join(content))
        else:
            self._send_stream(started, content)

    def _send_whole(self, status: str, headers: AnswerHeaders, content: bytes) -> None:
        head = self._head_of(status, headers, size=len(content))
        has_no_body = status.startswith(_BODILESS) or self._environ["REQUEST_METHOD"] == "HEAD"
        self._head = head
        connection = self._connection
        if has_no_body:
            connection.output.write(head)
        elif connection.output.needs_loop and len(content) > MAX_UNSENT:
            # At once all of it would be encrypted, and nobody could tell how much the client takes.
            connection.output.write(head)
            connection.output.write_in_pieces(content)
        else:
            # In one piece: a short answer is one call of the system and one packet.
            connection.output.write(head + content)

    def _send_stream(
        self, started: list[tuple[str, AnswerHeaders]], content: Iterable[bytes]
    ) -> None:
        """Send chunks as they come, at the pace of the client."""
        sent = 0
        chunked = False
        for chunk in content:
            # Not before the first chunk: an error that comes earlier can still be answered.
            if self._head is None:
                self._head = self._head_of(*started[0], size=None)
                chunked = self._length is None and not self._is_http_1_0
                self._connection.output.write(self._head)
            if chunk and self._environ["REQUEST_METHOD"] != "HEAD":
                sent += len(chunk)
                self._connection.output.write_chunk(
                    b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk
                )
        if self._head is None:
            self._send_whole(*started[0], b"")
        elif self._environ["REQUEST_METHOD"] != "HEAD":
            self._end_stream(sent, chunked=chunked)

    def _end_stream(self, sent: int, *, chunked: bool) -> None:
        if self._length is not None and sent != self._length:
            # The client would take the next answer for the rest of this one, or the reverse.
            raise ValueError(f"the application announced {self._length} bytes and sent {sent}")
        if chunked:
            self._connection.output.write(b"0\r\n\r\n")

    def _head_of(self, status: str, headers: AnswerHeaders, *, size: int | None) -> bytes:
        """Return the head of the answer; `size` is that of a complete body.

        Raises ValueError for a header with a line break.
        """
        lines = [f"HTTP/1.1 {status}", f"Date: {self._connection.server.date}"]
        for name, value in headers:
            lower_name = name.lower()
            if lower_name == "connection":
                self._keep_alive = self._keep_alive and value.lower() != "close"
                continue
            if lower_name == "content-length":
                self._length = int(value)
            lines.append(f"{name}: {value}")
        self._decide_keep_alive()
        lines.extend(self._framing(status, size))
        # A line break in a header would let its value add headers, or a second answer.
        text = "\r\n".join(lines)
        if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
            raise ValueError("a header of the answer holds a line break")
        return f"{text}\r\n\r\n".encode("latin-1")

    def _decide_keep_alive(self) -> None:
        """Close the connection after this answer if the service stops or a body is unread."""
        if self._connection.is_ending or (self.body and not self.body.is_read):
            self._keep_alive = False

    def _framing(self, status: str, size: int | None) -> list[str]:
        lines = []
        has_body = not status.startswith(_BODILESS) and self._environ["REQUEST_METHOD"] != "HEAD"
        if self._length is None and has_body:
            if size is not None:
                lines.append(f"Content-Length: {size}")
            elif self._is_http_1_0:
                # HTTP/1.0 has no chunks: the body ends where the connection does.
                self._keep_alive = False
            else:
                lines.append("Transfer-Encoding: chunked")
        lines.append("Connection: keep-alive" if self._keep_alive else "Connection: close")
        return lines


def _refuse_write(_data: bytes) -> None:
    """Stand in for `write` of PEP 3333, which only applications of an older kind call."""
    raise RuntimeError("an application returns its answer; it does not write it")
