"""HTTP as the benchmark speaks it: requests as bytes, made before they are sent."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import orjson

Address = tuple[str, int]

TIMEOUT_SECONDS = 120.0


class RequestFailed(Exception):
    """An answer that was not a success: what it would measure is not the case."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The start of an answer: its status, the bytes of head and body together, and whether it was
    the last.
    """

    status: int
    size: int
    closes: bool


def request(method: str, target: str, *, token: str | None = None, payload: object = None) -> bytes:
    """Return a request as bytes; `payload` is sent as JSON."""
    lines = [f"{method} {target} HTTP/1.1", "Host: bench"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    body = b"" if payload is None else orjson.dumps(payload)
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def upload(target: str, body: bytes, *, token: str, media_type: str) -> bytes:
    """Return the request that sends a file."""
    lines = [f"POST {target} HTTP/1.1", "Host: bench", f"Authorization: Bearer {token}"]
    lines += [f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def head_of(received: bytes | bytearray) -> ResponseHead | None:
    """Read the head of an answer, which must tell its length; None while it is not all there."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end]).lower()
    _, found, behind = head.partition(b"\r\ncontent-length:")
    length = int(behind.partition(b"\r\n")[0]) if found else 0
    return ResponseHead(int(head[9:12]), end + 4 + length, b"\r\nconnection: close" in head)


def connect(address: Address, timeout: float = TIMEOUT_SECONDS) -> socket.socket:
    connection = socket.create_connection(address, timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(address: Address, message: bytes, *, timeout: float = TIMEOUT_SECONDS) -> bytes:
    """Send one request on a connection of its own and return the body; raises `RequestFailed` for
    an error.
    """
    received = bytearray()
    with connect(address, timeout) as connection:
        connection.sendall(message)
        while (head := head_of(received)) is None or len(received) < head.size:
            piece = connection.recv(1 << 18)
            if not piece:
                raise RequestFailed(
                    f"the connection ended within an answer: {bytes(received[:300])!r}"
                )
            received += piece
    if head.status >= 300:
        raise RequestFailed(bytes(received[:600]).decode(errors="replace"))
    return bytes(received).partition(b"\r\n\r\n")[2]


def call(address: Address, message: bytes) -> Any:
    """Return the `data` of an answer."""
    body = exchange(address, message)
    return orjson.loads(body)["data"] if body else None
