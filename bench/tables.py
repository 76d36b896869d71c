"""Tables in Markdown that also read well in a terminal."""

from __future__ import annotations


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
