"""What a run measured: as tables in Markdown for people, as JSON for programs.

The data hold no date and no name of a machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.growth import Growth
from bench.load import CONNECTIONS, Round
from bench.machine import describe_machine
from bench.rounds import Result

_CASE_HEADS = (
    "case",
    "floor/s",
    "p50 ms",
    "p99 ms",
    "service/s",
    "p50 ms",
    "p99 ms",
    "longest ms",
    "ratio",
    "target",
    "",
)


def case_table(results: Iterable[Result]) -> str:
    """Return a line for each case, under the machine that they were measured on."""
    head = (
        f"{describe_machine()}; load {os.getloadavg()[1]:.1f}.\n"
        f"{CONNECTIONS} keep-alive connections; "
        "medians of rounds that floor and service took in turns.\n\n"
    )
    return f"{head}{_table(_CASE_HEADS, map(_case_cells, results))}\n"


def _case_cells(result: Result) -> tuple[str, ...]:
    target = result.case.target
    return (
        result.case.name,
        *_figures(result.floor),
        *_figures(result.service),
        f"{result.service.longest:.1f}",
        f"{result.ratio:.2f}",
        f"{target}",
        _verdict(kept=result.ratio >= target),
    )


def _figures(measured: Round) -> tuple[str, str, str]:
    return f"{measured.rate:,.0f}", f"{measured.p50:.2f}", f"{measured.p99:.2f}"


def growth_table(growth: Growth) -> str:
    """Return a line for each operation, with the reason of what is not flat."""
    sizes = (f"{size:,}" for size in growth.sizes)
    heads = ("ms of an answer; rows in the collection", *sizes, "times", "")
    return _table(heads, _growth_cells(growth))


def _growth_cells(growth: Growth) -> Iterator[tuple[str, ...]]:
    for grown in growth.rows:
        figures = (f"{milliseconds:.2f}" for milliseconds in grown.milliseconds)
        word = grown.reason or f"flat: {_verdict(kept=bool(grown.kept))}"
        yield (grown.name, *figures, f"{grown.times:.1f}", word)


def _verdict(*, kept: bool) -> str:
    return "kept" if kept else "missed"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = "|" + "|".join([":---", *["---:"] * (len(heads) - 1)]) + "|"
    return "\n".join([_row(heads), rule, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    """Return a line with these cells, of which the first is text."""
    first, *figures = cells
    return f"| {first:<40} | " + " | ".join(f"{cell:>10}" for cell in figures) + " |"


def case_data(results: Iterable[Result]) -> dict[str, Any]:
    cases = [
        {
            "name": result.case.name,
            "target": result.case.target,
            "ratio": result.ratio,
            "service": asdict(result.service),
            "floor": asdict(result.floor),
        }
        for result in results
    ]
    return {**_run_data(), "cases": cases}


def growth_data(growth: Growth) -> dict[str, Any]:
    rows = [{**asdict(grown), "times": grown.times, "kept": grown.kept} for grown in growth.rows]
    return {**_run_data(), "sizes": growth.sizes, "operations": rows}


def _run_data() -> dict[str, Any]:
    """Return the machine, and how many processes wanted a core, on average over five minutes."""
    return {"machine": describe_machine(), "load": os.getloadavg()[1]}
