"""The pictures of growth: milliseconds of each operation over the rows of its collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from types import MappingProxyType

from bench.growth import Growth, GrowthRow

WIDTH = 760
HEIGHT = 360
LEFT = 90
RIGHT = 500
TOP = 48
BOTTOM = 310
LABEL_STEP = 18.0
TEXT_COLOUR = "#222222"
GRID_COLOUR = "#e6e6e6"
COLOURS = ("#3a7d44", "#c8553d", "#2f6690", "#8e5572")

PICTURES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "growth-reads": (
            "Reads by key and by index",
            (
                "one item",
                "a page with rule, filter and sort",
                "the last page, by cursor",
                "search by its index",
            ),
        ),
        "growth-linear": (
            "Reads that look at many rows",
            ("the last page, by number", "group and count", "the last page, by cursor"),
        ),
        "growth-writes": ("Writes", ("create one", "update one", "import 1,000 rows")),
    }
)
"""For each file its title and the operations that it shows."""


def charts(growth: Growth) -> dict[str, str]:
    """Return the SVG of each picture by the name of its file."""
    rows = {row.name: row for row in growth.rows}
    return {
        name: _chart(title, growth.sizes, [rows[operation] for operation in operations])
        for name, (title, operations) in PICTURES.items()
    }


def _chart(title: str, sizes: Sequence[int], rows: Sequence[GrowthRow]) -> str:
    every_time = [time for row in rows for time in row.milliseconds]
    decades = range(floor(log10(min(every_time))), ceil(log10(max(every_time))) + 1)
    scale = _Scale(sizes, decades)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="13" fill="{TEXT_COLOUR}" role="img">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            _text(16, 26, f"{title}: milliseconds over rows, both axes by powers of ten"),
            *_grid(sizes, decades, scale),
            *(element for index, row in enumerate(rows) for element in _line(row, index, scale)),
            *_labels(rows, scale),
            "</svg>",
            "",
        ]
    )


class _Scale:
    """Where a size and a time stand in the picture, each by its logarithm."""

    def __init__(self, sizes: Sequence[int], decades: range) -> None:
        self._sizes = [log10(size) for size in sizes]
        self._decades = decades

    def x(self, index: int) -> float:
        first = self._sizes[0]
        return LEFT + (RIGHT - LEFT) * (self._sizes[index] - first) / (self._sizes[-1] - first)

    def y(self, milliseconds: float) -> float:
        first = self._decades[0]
        part = (log10(milliseconds) - first) / (self._decades[-1] - first)
        return BOTTOM - (BOTTOM - TOP) * part


def _grid(sizes: Sequence[int], decades: range, scale: _Scale) -> Iterator[str]:
    for decade in decades:
        y = scale.y(10.0**decade)
        yield _stroke(LEFT, y, RIGHT, y, color=GRID_COLOUR)
        yield _text(LEFT - 8, y + 4, f"{10.0**decade:,g} ms", anchor="end")
    for index, size in enumerate(sizes):
        x = scale.x(index)
        yield _stroke(x, TOP, x, BOTTOM, color=GRID_COLOUR)
        yield _text(x, BOTTOM + 20, f"{size:,}", anchor="middle")


def _line(row: GrowthRow, index: int, scale: _Scale) -> Iterator[str]:
    points = [(scale.x(number), scale.y(time)) for number, time in enumerate(row.milliseconds)]
    color = COLOURS[index]
    for (x, y), (next_x, next_y) in pairwise(points):
        yield _stroke(x, y, next_x, next_y, color=color, width=2)
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'


def _labels(rows: Sequence[GrowthRow], scale: _Scale) -> Iterator[str]:
    """Yield the name of each line beside its end; those that are close make room for each other."""
    ends = sorted((scale.y(row.milliseconds[-1]), index) for index, row in enumerate(rows))
    above = float("-inf")
    for y, index in ends:
        above = max(y + 4, above + LABEL_STEP)
        yield _text(RIGHT + 12, above, rows[index].name, color=COLOURS[index])


def _text(x: float, y: float, text: str, *, color: str = TEXT_COLOUR, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _stroke(x: float, y: float, to_x: float, to_y: float, *, color: str, width: float = 1) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}" '
        f'stroke-width="{width}"/>'
    )
