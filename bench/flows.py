"""Flows: calls beside reads, writes that run flows beside writes that run none, and a worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from bench.cases import CREATE_ONE, READS
from bench.load import NextRequest, Round, run
from bench.rounds import Length, Tokens, median_ratio, median_round
from bench.serving import TIMEOUT_SECONDS, RunningServer, serving
from bench.stage import BenchEnvironment
from bench.wire import Address, call, request

SYNCHRONOUS = "00000000-0000-4000-8000-000000000001"
ASYNCHRONOUS = "00000000-0000-4000-8000-000000000002"
ACTION = "00000000-0000-4000-8000-000000000003"
MAX_ROUNDS = 11
WAITING = 1_000
"""Runs that wait while calls queue further ones."""
RUNS = 2_000
MAX_P99 = 10.0
MIN_RUNS = 200.0

_NONE_WAIT = "TRUNCATE system_flow_runs, procrastinate_jobs, procrastinate_events CASCADE"
_QUEUE = (
    "WITH runs AS (INSERT INTO system_flow_runs (flow, trigger, input) "
    """SELECT %s::uuid, 'webhook', '{"query": {"n": "7"}}' FROM generate_series(1, %s) """
    "RETURNING id) INSERT INTO procrastinate_jobs (queue_name, task_name, args) "
    "SELECT 'flow', 'flow', jsonb_build_object('payload', jsonb_build_object('run', id)) FROM runs"
)
_COUNT_UNFINISHED = "SELECT count(*) FROM system_flow_runs WHERE date_finished IS NULL"
_RATE = (
    "SELECT (count(*) - 1) / extract(epoch FROM max(date_finished) - min(date_finished)) "
    "FROM system_flow_runs WHERE state = 'done' HAVING count(*) = %s"
)


@dataclass(frozen=True, slots=True)
class FlowComparison:
    """The medians of the rounds of something with flows, and of something to compare it with.

    `ratio` is the median of the first rate over the other one, pair by pair; `target` is the least.
    """

    name: str
    flow: Round
    other: Round
    ratio: float
    target: float


@dataclass(frozen=True, slots=True)
class FlowResult:
    """What was measured of flows.

    `waiting` are calls of an asynchronous webhook while 1,000 runs wait, `runs` the runs a second
    of one worker.
    """

    comparisons: list[FlowComparison]
    waiting: Round
    runs: float


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison: where its requests go, and what makes them for a seed.

    `prepare` is called before each of its rounds.
    """

    address: Address
    requests: Callable[[int], NextRequest]
    prepare: Callable[[], object] = lambda: None


def measure(
    stage: BenchEnvironment, service: RunningServer, *, tokens: Tokens, length: Length
) -> FlowResult:
    """Measure flows; what they leave in the queue is deleted."""
    length = replace(length, rounds=min(length.rounds, MAX_ROUNDS))
    admin = tokens.admin
    with (
        psycopg.connect(stage.dsn, autocommit=True) as connection,
        _flows(service, admin),
    ):
        calls = list(_compare_calls(stage, admin, length))
        connection.execute(_NONE_WAIT)
        waiting = _call_while_runs_wait(service, connection, admin, length)
        connection.execute(_NONE_WAIT)
        writes = list(_compare_writes(service, admin, length))
        connection.execute(_NONE_WAIT)
        runs = _runs_per_second(stage, connection)
        connection.execute(_NONE_WAIT)
    return FlowResult([*calls, *writes], waiting, runs)


@contextmanager
def _flows(service: RunningServer, token: str) -> Iterator[None]:
    """Make two webhooks of a condition and a transform, and an action flow for new records."""
    event = {"type": "action", "scope": ["items.create"], "collections": ["records"]}
    definitions = [
        _flow(SYNCHRONOUS, "webhook", {"method": "GET"}),
        _flow(ASYNCHRONOUS, "webhook", {"method": "GET", "async": True}),
        _flow(ACTION, "event", event),
    ]
    for definition in definitions:
        call(service.address, request("POST", "/flows", token=token, payload=definition))
    yield
    keys = [definition["id"] for definition in definitions]
    call(service.address, request("DELETE", "/flows", token=token, payload=keys))


def _flow(key: str, trigger: str, options: Mapping[str, object]) -> dict[str, Any]:
    """Return a flow of two steps."""
    first = key.replace("4000", "4001")
    second = key.replace("4000", "4002")
    has_number = {"$trigger": {"query": {"n": {"_eq": "7"}}}}
    is_draft = {"$trigger": {"payload": {"status": {"_eq": "draft"}}}}
    operations = [
        {
            "id": first,
            "key": "concerns",
            "type": "condition",
            "options": {"filter": {"_or": [has_number, is_draft]}},
            "resolve": second,
        },
        {
            "id": second,
            "key": "answer",
            "type": "transform",
            "options": {"json": {"number": "{{$trigger.query.n}}", "now": "{{$NOW}}"}},
        },
    ]
    return {
        "id": key,
        "name": "Two steps",
        "trigger": trigger,
        "options": options,
        "operation": first,
        "operations": operations,
    }


def _compare_calls(stage: BenchEnvironment, token: str, length: Length) -> Iterator[FlowComparison]:
    read = READS[0]
    message = request("GET", f"/flows/trigger/{SYNCHRONOUS}?n=7", token=token)
    with serving("service", stage.folder, {**stage.environ, "WEB_CONCURRENCY": "1"}) as server:
        yield _compare(
            f"webhook of two steps against {read.name}",
            _Side(server.address, lambda _: lambda: message),
            _Side(server.address, lambda seed: read.requests("service", token, seed=seed)),
            target=0.4,
            length=length,
        )


def _compare_writes(service: RunningServer, token: str, length: Length) -> Iterator[FlowComparison]:
    def set_status(status: str) -> None:
        message = request("PATCH", f"/flows/{ACTION}", token=token, payload={"status": status})
        call(service.address, message)

    def create(collection: str, status: str) -> _Side:
        target = f"/items/{collection}"
        case = replace(
            CREATE_ONE, service=lambda number: replace(CREATE_ONE.service(number), target=target)
        )
        return _Side(
            service.address,
            lambda seed: case.requests("service", token, seed=seed),
            lambda: set_status(status),
        )

    yield _compare(
        "create one with an action flow against none",
        create("records", "active"),
        create("records", "inactive"),
        target=0.67,
        length=length,
    )
    yield _compare(
        "create one beside flows of another collection against none",
        create("entries", "active"),
        create("entries", "inactive"),
        target=0.95,
        length=length,
    )


def _compare(
    name: str, flow: _Side, other: _Side, *, target: float, length: Length
) -> FlowComparison:
    """Measure both sides in turns; they take turns in going first."""
    rounds: dict[bool, list[Round]] = {True: [], False: []}
    for number in range(length.rounds + 1):
        for has_flow in (number % 2 > 0, number % 2 == 0):
            side = flow if has_flow else other
            side.prepare()
            measured = run(side.address, side.requests(number), seconds=length.seconds)
            if number:  # the first round warms up
                rounds[has_flow].append(measured)
    ratio = median_ratio(rounds[True], rounds[False])
    return FlowComparison(
        name, median_round(rounds[True]), median_round(rounds[False]), ratio, target
    )


def _call_while_runs_wait(
    service: RunningServer,
    connection: psycopg.Connection[Any],
    token: str,
    length: Length,
) -> Round:
    connection.execute(_QUEUE, (ASYNCHRONOUS, WAITING))
    message = request("GET", f"/flows/trigger/{ASYNCHRONOUS}?n=7", token=token)
    rounds = [
        run(service.address, lambda: message, seconds=length.seconds)
        for _ in range(length.rounds + 1)
    ]
    return median_round(rounds[1:])


def _runs_per_second(stage: BenchEnvironment, connection: psycopg.Connection[Any]) -> float:
    """Return how many runs one worker ends in a second, between the first end and the last."""
    connection.execute(_QUEUE, (ASYNCHRONOUS, RUNS))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with _worker(stage):
        while connection.execute(_COUNT_UNFINISHED).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise TimeoutError("the worker did not end all runs")
            time.sleep(0.1)
    row = connection.execute(_RATE, (RUNS,)).fetchone()
    assert row, "runs were rejected or have failed"
    return float(row[0])


@contextmanager
def _worker(stage: BenchEnvironment) -> Iterator[None]:
    log = stage.folder / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cms", "worker"],
            env={**os.environ, **stage.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
