"""Reads while people log in: both arrive at a steady rate, whoever is still waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count

import psycopg

from bench.load import percentiles
from bench.serving import RunningServer
from bench.stage import EMAIL, PASSWORD, BenchEnvironment
from bench.tables import row, rule
from bench.wire import RequestFailed, exchange, request

USERS = 100_000
READS_PER_SECOND = 100
LOGINS_PER_SECOND = 1_000 / 60
SECONDS = 12.0
ROUNDS = 3
MAX_AT_A_TIME = 200
"""How many requests of a kind may wait for their answers."""

_ITEM = "/items/articles/1"
_USERS = (
    "INSERT INTO system_users (email, password) SELECT 'user' || n || '@example.com', password "
    "FROM generate_series(1, %s) AS n CROSS JOIN system_users WHERE email = %s"
)
_SESSIONS = (
    'INSERT INTO system_sessions ("user", token, mode, expires) '
    "SELECT id, 'digest', 'json', now() + interval '7 days' FROM system_users"
)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The answers to requests that arrived at a steady rate; `p50` and `p99` in milliseconds."""

    answered: int
    refused: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class LoginRound:
    """Reads alone, and reads and logins at once."""

    alone: Arrivals
    beside: Arrivals
    logins: Arrivals


def measure(stage: BenchEnvironment, service: RunningServer, token: str) -> list[LoginRound]:
    """Make the users, and measure in turns."""
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(_USERS, (USERS, EMAIL))
        connection.execute(_SESSIONS)
        connection.execute("VACUUM (ANALYZE) system_users, system_sessions")
    return [_round(service, token) for _ in range(ROUNDS)]


def _round(service: RunningServer, token: str) -> LoginRound:
    reads = iter(lambda: request("GET", _ITEM, token=token), None)
    alone = _arrive(service, reads, READS_PER_SECOND)
    with ThreadPoolExecutor(1) as other:
        logins = other.submit(_arrive, service, _login_requests(), LOGINS_PER_SECOND)
        beside = _arrive(service, reads, READS_PER_SECOND)
        return LoginRound(alone, beside, logins.result())


def _login_requests() -> Iterator[bytes]:
    for number in count():
        email = f"user{number * 7919 % USERS + 1}@example.com"
        payload = {"email": email, "password": PASSWORD}
        yield request("POST", "/auth/login", payload=payload)


def _arrive(service: RunningServer, messages: Iterator[bytes], rate: float) -> Arrivals:
    """Send so many requests a second, each on a connection of its own."""
    times: list[float] = []
    refused: list[str] = []

    def send(message: bytes, due: float) -> None:
        try:
            exchange(service.address, message)
        except RequestFailed as failed:
            if "SERVICE_UNAVAILABLE" not in str(failed):
                raise
            refused.append(str(failed))
        else:
            # From the moment when it was due: a sender that is late counts as waiting.
            times.append(time.perf_counter() - due)

    began = time.perf_counter()
    with ThreadPoolExecutor(MAX_AT_A_TIME) as senders:
        sent = []
        for number in range(int(SECONDS * rate)):
            due = began + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            sent.append(senders.submit(send, next(messages), due))
        wait(sent)
    for future in sent:
        future.result()  # raises what went wrong
    return Arrivals(len(times), len(refused), *percentiles(times))


def login_table(rounds: list[LoginRound]) -> str:
    """Return the rounds as Markdown."""
    heads = ("reads beside logins", "answered", "503", "p50 ms", "p99 ms")
    lines = [row(heads), rule(len(heads))]
    for measured in rounds:
        lines += [
            _line(f"{READS_PER_SECOND} reads a second, alone", measured.alone),
            _line("the same beside 1,000 logins a minute", measured.beside),
            _line("the logins", measured.logins),
        ]
    return "\n".join(lines)


def _line(name: str, arrivals: Arrivals) -> str:
    return row(
        (
            name,
            f"{arrivals.answered:,}",
            f"{arrivals.refused:,}",
            f"{arrivals.p50:.1f}",
            f"{arrivals.p99:.1f}",
        )
    )
