"""Both worker classes: the same service and database, one process each, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.cases import Case
from bench.load import Round
from bench.rounds import FLOOR, Length, Tokens, in_turns, median_ratio, median_round
from bench.serving import RunningServer, serving
from bench.stage import BenchEnvironment
from cms.gunicorn_process import WORKERS

TIMES = {"one item by key": 2.5, "25 rows of 4 columns": 2.5, "asset derivative": 2.5}
OTHER_TIMES = 1.5
"""How many times as fast the event worker should be: for these cases, and for all others."""


@dataclass(frozen=True, slots=True)
class WorkerComparison:
    """The medians of a case's rounds with each worker, and of the floor with gthread.

    `ratio` is the median of the event worker's rate over the other's, pair by pair; `floor_ratio`
    is that of gthread over its floor. The floor of the event worker stands beside the cases.
    """

    name: str
    event: Round
    gthread: Round
    floor: Round
    ratio: float
    floor_ratio: float

    @property
    def target(self) -> float:
        return TIMES.get(self.name, OTHER_TIMES)


def measure(
    stage: BenchEnvironment, cases: list[Case], *, tokens: Tokens, length: Length
) -> list[WorkerComparison]:
    """Measure every case with both workers."""
    with both_workers(stage) as services, _serving(stage, "gthread", server="floor") as floor:
        servers = {**services, FLOOR: floor}
        return [_compare_workers(case, servers, tokens, length) for case in cases]


@contextmanager
def both_workers(stage: BenchEnvironment) -> Iterator[dict[str, RunningServer]]:
    """Run a process of the service with each worker."""
    with ExitStack() as stack:
        yield {kind: stack.enter_context(_serving(stage, kind)) for kind in WORKERS}


@contextmanager
def _serving(
    stage: BenchEnvironment, kind: str, *, server: str = "service"
) -> Iterator[RunningServer]:
    folder = stage.folder / f"worker-{kind}"  # for its log
    folder.mkdir(exist_ok=True)
    with serving(
        server, folder, {**stage.environ, "WEB_CONCURRENCY": "1", "WEB_WORKER": kind}
    ) as running:
        yield running


def _compare_workers(
    case: Case, servers: dict[str, RunningServer], tokens: Tokens, length: Length
) -> WorkerComparison:
    rounds = in_turns(case, servers, tokens=tokens, length=length)
    return WorkerComparison(
        case.name,
        median_round(rounds["event"]),
        median_round(rounds["gthread"]),
        median_round(rounds[FLOOR]),
        median_ratio(rounds["event"], rounds["gthread"]),
        median_ratio(rounds["gthread"], rounds[FLOOR]),
    )
