"""Tables in Markdown that also read well in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_WORKER = 114.0
"""MiB that a worker may have: 120 MB, in decimal as documents say it."""


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise and what was measured; `kept` is None where nothing was promised."""

    name: str
    target: str
    measured: str
    kept: bool | None


def verdict(*, kept: bool | None) -> str:
    """Return the word for a promise that was kept or missed, none where nothing was promised."""
    if kept is None:
        return ""
    return "kept" if kept else "missed"


def row(cells: tuple[str, ...]) -> str:
    """Return a line with these cells, of which the first is text."""
    first, *figures = cells
    return f"| {first:<72} | " + " | ".join(f"{cell:>10}" for cell in figures) + " |"


def rule(columns: int) -> str:
    """Return the line below the heads."""
    return "|" + "|".join([":---", *["---:"] * (columns - 1)]) + "|"


def promise_table(promises: Iterable[Promise]) -> Iterator[str]:
    """Yield the lines of a table of promises."""
    yield row(("what", "target", "measured", ""))
    yield rule(4)
    for line in promises:
        yield row((line.name, line.target, line.measured, verdict(kept=line.kept)))
