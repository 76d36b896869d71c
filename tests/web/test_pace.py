"""The least pace at which a client has to take an answer, with TLS and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import pytest

from tests.waiting import eventually
from tests.web.servers import Running, running, tls_files

pytestmark = pytest.mark.slow

# The least pace is 256 KB a second here.
DEADLINES = {"REQUEST_TIMEOUT": "1s", "SEND_TIMEOUT": "1s"}
BYTES = 10_000_000
"""More than the buffers of both sockets, which the client need not take for the server to go on."""
TAKEN_A_SECOND = 1_200_000


@pytest.fixture(scope="module", params=["TLS", "plain"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    if request.param == "plain":
        with running(environ=DEADLINES) as process:
            yield process
        return
    certfile, keyfile, context = tls_files(tmp_path_factory.mktemp("tls"))
    with running(environ=DEADLINES, tls=context, certfile=certfile, keyfile=keyfile) as process:
        yield process


def take(server: Running, target: str, bytes_a_second: int) -> int:
    """Read an answer at this pace and return its size; the server ends the connection after it."""
    with server.connect(10) as wire:
        wire.send(f"GET {target}?size={BYTES} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        received = bytearray()
        began = time.monotonic()
        while piece := wire.socket.recv(65_536):
            received += piece
            time.sleep(max(0, began + len(received) / bytes_a_second - time.monotonic()))
    return received.partition(b"\r\n\r\n")[2].count(b"x")


@pytest.mark.parametrize("target", ["/stream", "/large"])
def test_readers_that_keep_the_pace_get_the_whole_answer(server: Running, target: str) -> None:
    before = server.log_text()
    with ThreadPoolExecutor(5) as clients:
        paces = [TAKEN_A_SECOND, 2 * TAKEN_A_SECOND, 4 * TAKEN_A_SECOND, 10**8]
        taken = list(clients.map(lambda pace: take(server, target, pace), paces))
    assert "was cut off" not in server.log_text().removeprefix(before)
    assert taken == [BYTES] * len(paces)


@pytest.mark.parametrize("target", ["/stream", "/large"])
def test_a_reader_below_the_pace_is_cut_off(server: Running, target: str) -> None:
    before = server.log_text()
    with server.connect(10) as wire:
        wire.send(f"GET {target}?size={10 * BYTES} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

        def is_cut_off() -> bool:
            wire.socket.recv(200)  # each hundredth of a second
            return "was cut off" in server.log_text().removeprefix(before)

        eventually(is_cut_off)
        wire.socket.settimeout(10)
        with pytest.raises((HTTPException, OSError)):
            wire.answer()
