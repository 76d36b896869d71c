"""Slow clients and overload: how fast other clients are answered meanwhile."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from bench.load import CONNECTIONS, Round, run
from bench.rounds import Tokens
from bench.serving import RunningServer
from bench.wire import connect, request

PING = "/server/ping"
ITEMS = "/items/articles?limit=25&fields=id,title,status,views"
SECONDS = 3.0
OVERLOADS = (8, 64, 512, 4_000)
TARGET = 4.0
"""The p99 beside a crowd may be this many times the usual one."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients that stop in the middle: the p99 of others, as a multiple of the usual one."""

    name: str
    ping: float
    items: float


@dataclass(frozen=True, slots=True)
class Overload:
    """So many connections that send requests without a pause.

    `after` is the rate under the usual load as soon as they are gone.
    """

    connections: int
    under_load: Round
    after: float


class StalledClients(NamedTuple):
    """So many clients that send the same bytes and then stop."""

    name: str
    number: int
    sent: bytes


class TailTimes(NamedTuple):
    """The p99 of a ping and of a page, in milliseconds."""

    ping: float
    items: float


def slow(service: RunningServer, tokens: Tokens) -> list[Crowd]:
    """Measure how clients that stop in the middle affect others."""
    _allow_descriptors()
    head = request("GET", ITEMS, token=tokens.admin)
    body = request("POST", "/items/entries", token=tokens.admin, payload={"title": "x" * 10_000})
    export = request("GET", "/items/articles?export=csv&limit=-1", token=tokens.admin)
    baseline = _p99s(service, tokens)
    crowds = (
        StalledClients("500 with half a head", 500, head[: len(head) // 2]),
        StalledClients("200 with half a body", 200, body[:-100]),
        StalledClients("200 that read no export", 200, export),
    )
    return [_measure_beside(service, tokens, baseline, crowd) for crowd in crowds]


def overloaded(service: RunningServer, tokens: Tokens) -> list[Overload]:
    """Measure the service with more clients than the machine can serve."""
    _allow_descriptors()
    message = request("GET", ITEMS, token=tokens.admin)
    overloads = []
    for connections in OVERLOADS:
        under_load = run(
            service.address,
            lambda: message,
            seconds=SECONDS,
            connections=connections,
            may_refuse=True,
        )
        after = run(service.address, lambda: message, seconds=1.0, connections=CONNECTIONS)
        overloads.append(Overload(connections, under_load, after.rate))
    return overloads


def _measure_beside(
    service: RunningServer, tokens: Tokens, baseline: TailTimes, crowd: StalledClients
) -> Crowd:
    with _stalled(service, crowd):
        beside = _p99s(service, tokens)
    return Crowd(crowd.name, beside.ping / baseline.ping, beside.items / baseline.items)


def _p99s(service: RunningServer, tokens: Tokens) -> TailTimes:
    ping = _p99(service, request("GET", PING, token=tokens.admin))
    items = _p99(service, request("GET", ITEMS, token=tokens.admin))
    return TailTimes(ping, items)


def _p99(service: RunningServer, message: bytes) -> float:
    return run(service.address, lambda: message, seconds=SECONDS / 2, connections=CONNECTIONS).p99


@contextmanager
def _stalled(service: RunningServer, crowd: StalledClients) -> Iterator[None]:
    """Open the connections of a crowd, send its bytes on each, and leave them so."""
    clients: list[socket.socket] = []
    try:
        for _ in range(crowd.number):
            clients.append(connect(service.address))
            clients[-1].sendall(crowd.sent)
        time.sleep(1.0)  # until the server has read all of it
        yield
    finally:
        for client in clients:
            client.close()


def _allow_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
