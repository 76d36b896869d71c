"""Answers on their way out: in pieces, each of which a client must take in time."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from cms.http.answers.send_timeout import CHUNK_BYTES, with_send_timeout


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    server, client = socket.socketpair()
    with server, client:
        yield server, client


def environ(server: socket.socket, protocol: str = "HTTP/1.1") -> dict[str, Any]:
    return {
        "gunicorn.socket": server,
        "SERVER_PROTOCOL": protocol,
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/x",
    }


def serve(body: Iterable[bytes], server: socket.socket) -> None:
    """Send a body as gunicorn does: it closes the body whatever happens."""
    sending = with_send_timeout(body, environ(server), 0.1)
    try:
        for chunk in sending:
            server.sendall(chunk)
    finally:
        sending.close()  # type: ignore[attr-defined]


class Stream:
    """A body of many chunks that knows whether it was closed."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.closed = False
        self._fault = fault

    def __iter__(self) -> Iterator[bytes]:
        if self._fault:
            raise self._fault
        for _ in range(1_000):
            yield b"x" * 100_000

    def close(self) -> None:
        self.closed = True


def test_an_answer_is_the_same_in_pieces(pair: tuple[socket.socket, socket.socket]) -> None:
    chunks = [b"short", b"", b"x" * CHUNK_BYTES, b"y" * (2 * CHUNK_BYTES + 1)]
    pieces = list(with_send_timeout(chunks, environ(pair[0]), 1))
    assert b"".join(pieces) == b"".join(chunks)
    assert max(map(len, pieces)) == CHUNK_BYTES
    assert list(with_send_timeout([b"short"], environ(pair[0]), 1)) == [b"short"]
    assert list(with_send_timeout([], environ(pair[0]), 1)) == []


@pytest.mark.parametrize("long", [[b"x" * 10_000_000], Stream()])
def test_a_client_that_takes_nothing_is_left(
    pair: tuple[socket.socket, socket.socket], long: Iterable[bytes]
) -> None:
    server, client = pair
    with pytest.raises(BrokenPipeError):
        serve(long, server)
    while client.recv(2**20):  # what it had been sent, and then the end
        pass
    assert getattr(long, "closed", True)


def test_a_client_that_takes_no_short_answer_is_left(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    server, client = pair
    server.setblocking(False)
    with suppress(BlockingIOError):
        while True:  # answers before this one, which the client has not read either
            server.send(b"x" * 10_000)
    server.setblocking(True)
    with pytest.raises(BrokenPipeError):
        serve([b"short"], server)
    while client.recv(2**20):
        pass


def test_a_fault_of_the_body_is_no_fault_of_the_client(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    stream = Stream(TimeoutError("the storage does not answer"))
    with pytest.raises(TimeoutError):
        serve(stream, pair[0])
    assert stream.closed


def test_other_servers_send_as_they_like(pair: tuple[socket.socket, socket.socket]) -> None:
    body = [b"x" * 10_000_000]
    assert with_send_timeout(body, {"SERVER_PROTOCOL": "HTTP/1.1"}, 1) is body
    assert with_send_timeout(body, environ(pair[0], "HTTP/2.0"), 1) is body


@pytest.mark.parametrize("body", [[b"short"], [b"x" * 100_000], iter([b"streamed"])])
def test_the_connection_has_its_own_limits_again_after_the_answer(
    pair: tuple[socket.socket, socket.socket], body: Iterable[bytes]
) -> None:
    """The next answer may be that of another application in the same process."""
    server, _ = pair
    server.settimeout(7)
    no_limit = server.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
    sending = with_send_timeout(body, environ(server), 0.1)
    limits = (server.gettimeout(), server.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))
    assert limits != (7, no_limit)
    b"".join(sending)
    sending.close()  # type: ignore[attr-defined]
    assert server.gettimeout() == 7
    assert server.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16) == no_limit
