"""A server in the process of the test, whose event loop turns away as soon as it may."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from cms.web import request_reader
from cms.web.answer_output import AnswerOutput
from cms.web.client_limits import ClientLimits
from cms.web.listeners import Listeners
from cms.web.web_server import Application, WebServer
from tests.web.test_refusals import get, send_until_the_end
from tests.web.wire import open_wire

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 60.0
LONG_BYTES = 1_000_000
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # as `struct linger`


@contextmanager
def serving(application: Application, *, immediate: str = "") -> Iterator[int]:
    """Serve with one thread, and yield the port; the path `immediate` waits for nothing."""
    loop = uvloop.new_event_loop()
    server = WebServer(
        application,
        loop,
        threads=1,
        limits=ClientLimits(),
        is_immediate=lambda environ: environ["PATH_INFO"] == immediate,
    )
    is_over = asyncio.Event()

    async def serve() -> None:
        listeners = Listeners(server, [listener])
        await is_over.wait()
        await listeners.drain(TIMEOUT_SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        try:
            yield port
        finally:
            loop.call_soon_threadsafe(is_over.set)
            thread.join()
            loop.close()


def test_a_turn_that_ends_with_a_refusal_leaves_the_rest_until_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that sends too much behind a refused request still gets its earlier answer."""
    monkeypatch.setattr(request_reader, "PARSE_SECONDS", 0.0)
    has_begun = threading.Event()
    may_end = threading.Event()

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/slow":
            has_begun.set()
            may_end.wait(TIMEOUT_SECONDS)
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"answered"]

    with (
        serving(application, immediate="/quick") as port,
        open_wire(port) as first,
        open_wire(port) as second,
    ):
        first.send(get("/slow"))
        assert has_begun.wait(TIMEOUT_SECONDS)
        sent = get("/") + b"no request\r\n\r\n" + b"x" * 20_000_000
        second.send(sent[:LONG_BYTES])
        for _ in range(3):  # turns of the event loop
            with open_wire(port) as other:
                assert other.get("/quick").body == b"answered"
        sender = threading.Thread(target=send_until_the_end, args=(second, sent[LONG_BYTES:]))
        sender.start()
        may_end.set()
        assert second.answer().body == b"answered"
        sender.join()


def test_a_request_that_waits_for_nothing_is_answered_while_all_threads_work() -> None:
    may_end = threading.Event()

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/waits":
            may_end.wait(TIMEOUT_SECONDS)
        start("200 OK", [("Content-Type", "text/plain")])
        return [environ["PATH_INFO"].encode()]

    with serving(application, immediate="/quick") as port, open_wire(port) as first:
        first.send(get("/waits"))
        try:
            with open_wire(port) as second:
                assert second.get("/quick").body == b"/quick"
                # Behind a request that waits, it waits for its turn.
                first.send(get("/quick"))
        finally:
            may_end.set()
        assert [first.answer().body, first.answer().body] == [b"/waits", b"/quick"]


def test_many_requests_at_once_that_wait_for_nothing_are_answered_in_their_order() -> None:
    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [environ["QUERY_STRING"].encode()]

    targets = [f"/{'quick' if number % 3 else 'other'}?{number}" for number in range(3_000)]
    with serving(application, immediate="/quick") as port, open_wire(port) as wire:
        sent = b"".join(map(get, targets))
        sender = threading.Thread(target=wire.send, args=(sent,))
        sender.start()
        answers = [wire.answer().body.decode() for _ in targets]
        sender.join()
    assert answers == [target.partition("?")[2] for target in targets]


def test_a_client_that_reads_no_answer_holds_up_nobody() -> None:
    """Not even where the event loop itself writes the answers."""

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"x" * LONG_BYTES]

    with serving(application, immediate="/quick") as port, open_wire(port) as silent:
        silent.send(get("/quick") * 100)
        with open_wire(port) as other:
            assert len(other.get("/quick").body) == LONG_BYTES
            assert len(other.get("/quick").body) == LONG_BYTES


def test_the_age_of_an_answer_in_pieces_begins_with_it_and_again_with_each_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where too much is unsent, the oldest is cut off: that must not be one that moves."""
    moments: list[tuple[float, float]] = []
    write_chunk = AnswerOutput.write_chunk

    def watched(output: AnswerOutput, data: bytes) -> None:
        moments.append((output.unsent_since, time.monotonic()))
        write_chunk(output, data)

    def long(_: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"x" * LONG_BYTES * 20]

    # As under TLS: threads write nothing themselves.
    monkeypatch.setattr(AnswerOutput, "needs_loop", True)
    monkeypatch.setattr(AnswerOutput, "_send", lambda _, data: data)
    monkeypatch.setattr(AnswerOutput, "write_chunk", watched)
    asked = time.monotonic()
    with serving(long) as port, open_wire(port) as client:
        client.send(get("/"))
        assert len(client.answer().body) == LONG_BYTES * 20
    written = [asked, *(moment for _, moment in moments)]
    assert all(since > before for (since, _), before in zip(moments, written, strict=False))


@pytest.mark.parametrize("path", ["/fails", "/fails-at-once"], ids=["in a thread", "in the loop"])
def test_an_error_for_a_client_that_has_gone_takes_no_thread_along(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The only thread of the server goes on, and so does its loop."""
    has_begun = threading.Event()
    may_fail = threading.Event()
    failed = threading.Event()

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == path:
            has_begun.set()
            may_fail.wait(TIMEOUT_SECONDS)
            failed.set()
            raise RuntimeError("it failed")
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"answered"]

    with serving(application, immediate="/fails-at-once") as port:
        with open_wire(port) as gone:
            gone.send(get(path))
            assert has_begun.wait(TIMEOUT_SECONDS)
            gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        may_fail.set()
        assert failed.wait(TIMEOUT_SECONDS)
        with open_wire(port) as other:
            assert other.get("/").body == b"answered"
    assert {record.name for record in caplog.records} == {"cms.web"}


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, SystemExit])
def test_an_error_in_the_loop_is_answered(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        raise error("it failed")

    with serving(application, immediate="/quick") as port:
        for path in ("/quick", "/other"):
            with open_wire(port) as wire:
                answer = wire.get(path)
                assert (answer.status, answer.keeps) == (500, False)
                assert wire.is_ended()
    assert [record.name for record in caplog.records] == ["cms.web"] * 2
