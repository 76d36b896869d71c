"""Reads while people log in: all arrive at a steady rate, whoever is still waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from statistics import median

import psycopg

from bench.load import percentiles
from bench.serving import RunningServer, serving
from bench.stage import EMAIL, PASSWORD, BenchEnvironment
from bench.tables import Promise, row, rule
from bench.wire import RequestFailed, exchange, request

USERS = 100_000
READS_PER_SECOND = 100
LOGINS_PER_SECOND = 1_000 / 60
SECONDS = 12.0
ROUNDS = 3
WARM_UP_REQUESTS = 10
MAX_LONGER = 2.0
"""How many times as long the p99 of reads may be beside logins."""
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
    """Reads alone, and reads and logins at once; `processor_seconds` are those of the workers."""

    alone: Arrivals
    beside: Arrivals
    logins: Arrivals
    processor_seconds: float


def measure(stage: BenchEnvironment, token: str) -> list[LoginRound]:
    """Make the users, and measure in turns."""
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(_USERS, (USERS, EMAIL))
        connection.execute(_SESSIONS)
        connection.execute("VACUUM (ANALYZE) system_users, system_sessions")
    logins = _login_requests()
    rounds = []
    for _ in range(ROUNDS):
        with serving("service", stage.folder, stage.environ) as service:
            rounds.append(_round(service, logins, token))
    return rounds


def _round(service: RunningServer, logins: Iterator[bytes], token: str) -> LoginRound:
    reads = iter(lambda: request("GET", _ITEM, token=token), None)
    _warm_up(service, reads, logins)
    alone = _arrive(service, reads, READS_PER_SECOND)
    before = _processor_seconds(service)
    with ThreadPoolExecutor(1) as other:
        arriving = other.submit(_arrive, service, logins, LOGINS_PER_SECOND)
        beside = _arrive(service, reads, READS_PER_SECOND)
        login_arrivals = arriving.result()
    used = _processor_seconds(service) - before
    return LoginRound(alone, beside, login_arrivals, used)


def _warm_up(service: RunningServer, reads: Iterator[bytes], logins: Iterator[bytes]) -> None:
    """Have every worker read and log in: the first login of a process looks at all hashes."""
    for _ in range(WARM_UP_REQUESTS):
        exchange(service.address, next(reads))
        exchange(service.address, next(logins))


def _processor_seconds(service: RunningServer) -> float:
    seconds = 0.0
    for worker in service.workers():
        times = worker.cpu_times()
        seconds += times.user + times.system
    return seconds


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


def login_promises(rounds: list[LoginRound]) -> Iterator[Promise]:
    """Yield what the service must keep to beside 1,000 logins a minute."""
    longer = median(measured.beside.p99 / measured.alone.p99 for measured in rounds)
    yield Promise(
        "p99 of reads beside 1,000 logins a minute, against that without them",
        f"{MAX_LONGER:.0f} times",
        f"{longer:.1f}",
        longer <= MAX_LONGER,
    )
    refused = sum(measured.logins.refused for measured in rounds)
    yield Promise("logins of these that are refused", "0", f"{refused:,}", refused == 0)


def login_table(rounds: list[LoginRound]) -> str:
    """Return the rounds as Markdown."""
    heads = ("reads beside logins", "answered", "503", "p50 ms", "p99 ms")
    lines = [row(heads), rule(len(heads))]
    for measured in rounds:
        lines += [
            _line(f"{READS_PER_SECOND} reads a second, alone", measured.alone),
            _line("the same beside 1,000 logins a minute", measured.beside),
            _line(_logins(measured), measured.logins),
        ]
    return "\n".join(lines)


def _logins(measured: LoginRound) -> str:
    part = measured.processor_seconds / SECONDS
    return f"the logins; the workers use {part:.0%} of a processor"


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
