"""Clients that are slow, many, or gone: nobody else waits for them."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException

import pytest

from tests.waiting import eventually
from tests.web.servers import Running, running
from tests.web.wire import Wire

pytestmark = pytest.mark.slow

LONG_DEADLINES = {"REQUEST_TIMEOUT": "300s", "SEND_TIMEOUT": "300s"}
SHORT_DEADLINES = {"REQUEST_TIMEOUT": "1s", "SEND_TIMEOUT": "1s"}

HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost:"
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf"
HALF_AN_UPLOAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\nhalf"
A_LONG_ANSWER = b"GET /stream?size=100000000 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def long_deadlines() -> Iterator[Running]:
    """A server that waits for its clients for longer than any test here lasts."""
    with running(environ=LONG_DEADLINES) as server:
        yield server


@pytest.fixture(scope="module")
def short_deadlines() -> Iterator[Running]:
    with running(environ=SHORT_DEADLINES) as server:
        yield server


def send_by_many(
    server: Running, data: bytes, number: int, stack: ExitStack, *, addresses: int
) -> list[Wire]:
    wires = []
    for client in range(number):
        source = f"127.0.0.{1 + client % addresses}"
        wires.append(stack.enter_context(server.connect(source=source)))
    for wire in wires:
        wire.send(data)
    return wires


def await_turn(server: Running) -> None:
    """Wait until a request is answered that came after all those that came at once.

    While a thread takes up each of those, a slow machine may let a request wait for longer than
    the server allows, and it is refused: that is overload, and not clients that have stopped.
    """

    def is_answered() -> bool:
        with server.connect() as wire:
            status = wire.get("/").status
        assert status in (200, 503)
        return status == 200

    eventually(is_answered, otherwise=server.log_text)


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (500, b""),
        (500, HALF_A_HEAD),
        (200, HALF_A_BODY),
        (300, HALF_AN_UPLOAD),
        (300, A_LONG_ANSWER),
    ],
    ids=["nothing", "half a head", "half a body", "half an upload", "an answer that is not read"],
)
@pytest.mark.parametrize("addresses", [1, 250], ids=["one address", "many addresses"])
def test_clients_that_stop_hold_up_nobody(
    long_deadlines: Running, number: int, data: bytes, addresses: int
) -> None:
    with ExitStack() as stack:
        send_by_many(long_deadlines, data, number, stack, addresses=addresses)
        await_turn(long_deadlines)
        with long_deadlines.connect() as wire:
            for _ in range(50):
                assert wire.get("/").status == 200


@pytest.mark.parametrize("data", [HALF_A_HEAD, HALF_A_BODY], ids=["head", "body"])
def test_a_head_and_a_short_body_have_a_deadline_as_a_whole(
    short_deadlines: Running, data: bytes
) -> None:
    with short_deadlines.connect(10) as wire:
        wire.send(data)
        with suppress(BrokenPipeError, ConnectionResetError):
            while not wire.has_come():
                time.sleep(0.1)
                wire.send(b"x")  # every byte of a trickle comes in time, and the whole does not
        answer = wire.answer()
        assert (answer.status, answer.json()["errors"][0]["extensions"]["code"]) == (
            408,
            "REQUEST_TIMEOUT",
        )
        assert wire.is_ended()


def test_an_upload_has_to_come_at_a_least_pace(short_deadlines: Running) -> None:
    with short_deadlines.connect(10) as wire:
        wire.send(HALF_AN_UPLOAD)
        answer = wire.answer()
        assert answer.status == 408
        assert wire.is_ended()


def test_an_upload_that_takes_long_and_keeps_its_pace_is_taken(short_deadlines: Running) -> None:
    size = 3_000_000
    piece = b"x" * 100_000
    with short_deadlines.connect(10) as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            wire.send(piece)
            time.sleep(0.1)
        assert wire.answer().json()["size"] == size


@pytest.mark.parametrize("target", ["/stream?size=100000000", "/large?size=100000000"])
def test_an_answer_has_to_be_taken_at_a_least_pace(short_deadlines: Running, target: str) -> None:
    before = short_deadlines.log_text()
    with short_deadlines.connect(10) as wire:
        wire.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        eventually(lambda: "was cut off" in short_deadlines.log_text().removeprefix(before))
        with pytest.raises((HTTPException, OSError)):
            wire.answer()


def test_a_long_body_reaches_the_application_while_it_comes_in(long_deadlines: Running) -> None:
    with long_deadlines.connect() as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            wire.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        wire.send(b"0\r\n\r\n")
        assert wire.answer().json()["size"] == 6_553_600
        assert wire.get("/").status == 200


@pytest.mark.parametrize("end", [b"zz\r\n", None], ids=["malformed", "gone"])
def test_an_application_that_reads_a_body_that_breaks_off_gets_an_error(
    long_deadlines: Running, end: bytes | None
) -> None:
    with long_deadlines.connect() as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        wire.send(b"80000\r\n" + b"x" * 0x80000 + b"\r\n")
        if end is None:
            wire.socket.shutdown(socket.SHUT_WR)
        else:
            wire.send(end)
        answer = wire.answer()
        assert answer.json()["fault"]
        assert wire.is_ended()


def test_a_body_that_is_announced_is_asked_for_when_the_application_reads_it(
    long_deadlines: Running,
) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
    with long_deadlines.connect() as wire:
        wire.send(head % b"/unread")
        answer = wire.answer()
        assert (answer.status, answer.body, answer.keeps) == (200, b"unread", False)
    with long_deadlines.connect() as wire:
        wire.send(head % b"/")
        assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(b"x" * 1_000_000)
        assert wire.answer().json()["size"] == 1_000_000


@pytest.mark.parametrize("connections", [64, 512, 4_000])
def test_under_overload_every_request_is_answered_and_the_server_is_itself_again(
    long_deadlines: Running, connections: int
) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(long_deadlines.connect()) for _ in range(connections)]
        for wire in wires:
            wire.send(b"GET /sleep?seconds=0.02 HTTP/1.1\r\nHost: x\r\n\r\n")
        statuses = Counter(wire.answer().status for wire in wires)
    assert statuses.keys() <= {200, 503}
    assert statuses[200] >= min(connections, 500)
    assert statuses[503] == 0 or connections > 512
    with long_deadlines.connect() as wire:
        assert wire.get("/").status == 200


def test_a_refusal_for_overload_names_the_time_to_try_again() -> None:
    with running(environ=LONG_DEADLINES, threads=1) as server, ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(3)]
        for wire in slow:
            wire.send(b"GET /sleep?seconds=6 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow[0].answer().status == 200
        answer = slow[1].answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.clock
def test_under_overload_some_are_refused_and_the_rest_answered_at_the_full_rate() -> None:
    seconds = 0.05
    with running(environ=LONG_DEADLINES, threads=2) as server, ExitStack() as stack:
        # Four times what two threads can answer in the five seconds that a request may wait.
        wires = [stack.enter_context(server.connect()) for _ in range(800)]
        began = time.monotonic()
        for wire in wires:
            wire.send(f"GET /sleep?seconds={seconds} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answers = [wire.answer() for wire in wires]
        statuses = Counter(answer.status for answer in answers)
        rate = statuses[200] / (time.monotonic() - began)
        assert statuses.keys() == {200, 503}
        assert all("retry-after" in answer.headers for answer in answers if answer.status == 503)
        assert rate > 0.5 * 2 / seconds
        with server.connect() as wire:
            assert wire.get("/").status == 200


def test_answers_to_many_at_once_are_never_mixed_up(long_deadlines: Running) -> None:
    wrong: list[str] = []

    def request(client: int) -> None:
        with long_deadlines.connect() as wire:
            for number in range(100):
                query = f"client={client}&number={number}"
                if wire.get(f"/?{query}").json()["QUERY_STRING"] != query:
                    wrong.append(query)

    clients = [threading.Thread(target=request, args=(client,)) for client in range(20)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert wrong == []
