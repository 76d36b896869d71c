"""The picture: for each case the service's rate as a part of its floor's, and the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bench.rounds import Result

WIDTH = 760
LEFT = 250
BAR = 20
STEP = 34
TOP = 48
RATIO_WIDTH = 400  # what a ratio of 1 measures
MET_COLOUR = "#3a7d44"
MISSED_COLOUR = "#c8553d"
TRACK_COLOUR = "#e6e6e6"
TEXT_COLOUR = "#222222"


def chart(results: Sequence[Result]) -> str:
    """Return an SVG with a bar for each case."""
    height = TOP + STEP * len(results) + 24
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="13" fill="{TEXT_COLOUR}" role="img">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            _text(16, 26, "Requests a second, as a part of the floor's (the mark is the target)"),
            *(
                element
                for index, result in enumerate(results)
                for element in _bar(result, TOP + index * STEP)
            ),
            "</svg>",
            "",
        ]
    )


def _bar(result: Result, y: int) -> Iterator[str]:
    target_x = LEFT + RATIO_WIDTH * result.case.target
    color = MET_COLOUR if result.ratio >= result.case.target else MISSED_COLOUR
    label = f"{result.ratio:.2f} ({result.service.rate:,.0f} of {result.floor.rate:,.0f})"
    yield _text(16, y + 15, result.case.name)
    yield _box(LEFT, y, RATIO_WIDTH, BAR, color=TRACK_COLOUR)
    yield _box(LEFT, y, min(RATIO_WIDTH * result.ratio, WIDTH - LEFT), BAR, color=color)
    yield _box(target_x - 1, y - 3, 2, BAR + 6, color=TEXT_COLOUR)
    # White on the bar, unless the label reaches beyond it.
    label_color = "#ffffff" if result.ratio > 0.45 else TEXT_COLOUR
    yield _text(LEFT + 6, y + 15, label, color=label_color)


def _text(x: float, y: float, text: str, *, color: str = TEXT_COLOUR) -> str:
    return f'<text x="{x}" y="{y}" fill="{color}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, *, color: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'
    )
