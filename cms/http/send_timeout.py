"""Answers on their way out: a client that does not take its answer is not waited for without end.

A server's thread that writes waits as long as the client likes, and holds what its answer is made of: the database
connection of an export, the file of an asset.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

log = logging.getLogger("cms")

CHUNK_BYTES = 2**18
"""A client has the time of the setting for so many bytes."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TimedBody:
    """The body of an answer in pieces, each of which its client must take in time."""

    __slots__ = ("_body", "_environ", "_waits")

    def __init__(self, body: Iterable[bytes], environ: Mapping[str, Any]) -> None:
        self._body = body
        self._environ = environ
        self._waits = False

    def __iter__(self) -> Iterator[bytes]:
        if isinstance(self._body, list) and all(len(chunk) <= CHUNK_BYTES for chunk in self._body):
            self._waits = True  # nothing but the sending takes time, or fails
            return iter(self._body)
        return self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        for chunk in self._body:
            for start in range(0, len(chunk) or 1, CHUNK_BYTES):
                self._waits = True
                yield chunk[start : start + CHUNK_BYTES] if len(chunk) > CHUNK_BYTES else chunk
                self._waits = False

    def close(self) -> None:
        """Give back what the body holds; the server calls it at the end, whichever end it is."""
        late = self._waits and isinstance(sys.exc_info()[1], TimeoutError)
        close = getattr(self._body, "close", None)
        try:
            if close is not None:
                close()
        finally:
            if late:
                self._reset_connection()

    def _reset_connection(self) -> None:
        """End the connection at once, and leave nothing behind that waits for the client.

        The server then sees a client that has gone, and not a fault that it would log with a traceback.
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
    """Return the body of an answer, bounded in time where the server shows its socket, as gunicorn does."""
    connection = environ.get("gunicorn.socket")
    if connection is None or not environ.get("SERVER_PROTOCOL", "").startswith("HTTP/1"):
        return body  # the streams of HTTP/2 share one socket
    connection.settimeout(seconds)  # the server sets it anew for the next request
    return TimedBody(body, environ)
