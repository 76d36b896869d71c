"""The common parts of all pictures: themes, sizes, and the form of values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cms.dashboards.definition.panel_types import Panel

NO_DATA = "No data"
MAX_CHARACTERS = 200
"""Characters of one text in a picture; what follows is left out."""

_MAX_NUMBER = 1e100

FONT = "system-ui, sans-serif"
TEXT_SIZE = 14
TITLE_SIZE = 16


class Theme(NamedTuple):
    """The colours of a picture."""

    background: str
    text: str
    faint: str
    accent: str


THEMES: Mapping[str, Theme] = MappingProxyType(
    {
        "light": Theme("#ffffff", "#172940", "#8196b1", "#6644ff"),
        "dark": Theme("#0d1117", "#e6edf3", "#7d8590", "#8f7aff"),
    }
)


class Picture(NamedTuple):
    """How a panel is drawn: sizes in pixels."""

    theme: Theme = THEMES["light"]
    width: int = 640
    height: int = 360


def number_of(value: object) -> float | None:
    """Return the number of a value, None for a value that cannot be drawn.

    An axis is made of differences and quotients, which must be finite and not 0 either.
    """
    try:
        # By its text, which becomes infinity beyond the range of floats; an int would raise
        # OverflowError.
        number = float(str(value))
    except ValueError:
        return None
    if abs(number) < 1 / _MAX_NUMBER:
        return 0.0
    if abs(number) < _MAX_NUMBER:
        return number
    return None


def title_of(panel: Panel) -> str:
    return cut(panel.name or "")


def cut(text: str, characters: int = MAX_CHARACTERS) -> str:
    """Return a text for a picture: of one line, not too long, without what XML cannot hold."""
    # One character more than is shown tells whether the text goes on.
    plain = "".join(each if each.isprintable() else " " for each in text[: characters + 1])
    return plain if len(plain) <= characters else f"{plain[: characters - 1]}…"


def value_text(value: object) -> str:
    """Return how a value is written in a picture."""
    if value is None:
        return "–"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    return str(value)
