"""Clients that mean harm: whatever one of them sends, or leaves, the others are answered."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually
from tests.web.servers import Running, running, tls_files
from tests.web.test_clients import HALF_A_HEAD, LONG_DEADLINES, SHORT_DEADLINES
from tests.web.wire import Wire

pytestmark = pytest.mark.slow

CHUNKS = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
A_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 255000\r\n\r\n" + b"x" * 255_000
MEGABYTE = 1_000_000
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def long_deadlines() -> Iterator[Running]:
    """A server that waits for its clients for longer than any test here lasts."""
    with running(environ=LONG_DEADLINES) as server:
        yield server


def memory(server: Running) -> int:
    """Return how many bytes the workers hold."""
    return int(sum(worker.memory_info().rss for worker in server.worker_processes()))


@contextmanager
def flooded(wire: Wire, data: bytes) -> Iterator[threading.Thread]:
    """Send the same bytes again and again, for as long as the server takes them."""
    over = threading.Event()

    def flood() -> None:
        with suppress(OSError):
            while not over.is_set():
                wire.send(data)

    sender = threading.Thread(target=flood)
    sender.start()
    try:
        yield sender
    finally:
        over.set()
        with suppress(OSError):
            wire.socket.shutdown(socket.SHUT_RDWR)
        sender.join()


@pytest.mark.parametrize(
    "begin", [b"0\r\nA: ", b"5;a=", b"0\r\n"], ids=["trailer", "extension", "trailers"]
)
def test_a_body_that_never_ends_beside_its_chunks_is_refused(
    long_deadlines: Running, begin: bytes
) -> None:
    data = b"A: b\r\n" * 10_000 if begin == b"0\r\n" else b"x" * 65_536
    with long_deadlines.connect(20) as wire:
        wire.send(CHUNKS + begin)
        with flooded(wire, data) as sender:
            sender.join(20)
            assert not sender.is_alive()
    with long_deadlines.connect() as wire:
        assert wire.get("/").status == 200


def test_a_flood_of_chunks_of_a_byte_leaves_the_others_their_turn(long_deadlines: Running) -> None:
    with long_deadlines.connect() as wire:
        wire.send(CHUNKS)
        with flooded(wire, b"1\r\nx\r\n" * 20_000) as sender:
            for _ in range(10):
                with long_deadlines.connect() as other:
                    assert other.get("/").status == 200
            assert sender.is_alive()


def test_a_full_server_lets_the_oldest_go_that_sends_no_request() -> None:
    with (
        running(environ=LONG_DEADLINES, worker_connections=50) as server,
        ExitStack() as stack,
    ):
        idle = [stack.enter_context(server.connect(10)) for _ in range(80)]
        for wire in idle:
            with suppress(OSError):
                wire.send(HALF_A_HEAD)
        with server.connect(10) as wire:
            assert wire.get("/").status == 200
            assert idle[0].is_ended()
            assert wire.get("/").status == 200


def test_a_full_server_of_which_all_are_answered_refuses_another() -> None:
    with (
        running(environ=LONG_DEADLINES, worker_connections=2) as server,
        ExitStack() as stack,
    ):
        for _ in range(2):
            stack.enter_context(server.connect()).begin(
                b"GET /sleep?seconds=12 HTTP/1.1\r\nHost: x\r\n\r\n"
            )
        with server.connect() as wire:
            answer = wire.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_connections_that_are_reset_as_they_are_made_leave_nothing(long_deadlines: Running) -> None:
    worker = long_deadlines.worker_processes()[0]
    before = worker.num_fds()
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", long_deadlines.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()
    with long_deadlines.connect() as wire:
        assert wire.get("/").status == 200
    eventually(lambda: worker.num_fds() <= before)
    assert "Traceback" not in long_deadlines.log_text()


def test_a_client_that_pipelines_bodies_fills_no_memory(long_deadlines: Running) -> None:
    before = memory(long_deadlines)
    with ExitStack() as stack:
        wires = [stack.enter_context(long_deadlines.connect()) for _ in range(60)]
        for wire in wires:
            wire.send(b"GET /sleep?seconds=3 HTTP/1.1\r\nHost: x\r\n\r\n")
            wire.socket.setblocking(False)
        until = time.monotonic() + 2
        rest = dict.fromkeys(wires, A_BODY * 12)
        while time.monotonic() < until:
            for wire in wires:
                with suppress(BlockingIOError, ConnectionError):
                    rest[wire] = rest[wire][wire.socket.send(rest[wire]) :]
            time.sleep(0.01)
        assert memory(long_deadlines) - before < 110 * MEGABYTE


def test_bodies_that_are_never_whole_fill_no_memory_and_refuse_nobody_else(
    long_deadlines: Running,
) -> None:
    before = memory(long_deadlines)
    with ExitStack() as stack:
        for _ in range(600):
            wire = stack.enter_context(long_deadlines.connect())
            with suppress(OSError):
                wire.send(A_BODY[:-1])
        with long_deadlines.connect(10) as wire:
            wire.send(A_BODY)
            assert wire.answer().json()["size"] == 255_000
        assert memory(long_deadlines) - before < 130 * MEGABYTE


@pytest.mark.parametrize("target", ["/large", "/stream"])
@pytest.mark.parametrize("transport", ["plain", "TLS"])
def test_answers_that_nobody_takes_fill_no_memory(
    tmp_path: Path, target: str, transport: str
) -> None:
    size = 10 * MEGABYTE  # more than the kernel takes of each
    options: dict[str, Any] = {}
    if transport == "TLS":
        certfile, keyfile, options["tls"] = tls_files(tmp_path)
        options |= {"certfile": certfile, "keyfile": keyfile}
    with running(environ=LONG_DEADLINES, **options) as server, ExitStack() as stack:
        before = memory(server)
        for _ in range(150):
            wire = stack.enter_context(server.connect())
            wire.send(f"GET {target}?size={size} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        with server.connect() as wire:
            for _ in range(20):
                assert len(wire.get(f"{target}?size={size}").body) == size
        # All answers together are 1,500 MB.
        assert memory(server) - before < 700 * MEGABYTE


def test_an_expectation_behind_another_request_is_answered_in_its_turn(
    long_deadlines: Running,
) -> None:
    with long_deadlines.connect(10) as wire:
        wire.send(b"GET /sleep?seconds=0.3 HTTP/1.1\r\nHost: x\r\n\r\n")
        wire.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
        assert wire.answer().status == 200
        go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert wire.read(len(go_on)) == go_on
        wire.send(b"hello")
        assert wire.answer().json()["size"] == 5


def test_a_body_that_comes_unasked_for_is_not_asked_for(long_deadlines: Running) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
    with long_deadlines.connect(10) as wire:
        for _ in range(20):
            wire.send(
                b"GET /sleep?seconds=0.02 HTTP/1.1\r\nHost: x\r\n\r\n" + head + b"x" * MEGABYTE
            )
            assert wire.answer().status == 200
            assert wire.answer().json()["size"] == MEGABYTE
            assert not wire.has_come()


@pytest.mark.parametrize("target", ["/large?size=5000000", "/stream?size=5000000"])
def test_a_client_that_has_sent_all_gets_all_of_its_answer(
    long_deadlines: Running, target: str
) -> None:
    for _ in range(30):
        with long_deadlines.connect(10) as wire:
            wire.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            wire.socket.shutdown(socket.SHUT_WR)
            assert len(wire.answer().body) == 5_000_000
            assert wire.is_ended()


def test_an_answer_after_a_long_upload_has_its_own_pace() -> None:
    with running(environ=SHORT_DEADLINES) as server, server.connect(10) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131_072)
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\n\r\n")
        for _ in range(19):
            wire.send(b"x" * 300_000)
            time.sleep(0.1)
        wire.send(b"x" * 300_000 + b"GET /large?size=20000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.answer().json()["size"] == 6_000_000
        for _ in range(25):
            time.sleep(0.1)
            wire.socket.recv(200_000)
        assert "was cut off" not in server.log_text()


def test_requests_behind_requests_are_all_answered_in_their_order(long_deadlines: Running) -> None:
    number = 3_000
    requests = b"".join(
        b"GET /?number=%d HTTP/1.1\r\nHost: x\r\n\r\n" % index for index in range(number)
    )
    with long_deadlines.connect() as wire:
        sender = threading.Thread(target=wire.send, args=(requests,))
        sender.start()
        for index in range(number):
            assert wire.answer().json()["QUERY_STRING"] == f"number={index}"
        sender.join()


def test_a_handshake_of_tls_has_a_deadline(tmp_path: Path) -> None:
    certfile, keyfile, context = tls_files(tmp_path)
    with ExitStack() as stack:
        files: dict[str, Any] = {"certfile": certfile, "keyfile": keyfile}
        server = stack.enter_context(
            running(environ=SHORT_DEADLINES, tls=context, worker_connections=50, **files)
        )
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
            for _ in range(80)
        ]
        with server.connect(10) as wire:
            assert wire.get("/").status == 200
        assert silent[-1].recv(1) == b""
        worker = server.worker_processes()[0]
        eventually(lambda: worker.num_fds() <= 40)
