"""Panels of numbers, rows and texts as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from xml.etree import ElementTree

from cms.dashboards.definition.panel_queries import display_text, value_at
from cms.dashboards.definition.panel_types import Data, Panel
from cms.dashboards.pictures import (
    FONT,
    NO_DATA,
    TEXT_SIZE,
    TITLE_SIZE,
    Picture,
    cut,
    number_of,
    title_of,
    value_text,
)

MAX_TABLE_COLUMNS = 12

_MARGIN = 16
_LINE_HEIGHT = 24
_CHARACTER_WIDTH = 0.55
"""Of the size of a font: a guess, since only the program that shows the picture knows the font."""
_MAX_METRIC_SIZE = 72.0


class _TextStyle(NamedTuple):
    """Size in pixels, colour, and whether `x` is the start or the middle of the text."""

    size: float
    color: str
    anchor: str = "start"


def draw_metric(panel: Panel, data: Data, picture: Picture) -> bytes:
    options = panel.options
    value = data["value"]
    text = NO_DATA if value is None else _metric_text(value, options)
    color = picture.theme.faint if value is None else picture.theme.accent
    width = len(text) * _CHARACTER_WIDTH
    # As large as the width allows: `width` is in units of the font's size.
    size = min(_MAX_METRIC_SIZE, 0.9 * picture.width / max(width, 1))
    svg = _svg(panel, picture)
    style = _TextStyle(size, color, "middle")
    # In SVG, y is the base line. Digits are in the middle of the picture if their base line is a
    # third of their size below it.
    _add_text(svg, text, style, x=picture.width / 2, y=picture.height / 2 + size / 3)
    return _bytes(svg)


def _metric_text(value: object, options: Mapping[str, Any]) -> str:
    """Return a value with the decimals, the prefix and the suffix of its panel."""
    text = value_text(value)
    decimals = options.get("decimals")
    if decimals is not None and number_of(value) is not None:
        # As Decimal: a float would show other digits than were stored.
        text = f"{Decimal(str(value)):,.{int(decimals)}f}"
    return f"{options.get('prefix') or ''}{text}{options.get('suffix') or ''}"


def draw_list(panel: Panel, data: Data, picture: Picture) -> bytes:
    items: Any = data["items"]
    template = panel.options.get("displayTemplate")
    if template:
        visible_items = items[: _row_count(picture)]
        lines = [display_text(template, item, as_text=_short_text) for item in visible_items]
        return _draw_lines(panel, lines, picture)
    columns = list(items[0]) if items else []
    return _draw_rows(panel, columns, items, picture)


def draw_table(panel: Panel, data: Data, picture: Picture) -> bytes:
    items: Any = data["items"]
    names = panel.options.get("fields") or ["*"]
    columns = _columns(names, items[0]) if items else []
    return _draw_rows(panel, columns, items, picture)


def _columns(names: Iterable[str], item: Mapping[str, Any]) -> list[str]:
    """Return the columns of a table: a wildcard stands for the fields of the first item."""
    columns: list[str] = []
    for name in names:
        path, wildcard, _ = name.partition("*")
        # Without its dot: `author.*` stands for the fields of `author`.
        owner = path.removesuffix(".")
        inner = value_at(item, owner) if path else item
        if wildcard and isinstance(inner, Mapping):
            columns += [f"{path}{key}" for key in inner]
        else:
            # A list of items, or none at all, has no columns of its own.
            columns.append(owner)
    return list(dict.fromkeys(columns))


def draw_text(panel: Panel, data: Data, picture: Picture) -> bytes:
    lines = str(data["text"]).splitlines()
    return _draw_lines(panel, lines[: _row_count(picture)], picture)


def _row_count(picture: Picture) -> int:
    """Return how many rows there is room for, at most."""
    return picture.height // _LINE_HEIGHT


def _short_text(value: object) -> str:
    return cut(value_text(value))


def _draw_lines(panel: Panel, lines: Iterable[str], picture: Picture) -> bytes:
    rows = [{"text": line} for line in lines]
    return _draw_rows(panel, ["text"], rows, picture, has_head=False)


def _draw_rows(
    panel: Panel,
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    picture: Picture,
    *,
    has_head: bool = True,
) -> bytes:
    """Draw rows below each other, as many as there is room for."""
    svg = _svg(panel, picture)
    if not rows:
        style = _TextStyle(TITLE_SIZE, picture.theme.faint, "middle")
        _add_text(svg, NO_DATA, style, x=picture.width / 2, y=picture.height / 2)
        return _bytes(svg)
    names = list(names)[:MAX_TABLE_COLUMNS]
    head = [names] if has_head else []
    cells = [
        [value_text(value_at(row, name)) for name in names] for row in rows[: _row_count(picture)]
    ]
    table = [*head, *cells]
    top = 2 if title_of(panel) else 1
    _add_table(svg, table, picture, top=top, has_head=has_head)
    return _bytes(svg)


def _add_table(
    svg: ElementTree.Element,
    table: Sequence[Sequence[str]],
    picture: Picture,
    *,
    top: int,
    has_head: bool,
) -> None:
    """Add rows of cells below each other, the first one at the line `top`."""
    column_count = max(map(len, table), default=0)
    column_width = (picture.width - 2 * _MARGIN) / max(column_count, 1)
    # One character of a column stays free, so that texts beside each other do not touch.
    characters = max(int(column_width / TEXT_SIZE / _CHARACTER_WIDTH) - 1, 1)
    y = _MARGIN + top * _LINE_HEIGHT
    for number, cells in enumerate(table):
        color = picture.theme.faint if has_head and number == 0 else picture.theme.text
        for column, cell in enumerate(cells):
            x = _MARGIN + column * column_width
            _add_text(svg, cut(cell, characters), _TextStyle(TEXT_SIZE, color), x=x, y=y)
        y += _LINE_HEIGHT
        # `_row_count` does not know of the title and the head.
        if y > picture.height - _MARGIN:
            break


def _svg(panel: Panel, picture: Picture) -> ElementTree.Element:
    """Return an empty picture with the title of the panel."""
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {picture.width} {picture.height}",
            "font-family": FONT,
        },
    )
    background = {"width": "100%", "height": "100%", "fill": picture.theme.background}
    ElementTree.SubElement(svg, "rect", background)
    title = title_of(panel)
    if title:
        ElementTree.SubElement(svg, "title").text = title
        style = _TextStyle(TITLE_SIZE, picture.theme.text, "middle")
        _add_text(svg, title, style, x=picture.width / 2, y=_MARGIN + _LINE_HEIGHT / 2)
    return svg


def _add_text(
    svg: ElementTree.Element, text: str, style: _TextStyle, *, x: float, y: float
) -> None:
    attributes = {
        "x": f"{x:.1f}",
        "y": f"{y:.1f}",
        "font-size": f"{style.size:.1f}",
        "fill": style.color,
        "text-anchor": style.anchor,
    }
    ElementTree.SubElement(svg, "text", attributes).text = cut(text)


def _bytes(svg: ElementTree.Element) -> bytes:
    svg_bytes: bytes = ElementTree.tostring(svg, encoding="utf-8", xml_declaration=True)
    return svg_bytes
