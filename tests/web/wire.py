"""Answers read off a raw connection."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from io import BufferedReader
from typing import Any

import orjson

from tests.smoke.running import TIMEOUT_SECONDS

PING = b"GET /server/ping HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True, slots=True)
class WireAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def keeps(self) -> bool:
        """Whether the server keeps the connection open."""
        return self.headers.get("connection", "keep-alive").lower() != "close"

    def json(self) -> Any:
        return orjson.loads(self.body)


class Wire:
    """A connection of which answers are read one after another, also where several come at once."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._file = _Unclosed(connection)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *fault: object) -> None:
        self._file.buffer.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, method: str = "GET") -> WireAnswer:
        """Read one answer; raises `http.client.HTTPException` or `OSError` where it is not
        whole.
        """
        # All that it asks of a socket is its file.
        response = HTTPResponse(self._file, method=method)  # type: ignore[arg-type]
        response.begin()
        body = response.read()
        return WireAnswer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, body
        )

    def begin(self, half: bytes) -> None:
        """Send half a request; when this returns, the server has read it."""
        # Behind a whole one, because the server reads both at once.
        self.send(PING + half)
        assert self.answer().status == 200

    def get(self, target: str, **headers: str) -> WireAnswer:
        """Send a GET and read its answer."""
        lines = [
            f"GET {target} HTTP/1.1",
            "Host: x",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.send("\r\n".join([*lines, "", ""]).encode())
        return self.answer()

    def read(self, size: int) -> bytes:
        """Read so many bytes as they are, fewer only at the end."""
        return self._file.buffer.read(size)

    def rest(self) -> list[WireAnswer]:
        """Read answers until the server ends the connection, which must not be within one."""
        answers = []
        with suppress(ConnectionResetError):
            while self._file.buffer.peek(1):
                answers.append(self.answer())
        return answers

    def has_come(self) -> bool:
        """Tell whether there is something to read, without waiting."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def is_ended(self) -> bool:
        """Tell whether the server has ended the connection, after a moment for it to do so."""
        try:
            return self._file.buffer.read(1) == b""
        except ConnectionResetError:
            return True


def open_wire(port: int) -> Wire:
    """Return a new connection to a server on this machine."""
    return Wire(socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS))


class _Unclosed:
    """The file of a connection, which an answer that has been read does not close."""

    def __init__(self, connection: socket.socket) -> None:
        self.buffer: BufferedReader = connection.makefile("rb")

    def makefile(self, mode: str) -> _Unclosed:
        return self

    def close(self) -> None:
        return

    def flush(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)
