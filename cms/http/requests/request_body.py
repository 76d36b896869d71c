"""Bodies of requests: read no further than their end; connections with unread bodies are closed.

The rest of a body would be taken for the next request of its connection, so an answer that leaves
some of it unread says `Connection: close` (RFC 9112, section 9.6). That happens here, for every
resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from falcon.typing import ReadableIO

from cms.errors import (
    BODY_BREAKS_OFF,
    FULL_DISK_ERRORS,
    SHORTAGE_ERRORS,
    Problem,
    Refused,
    invalid_payload,
)

SERVER_DRAIN_BYTES = 2**16
"""Gunicorn reads less than this after an answer, and keeps the connection."""

_BROKEN_BODY_ERRORS = (OSError, EOFError, ValueError)
"""Built-in exceptions of servers whose client is gone, or sends malformed chunks."""

# int() refuses thousands of digits by an exception, and no body has as many bytes.
MAX_LENGTH_DIGITS = 18

StartResponse = Callable[..., Any]


class RequestBody:
    """The body of a request; one without a length is chunked, or there is none."""

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self._stream = environ["wsgi.input"]
        self._bytes_left: int | None = 0
        """The bytes of the announced length that are unread, None for a chunked body."""
        announced = environ.get("CONTENT_LENGTH") or ""
        if announced.isdecimal() and len(announced) <= MAX_LENGTH_DIGITS:
            self._bytes_left = int(announced)
        # The server promises that reading ends by itself. Without that promise a read could wait
        # for ever, so the body counts as empty.
        elif environ.get("wsgi.input_terminated") and not announced:
            self._bytes_left = None
        self.has_ended = self._bytes_left == 0
        self._is_broken = False

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes or fewer, the rest for -1, none at the end.

        Raises `Refused` INVALID_PAYLOAD where the body breaks off.
        """
        if self.has_ended:
            return b""
        max_bytes = -1 if size is None else size
        if self._bytes_left is not None:
            # Reading past the announced end would wait for a client that sends no more.
            max_bytes = self._bytes_left if max_bytes < 0 else min(max_bytes, self._bytes_left)
        try:
            chunk: bytes = self._stream.read(max_bytes) if max_bytes >= 0 else self._stream.read()
        except Exception as error:
            # Whatever the error says, the rest stays unread.
            self._is_broken = True
            if not _is_of_broken_body(error):
                raise
            raise invalid_payload(BODY_BREAKS_OFF) from None
        if self._bytes_left is None:
            # Without an announced length only an empty chunk tells the end; a read of 0 bytes is
            # always empty.
            self.has_ended = not chunk and max_bytes != 0
        else:
            self._bytes_left -= len(chunk)
            self.has_ended = not self._bytes_left
            if not chunk and max_bytes:
                raise self._broken_body()
        return chunk

    def is_left_unread(self, environ: Mapping[str, Any]) -> bool:
        """Tell whether more is left unread than the server reads by itself."""
        server_reads_rest = (
            "gunicorn.socket" in environ
            and self._bytes_left is not None
            and self._bytes_left < SERVER_DRAIN_BYTES
        )
        return self._is_broken or not server_reads_rest

    def _broken_body(self) -> Refused:
        self._is_broken = True
        return invalid_payload(BODY_BREAKS_OFF)


def _is_of_broken_body(error: Exception) -> bool:
    """Tell whether a server says by an error that the body is malformed, or its client gone.

    All other errors are of a server that lacks something itself, such as memory or threads, or of a
    fault in it.
    """
    if isinstance(error, OSError) and error.errno in SHORTAGE_ERRORS | FULL_DISK_ERRORS:
        return False
    # Many servers have exceptions of their own, such as gunicorn's `InvalidChunkSize`.
    is_of_server = type(error).__module__ != "builtins" and not isinstance(error, RuntimeError)
    return is_of_server or isinstance(error, _BROKEN_BODY_ERRORS)


def read_limited(stream: ReadableIO, max_bytes: int) -> bytes:
    """Return all of a body; raises `Refused` CONTENT_TOO_LARGE for more than `max_bytes` bytes."""
    raw = bytearray()
    # One byte more than allowed tells a body that is too large from one that just fits.
    while chunk := stream.read(max_bytes + 1 - len(raw)):
        raw += chunk
        if len(raw) > max_bytes:
            raise body_too_large(max_bytes)
    return bytes(raw)


def body_too_large(max_bytes: int) -> Refused:
    message = f"The body is larger than {max_bytes} bytes."
    return Refused(Problem("CONTENT_TOO_LARGE", message, {"limit": max_bytes}))


def close_if_unread(
    environ: Mapping[str, Any], body: RequestBody, start_response: StartResponse
) -> StartResponse:
    """Return a `start_response` that closes the connection where the body is left unread."""
    # `cms.ends_unread`: the service's own web server sees to it without help.
    if "cms.ends_unread" in environ or not (
        environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING")
    ):
        return start_response

    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        if not body.has_ended and body.is_left_unread(environ):
            headers = _with_connection_close(environ, start_response, headers)
        return start_response(status, headers, *exc_info)

    return start


def _with_connection_close(
    environ: Mapping[str, Any], start_response: StartResponse, headers: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the headers that close a connection, in the way that the server understands."""
    # Gunicorn drops the header, which WSGI leaves to the server, but has a method for it.
    force_close = getattr(getattr(start_response, "__self__", None), "force_close", None)
    if force_close is not None:
        force_close()
        return headers
    if str(environ.get("SERVER_SOFTWARE", "")).startswith("WSGIServer"):
        return headers  # Python's own server fails on the header, and closes every connection
    # Waitress fails on it as well, and has read the whole body before.
    if "waitress.client_disconnected" in environ:
        return headers
    return [*headers, ("Connection", "close")]
