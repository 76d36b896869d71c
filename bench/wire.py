"""HTTP as the benchmark sends it: requests are bytes that are made before the clock starts."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import orjson

Address = tuple[str, int]

TIMEOUT_SECONDS = 120.0


class RequestFailed(Exception):
    """An answer was not a success, so its time would not measure the case."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of an answer: status, size of head and body, and whether the server closes."""

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
    """Read the head of an answer, which must have a length; None while it is incomplete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end]).lower()
    _, separator, rest = head.partition(b"\r\ncontent-length:")
    length = int(rest.partition(b"\r\n")[0]) if separator else 0
    return ResponseHead(int(head[9:12]), end + 4 + length, b"\r\nconnection: close" in head)


def connect(address: Address, timeout: float = TIMEOUT_SECONDS) -> socket.socket:
    connection = socket.create_connection(address, timeout)
    # Or the kernel might hold back a short request until an earlier one is acknowledged.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(address: Address, message: bytes, *, timeout: float = TIMEOUT_SECONDS) -> bytes:
    """Send one request on a new connection and return the body; raises `RequestFailed`."""
    received = bytearray()
    with connect(address, timeout) as connection:
        connection.sendall(message)
        while (head := head_of(received)) is None or len(received) < head.size:
            chunk = connection.recv(1 << 18)
            if not chunk:
                raise RequestFailed(
                    f"the connection ended within an answer: {bytes(received[:300])!r}"
                )
            received += chunk
    if head.status >= 300:
        raise RequestFailed(bytes(received[:600]).decode(errors="replace"))
    return bytes(received).partition(b"\r\n\r\n")[2]


def call(address: Address, message: bytes) -> Any:
    """Return the `data` of an answer."""
    body = exchange(address, message)
    return orjson.loads(body)["data"] if body else None
