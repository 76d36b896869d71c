"""Bodies on their way in: read no further than they reach, and known when they are left unread.

What is left of a body would be taken for the next request of its connection, so an answer that leaves something says
`Connection: close` (RFC 9112, section 9.6). It is said here, for every resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cms.errors import Refused, invalid_payload

SERVER_DRAIN_BYTES = 2**16
"""Gunicorn reads off less than this after an answer, and keeps the connection."""

MAX_LENGTH_DIGITS = 18

StartResponse = Callable[..., Any]


class RequestBody:
    """A request's body; `length` is what the client has announced, None for a chunked one."""

    def __init__(self, stream: Any, length: int | None) -> None:
        self._stream = stream
        self._bytes_left = length
        self.has_ended = length == 0
        self._is_broken = False

    def read(self, size: int | None = -1) -> bytes:
        """Return so many bytes or fewer, all of them for -1, none at the end. Raises `Refused` where it breaks off."""
        if self.has_ended:
            return b""
        wanted = -1 if size is None else size
        if self._bytes_left is not None:
            wanted = self._bytes_left if wanted < 0 else min(wanted, self._bytes_left)
        piece = self._read_chunk(wanted)
        if self._bytes_left is None:
            self.has_ended = not piece and wanted != 0
        else:
            self._bytes_left -= len(piece)
            self.has_ended = not self._bytes_left
            if not piece and wanted:
                raise self._break_off()
        return piece

    def is_left_unread(self, environ: Mapping[str, Any]) -> bool:
        """Tell whether more is left unread than the server itself reads off."""
        if self.has_ended:
            return False
        drained = (
            "gunicorn.socket" in environ
            and self._bytes_left is not None
            and self._bytes_left < SERVER_DRAIN_BYTES
        )
        return self._is_broken or not drained

    def _read_chunk(self, size: int) -> bytes:
        try:
            piece: bytes = self._stream.read(size) if size >= 0 else self._stream.read()
        except (
            Exception
        ):  # each server has its own way to say that chunks are malformed or the client is gone
            raise self._break_off() from None
        return piece

    def _break_off(self) -> Refused:
        self._is_broken = True
        return invalid_payload("The body breaks off, or is not in chunks as it should be")


def request_body(environ: Mapping[str, Any]) -> RequestBody:
    """Return the body of a request; without a length it ends where the server says so, or is none."""
    announced = environ.get("CONTENT_LENGTH") or ""
    if announced.isdecimal() and len(announced) <= MAX_LENGTH_DIGITS:
        return RequestBody(environ["wsgi.input"], int(announced))
    return RequestBody(
        environ["wsgi.input"], None if environ.get("wsgi.input_terminated") and not announced else 0
    )


def close_if_unread(
    environ: Mapping[str, Any], body: RequestBody, start_response: StartResponse
) -> StartResponse:
    """Return a `start_response` that has the connection closed where the body was left unread."""
    if (
        body.has_ended
        or "cms.ends_unread" in environ
        or not (environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING"))
    ):
        return start_response

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        if body.is_left_unread(environ):
            headers = _with_connection_close(environ, start_response, headers)
        return start_response(status, headers, *more)

    return start


def _with_connection_close(
    environ: Mapping[str, Any], start_response: StartResponse, headers: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Have a connection closed in the way that its server understands."""
    # Gunicorn drops the header, which is the server's by the rules of WSGI, but may be asked for it.
    force_close = getattr(getattr(start_response, "__self__", None), "force_close", None)
    if force_close is not None:
        force_close()
        return headers
    if str(environ.get("SERVER_SOFTWARE", "")).startswith("WSGIServer"):
        return headers  # Python's own server fails on the header, and closes every connection
    return [*headers, ("Connection", "close")]
