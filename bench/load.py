"""The load: keep-alive connections, each of which sends its next request once it has an answer.

One thread with a selector drives them: that costs about a tenth of what any server here spends on a
request.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import NamedTuple, NoReturn

from bench.wire import Address, RequestFailed, connect, head_of

CONNECTIONS = 8
_ANSWER_SECONDS = 300.0

NextRequest = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Round:
    """One server under load for a moment: answers a second, and milliseconds of an answer.

    `longest` is the time of the slowest answer: one that waits for a second shows in no percentile.
    """

    rate: float
    p50: float
    p99: float
    longest: float


class LoadTimes(NamedTuple):
    """The seconds of each answer, and the seconds in all."""

    answers: list[float]
    total: float


class LoadClient:
    """One connection, and the answer that it waits for."""

    __slots__ = (
        "_address",
        "_next",
        "_received",
        "_size",
        "began",
        "closes",
        "socket",
    )

    def __init__(self, address: Address, next_request: NextRequest) -> None:
        self._address = address
        self._next = next_request
        self._received = bytearray()
        self._size = 0
        self.began = 0.0
        self.closes = False
        self.socket: socket.socket = connect(address)

    def send_next(self, selector: selectors.BaseSelector) -> None:
        """Send the next request; connecting again, where the server closed, counts in its time."""
        message = self._next()
        self.began = time.perf_counter()
        if self.closes:
            selector.unregister(self.socket)
            self.socket.close()
            self.socket = connect(self._address)
            self.closes = False
        if self.socket.fileno() not in selector.get_map():
            selector.register(self.socket, selectors.EVENT_READ, self)
        self.socket.sendall(message)

    def receive(self) -> bool:
        """Read what has arrived; tell whether the answer is complete. Raises `RequestFailed`."""
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise RequestFailed(
                f"the connection ended within an answer: {bytes(self._received[:300])!r}"
            )
        self._received += chunk
        if not self._size:
            head = head_of(self._received)
            if head is None:
                return False
            if head.status >= 300:
                raise RequestFailed(bytes(self._received[:600]).decode(errors="replace"))
            self._size = head.size
            self.closes = head.closes
        if len(self._received) < self._size:
            return False
        self._received.clear()
        self._size = 0
        return True


def run(
    address: Address,
    next_request: NextRequest,
    *,
    seconds: float,
    connections: int = CONNECTIONS,
) -> Round:
    """Put a server under load for so many seconds; every answer that began in that time counts."""
    with selectors.DefaultSelector() as selector:
        clients: list[LoadClient] = []
        try:
            for _ in range(connections):
                clients.append(LoadClient(address, next_request))
                # At once: a server ends connections that send nothing.
                clients[-1].send_next(selector)
            return summary(_drive(selector, len(clients), seconds))
        finally:
            for client in clients:
                client.socket.close()


def _drive(selector: selectors.BaseSelector, busy: int, seconds: float) -> LoadTimes:
    """Send requests for so many seconds, and then wait for the answers that are under way."""
    times: list[float] = []
    began = time.perf_counter()
    end = began + seconds
    while busy:
        for key, _ in selector.select(_ANSWER_SECONDS) or _time_out():
            client: LoadClient = key.data
            if not client.receive():
                continue
            now = time.perf_counter()
            times.append(now - client.began)
            if now < end:
                client.send_next(selector)
            else:
                selector.unregister(client.socket)  # the server may end it now
                busy -= 1
    return LoadTimes(times, time.perf_counter() - began)


def _time_out() -> NoReturn:
    raise RequestFailed(f"no answer came within {_ANSWER_SECONDS:.0f} seconds")


def summary(times: LoadTimes) -> Round:
    """Return the rates and percentiles of a round."""
    rate = len(times.answers) / times.total
    longest = max(times.answers, default=0) * 1000
    return Round(rate, *percentiles(times.answers), longest)


class Percentiles(NamedTuple):
    """The half of some durations, and nearly all of them, take at most so many milliseconds."""

    p50: float
    p99: float


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """Return the percentiles of durations; 0 without any."""
    # `quantiles` takes two values or more.
    if len(seconds) < 2:
        milliseconds = sum(seconds) * 1000
        return Percentiles(milliseconds, milliseconds)
    cuts = quantiles(seconds, n=100, method="inclusive")
    return Percentiles(cuts[49] * 1000, cuts[98] * 1000)
