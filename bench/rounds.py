"""Service and floor in turns, in short rounds, so that other load of the machine affects both."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import orjson

from bench.cases import Case
from bench.load import Round, run
from bench.serving import RunningServer
from bench.wire import exchange


@dataclass(frozen=True, slots=True)
class Length:
    """How long a case is measured: rounds of so many seconds on each side."""

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Result:
    """The medians of a case's rounds.

    `ratio` is the median of the service's rate over the floor's, pair by pair.
    """

    case: Case
    service: Round
    floor: Round
    ratio: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """The access tokens of both callers."""

    admin: str
    member: str


class AnswersDiffer(Exception):
    """Service and floor did not answer the same."""


def compare(
    case: Case, service: RunningServer, floor: RunningServer, *, tokens: Tokens, length: Length
) -> Result:
    """Measure a case on both sides in turns."""
    token = tokens.member if case.member else tokens.admin
    servers = {"service": service, "floor": floor}
    # Answers to writes hold keys, of which each side has its own.
    if not case.writes:
        _check_same(case, servers, token)
    # Unmeasured, so that connections are open, plans are prepared and pages are in memory.
    for kind, running in servers.items():
        run(running.address, case.requests(kind, token, seed=0), seconds=length.seconds / 2)
    pairs = [_pair(case, servers, token, length, number=number) for number in range(length.rounds)]
    service_rounds, floor_rounds = ([pair[kind] for pair in pairs] for kind in servers)
    ratio = median(pair["service"].rate / pair["floor"].rate for pair in pairs)
    return Result(case, median_round(service_rounds), median_round(floor_rounds), ratio)


def median_round(rounds: list[Round]) -> Round:
    """Return the median of each figure, and the longest answer of all rounds."""
    return Round(
        median(measured.rate for measured in rounds),
        median(measured.p50 for measured in rounds),
        median(measured.p99 for measured in rounds),
        longest=max(measured.longest for measured in rounds),
    )


def _pair(
    case: Case, servers: dict[str, RunningServer], token: str, length: Length, *, number: int
) -> dict[str, Round]:
    """Measure each side once; the sides take turns in going first."""
    order = list(servers) if number % 2 else list(reversed(servers))
    return {
        kind: run(
            servers[kind].address, case.requests(kind, token, seed=number), seconds=length.seconds
        )
        for kind in order
    }


def _check_same(case: Case, servers: dict[str, RunningServer], token: str) -> None:
    """Raise `AnswersDiffer` unless both sides answer the same: else a ratio says nothing."""
    requests = {kind: case.requests(kind, token, seed=99) for kind in servers}
    for _ in range(3):
        answers = [_content(exchange(servers[kind].address, requests[kind]())) for kind in servers]
        if answers[0] != answers[1]:
            raise AnswersDiffer(
                f"{case.name}: {str(answers[0])[:500]} against {str(answers[1])[:500]}"
            )


def _content(answer: bytes) -> object:
    return orjson.loads(answer)["data"] if answer.startswith(b"{") else answer
