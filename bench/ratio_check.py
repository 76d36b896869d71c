"""`python -m bench --check`: the ratios of now beside those that were recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MIN_PART = 0.85
"""What part of its recorded ratio a case must reach."""

REPETITIONS = 2
"""How often a case that falls short is measured again before it has failed."""


@dataclass(frozen=True, slots=True)
class ComparedRatio:
    """The ratio of a case to its floor as it was recorded, and as it is now."""

    name: str
    recorded: float
    measured: float

    @property
    def part(self) -> float:
        return self.measured / self.recorded

    @property
    def is_kept(self) -> bool:
        return self.part >= MIN_PART


def recorded_ratios(results: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratio of each case from the data of a run (bench/results/latest.json)."""
    return {case["name"]: float(case["ratio"]) for case in results["cases"]}


def compare_ratios(
    recorded: Mapping[str, float], names: Iterable[str], measure: Callable[[str], float]
) -> list[ComparedRatio]:
    """Measure cases by their names and compare; those that were never recorded are left out.

    Machines are noisy: a case that falls short is measured again, and its best ratio counts.
    """
    compared = []
    for name in names:
        if name not in recorded:
            continue
        best = ComparedRatio(name, recorded[name], measure(name))
        for _ in range(REPETITIONS):
            if best.is_kept:
                break
            again = ComparedRatio(name, recorded[name], measure(name))
            best = max(best, again, key=lambda one: one.measured)
        compared.append(best)
    return compared


def lines(compared: Iterable[ComparedRatio]) -> list[str]:
    """Return a line for each case, and which of them have failed."""
    compared = list(compared)
    text = [
        f"{one.name}: {one.measured:.2f}, recorded {one.recorded:.2f}: {one.part:.2f} of it"
        f"{'' if one.is_kept else f', which is below {MIN_PART}'}"
        for one in compared
    ]
    failed = [one.name for one in compared if not one.is_kept]
    if failed:
        text.append(f"Slower than recorded: {'; '.join(failed)}.")
    return text
