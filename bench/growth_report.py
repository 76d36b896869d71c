"""What was measured of growth: as a table for people, as data for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bench.growth import Growth
from bench.machine import describe_machine
from bench.tables import row, rule, verdict


def growth_lines(growth: Growth) -> Iterator[str]:
    """Yield a line for each operation, with the reason of what is not flat."""
    yield row(
        ("ms of an answer; rows in the collection", *(f"{n:,}" for n in growth.sizes), "times", "")
    )
    yield rule(len(growth.sizes) + 3)
    for grown in growth.rows:
        figures = (f"{milliseconds:.2f}" for milliseconds in grown.milliseconds)
        word = grown.reason or f"flat: {verdict(kept=grown.kept)}"
        yield row((grown.name, *figures, f"{grown.times:.1f}", word))


def growth_table(growth: Growth) -> str:
    """Return what was measured of growth, alone."""
    return "\n".join(growth_lines(growth))


def growth_data(growth: Growth) -> dict[str, Any]:
    """Return the growth as data, with the machine of which it is."""
    rows = [{**asdict(grown), "times": grown.times, "kept": grown.kept} for grown in growth.rows]
    return {
        "machine": describe_machine(),
        "load": os.getloadavg()[1],
        "sizes": growth.sizes,
        "operations": rows,
    }
