"""Bodies of requests: read no further than they reach, and reported where they are left unread."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from http.client import IncompleteRead
from typing import Any

import pytest
from gunicorn.http.errors import ChunkMissingTerminator, InvalidChunkSize, NoMoreData

from cms.errors import Refused
from cms.http.requests.request_body import (
    SERVER_DRAIN_BYTES,
    RequestBody,
    close_if_unread,
)
from cms.web.streamed_body import BodyError


class Server:
    """A server that hands on a body, and keeps the headers of the answer."""

    def __init__(self, content: bytes, **environ: Any) -> None:
        self.environ = {"wsgi.input": io.BytesIO(content), **environ}
        self.headers: list[tuple[str, str]] = []
        self.closed = False

    def start_response(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.headers = headers

    def answer_after(self, read: Callable[[Any], object]) -> list[tuple[str, str]]:
        body = RequestBody(self.environ)
        start = close_if_unread(self.environ, body, self.start_response)
        read(body)
        start("200 OK", [("X", "y")])
        return self.headers[1:]


class Gunicorn(Server):
    def force_close(self) -> None:
        self.closed = True


CLOSE = [("Connection", "close")]


def test_a_body_is_read_to_its_announced_length_and_no_further() -> None:
    body = RequestBody({"wsgi.input": io.BytesIO(b"0123456789"), "CONTENT_LENGTH": "5"})
    assert [body.read(2), body.read(), body.read(), body.read(3)] == [b"01", b"234", b"", b""]


@pytest.mark.parametrize(
    "announced", [{}, {"CONTENT_LENGTH": ""}, {"CONTENT_LENGTH": "0"}, {"CONTENT_LENGTH": "x"}]
)
def test_without_a_length_there_is_no_body(announced: dict[str, str]) -> None:
    assert RequestBody({"wsgi.input": io.BytesIO(b"0123456789"), **announced}).read() == b""


def test_chunks_are_read_where_the_server_ends_them() -> None:
    environ = {"wsgi.input": io.BytesIO(b"0123"), "HTTP_TRANSFER_ENCODING": "chunked"}
    assert RequestBody(environ).read() == b""
    body = RequestBody(environ | {"wsgi.input_terminated": True})
    assert [body.read(2), body.read(), body.read()] == [b"01", b"23", b""]


@pytest.mark.parametrize("size", [-1, 5])
def test_a_body_that_ends_too_soon_is_refused(size: int) -> None:
    body = RequestBody({"wsgi.input": io.BytesIO(b"01"), "CONTENT_LENGTH": "5"})
    assert body.read(2) == b"01"
    with pytest.raises(Refused):
        body.read(size)


def test_an_answer_that_leaves_a_body_unread_closes_the_connection() -> None:
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    for environ in ({"CONTENT_LENGTH": "4"}, chunked):
        assert Server(b"0123", **environ).answer_after(lambda body: None) == CLOSE
        assert Server(b"0123", **environ).answer_after(lambda body: body.read(3)) == CLOSE
        assert (
            Server(b"0123", **environ).answer_after(lambda body: [*iter(lambda: body.read(3), b"")])
            == []
        )
    assert Server(b"", CONTENT_LENGTH="0").answer_after(lambda body: None) == []
    assert Server(b"").answer_after(lambda body: None) == []


def test_pythons_own_server_closes_by_itself() -> None:
    server = Server(b"0123", CONTENT_LENGTH="4", SERVER_SOFTWARE="WSGIServer/0.2")
    assert server.answer_after(lambda body: None) == []


@pytest.mark.parametrize(
    ("left", "closed"), [(SERVER_DRAIN_BYTES - 1, False), (SERVER_DRAIN_BYTES, True)]
)
def test_gunicorn_reads_off_what_is_short(left: int, closed: bool) -> None:  # noqa: FBT001
    environ = {"CONTENT_LENGTH": str(left + 3), "gunicorn.socket": None}
    server = Gunicorn(b"x" * (left + 3), **environ)
    assert (server.answer_after(lambda body: body.read(3)), server.closed) == ([], closed)


class FailingStream:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, size: int = -1) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        BodyError("the client is gone"),  # of the service's own server
        InvalidChunkSize(b"x"),  # of gunicorn
        ChunkMissingTerminator(b"x"),
        NoMoreData(),
        ConnectionResetError(errno.ECONNRESET, "reset"),  # of most servers
        TimeoutError("timed out"),
        ValueError("invalid literal for int() with base 16"),
        EOFError(),
        IncompleteRead(b"x"),  # of a library
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_a_broken_body_are_those_of_the_client(error: Exception) -> None:
    body = RequestBody({"wsgi.input": FailingStream(error), "CONTENT_LENGTH": "5"})
    with pytest.raises(Refused) as refusal:
        body.read()
    assert refusal.value.problems[0].code == "INVALID_PAYLOAD"
    assert body.is_left_unread({})


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENOSPC, "No space left on device"),
        TypeError("size must be an integer type"),
        RecursionError("maximum recursion depth exceeded"),
    ],
    ids=str,
)
def test_other_errors_of_a_server_are_not_blamed_on_the_body(error: Exception) -> None:
    body = RequestBody({"wsgi.input": FailingStream(error), "CONTENT_LENGTH": "5"})
    with pytest.raises(type(error)) as raised:
        body.read()
    assert raised.value is error
    # The rest must not be taken for the next request, even where gunicorn would read it.
    assert body.is_left_unread({"gunicorn.socket": None})
