"""Answers with a time limit: no thread waits for ever for a client that does not read.

A thread that writes an answer holds its source: the database connection of an export, the file of
an asset.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

log = logging.getLogger("cms")

# 256 KiB: small enough for a slow line, large enough that its cost does not show.
CHUNK_BYTES = 2**18
"""A client must take this many bytes within SEND_TIMEOUT."""

SHORT_BYTES = 2**14
"""Up to here an answer is sent by one call of the kernel, which has a limit of its own."""

_SEND_LIMIT = (socket.SOL_SOCKET, socket.SO_SNDTIMEO)
"""The option of the kernel's own limit; 0 seconds are none."""

# `struct linger` with l_onoff 1 and l_linger 0: close() sends a reset and drops what is not sent
# yet.
_TIME_OUTS = (TimeoutError, BlockingIOError)
"""Errors of a send that took too long: by the limit of Python, by that of the kernel."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TimedBody:
    """The body of an answer in chunks, each of which the client must take in time."""

    __slots__ = ("_body", "_environ", "_is_sending", "_lift_limit")

    def __init__(
        self,
        body: Iterable[bytes],
        environ: Mapping[str, Any],
        lift_limit: Callable[[], None],
    ) -> None:
        self._body = body
        self._environ = environ
        self._lift_limit = lift_limit
        self._is_sending = False

    def __iter__(self) -> Iterator[bytes]:
        if isinstance(self._body, list) and all(len(chunk) <= CHUNK_BYTES for chunk in self._body):
            # A short answer is ready, so that only sending it can take time or fail.
            self._is_sending = True
            return iter(self._body)
        return self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        for chunk in self._body:
            # `or 1`: an empty chunk is passed on like any other.
            for start in range(0, len(chunk) or 1, CHUNK_BYTES):
                # While the generator is suspended the server sends, and only then a time-out is the
                # client's.
                self._is_sending = True
                yield chunk[start : start + CHUNK_BYTES] if len(chunk) > CHUNK_BYTES else chunk
                self._is_sending = False

    def close(self) -> None:
        """Release the body; the server calls this at the end, also after an error."""
        # The server closes the body while the exception is handled, so that sys.exc_info() has it.
        timed_out = self._is_sending and isinstance(sys.exc_info()[1], _TIME_OUTS)
        close = getattr(self._body, "close", None)
        try:
            if close is not None:
                close()
        finally:
            if timed_out:
                self._reset_connection()
            # The next answer of the connection may be another application's.
            with suppress(OSError):
                self._lift_limit()

    def _reset_connection(self) -> None:
        """Close the connection at once, and drop what is still to be sent.

        The server then believes that the client has disconnected, and logs no traceback.
        """
        method = self._environ["REQUEST_METHOD"]
        path = self._environ.get("PATH_INFO", "")
        log.warning(
            "The answer to %s %s was cut off: its client did not take it in time", method, path
        )
        connection = self._environ["gunicorn.socket"]
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            connection.shutdown(socket.SHUT_RDWR)
        raise BrokenPipeError(errno.EPIPE, "the client did not take its answer in time")


def with_send_timeout(
    body: Iterable[bytes], environ: Mapping[str, Any], seconds: float
) -> Iterable[bytes]:
    """Return the body of an answer with a time limit, where the server shows its socket."""
    connection = environ.get("gunicorn.socket")
    # In tests and under other servers there is none.
    if connection is None or not environ.get("SERVER_PROTOCOL", "").startswith("HTTP/1"):
        return body  # the streams of HTTP/2 share one socket
    if _is_short(body) and type(connection) is socket.socket:  # not one of TLS
        # With a limit of Python each send first waits for the socket, and lets another thread have
        # the interpreter meanwhile.
        connection.setsockopt(*_SEND_LIMIT, _timeval(seconds))
        return TimedBody(body, environ, partial(connection.setsockopt, *_SEND_LIMIT, _timeval(0)))
    lift_limit = partial(connection.settimeout, connection.gettimeout())
    connection.settimeout(seconds)
    return TimedBody(body, environ, lift_limit)


def _is_short(body: Iterable[bytes]) -> bool:
    return isinstance(body, list) and sum(map(len, body)) <= SHORT_BYTES


@lru_cache(maxsize=8)  # an application has one limit
def _timeval(seconds: float) -> bytes:
    """Return a duration as the kernel's `struct timeval`."""
    return struct.pack("ll", *divmod(int(seconds * 1_000_000), 1_000_000))
