"""The service with its rate limits and without, beside one floor: what counting requests costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.cases import Case
from bench.load import Round
from bench.rounds import FLOOR, Length, Tokens, in_turns, median_ratio, median_round
from bench.serving import RunningServer, serving
from bench.stage import BenchEnvironment
from bench.tables import row, rule, verdict

TARGET = 0.9
"""What is left of the rate of short requests when they are counted."""


@dataclass(frozen=True, slots=True)
class LimitComparison:
    """The medians of a case's rounds with limits and without.

    Each ratio is the median of the rate over the floor's, pair by pair; `cost` is that of the rate
    with limits over the one without.
    """

    name: str
    limited: Round
    unlimited: Round
    limited_ratio: float
    unlimited_ratio: float
    cost: float


def measure(
    stage: BenchEnvironment,
    floor: RunningServer,
    cases: list[Case],
    *,
    tokens: Tokens,
    length: Length,
) -> list[LimitComparison]:
    """Measure cases with limits, without, and on the floor, in turns."""
    # Both have just begun: a service that has worked for minutes is not like one that is new.
    with _serving(stage, limits="true") as limited, _serving(stage, limits="false") as unlimited:
        running = {"limited": limited, "unlimited": unlimited, FLOOR: floor}
        return [_compare(case, running, tokens, length) for case in cases]


@contextmanager
def _serving(stage: BenchEnvironment, *, limits: str) -> Iterator[RunningServer]:
    folder = stage.folder / f"limits-{limits}"  # for its log
    folder.mkdir(exist_ok=True)
    with serving("service", folder, {**stage.environ, "RATE_LIMITER_ENABLED": limits}) as running:
        yield running


def _compare(
    case: Case, servers: dict[str, RunningServer], tokens: Tokens, length: Length
) -> LimitComparison:
    rounds = in_turns(case, servers, tokens=tokens, length=length)
    return LimitComparison(
        case.name,
        median_round(rounds["limited"]),
        median_round(rounds["unlimited"]),
        median_ratio(rounds["limited"], rounds[FLOOR]),
        median_ratio(rounds["unlimited"], rounds[FLOOR]),
        median_ratio(rounds["limited"], rounds["unlimited"]),
    )


def limit_lines(comparisons: list[LimitComparison]) -> Iterator[str]:
    """Yield the lines of a table of comparisons."""
    yield row(
        (
            "rate limits",
            "with/s",
            "of floor",
            "without/s",
            "of floor",
            "with / without",
            "target",
            "",
        )
    )
    yield rule(8)
    for compared in comparisons:
        figures = (
            f"{compared.limited.rate:,.0f}",
            f"{compared.limited_ratio:.2f}",
            f"{compared.unlimited.rate:,.0f}",
            f"{compared.unlimited_ratio:.2f}",
            f"{compared.cost:.2f}",
            f"{TARGET}",
        )
        yield row((compared.name, *figures, verdict(kept=compared.cost >= TARGET)))
