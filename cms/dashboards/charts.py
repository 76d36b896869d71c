"""Charts of panels as SVG, with titles, axes and an empty state."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from cms.dashboards.definition.panel_queries import chart_function
from cms.dashboards.definition.panel_types import Data, Panel
from cms.dashboards.pictures import (
    FONT,
    NO_DATA,
    TITLE_SIZE,
    Picture,
    Theme,
    cut,
    number_of,
    title_of,
    value_text,
)

_COMMENT_OR_SCRIPT = re.compile(rb"<!--.*?-->|<script.*?</script>", re.DOTALL)
"""Parts that pygal adds to a chart: its settings, and the day, which would change the picture."""
_MAX_LABELS = 12
"""Labels that fit below an axis."""
_MAX_DOTS = 60
_DATE_FORMATS = {
    "year": "%Y",
    "month": "%Y-%m",
    "week": "%Y-%m-%d",
    "day": "%Y-%m-%d",
    "second": "%Y-%m-%d %H:%M:%S",
}
"""How dates are written, by the precision of a chart; hours have minutes."""
_MAX_LABEL_CHARACTERS = 60
"""Characters of labels that fit beside each other."""


def draw_chart(panel: Panel, data: Data, picture: Picture) -> bytes:
    points = list(_labelled_values(panel, data))
    labels = [label for label, _ in points]
    kind = _pygal().Bar if panel.type == "bar-chart" else _pygal().Line
    chart = kind(**_chart_settings(panel, picture, labels))
    # pygal would give each picture another id.
    chart.uuid = panel.id
    chart.x_labels = [cut(label) for label in labels]
    chart.add(_axis_name(panel), [number_of(value) for _, value in points])
    svg: bytes = chart.render()
    return _COMMENT_OR_SCRIPT.sub(b"", svg)


def _labelled_values(panel: Panel, data: Data) -> Iterator[tuple[str, object]]:
    """Yield the label and the value of each point of a chart."""
    points: Any = data["points"]
    if panel.type == "time-series":
        # {"date": "2024-01-01T00:00:00Z", "value": 3}
        for point in points:
            yield _date_text(point["date"], panel), point["value"]
    else:
        # {"x": "red", "y": 3}, and maybe {"group": "large"}
        for point in points:
            label = value_text(point["x"])
            if "group" in point:
                label += f", {value_text(point['group'])}"
            yield label, point["y"]


@cache
def _pygal() -> Any:
    """Import pygal with the first chart, since that takes longer than everything else at start.

    It also adds a finder for its maps to `sys.meta_path`, of a kind that Python warns of at each
    further import. Nothing here needs the maps, so the finder is removed.
    """
    import pygal.style

    for finder in list(sys.meta_path):
        if type(finder).__name__ == "PluginImportFixer":
            sys.meta_path.remove(finder)
    return pygal


def _chart_settings(panel: Panel, picture: Picture, labels: Sequence[str]) -> dict[str, object]:
    return {
        "width": picture.width,
        "height": picture.height,
        "title": title_of(panel),
        "x_title": cut(str(panel.options.get("xAxis") or panel.options.get("dateField") or "")),
        "y_title": _axis_name(panel),
        "no_data_text": NO_DATA,
        "show_legend": False,
        # Without a script: the picture is for pages that allow none.
        "js": (),
        "x_label_rotation": _label_rotation(labels),
        "show_minor_x_labels": len(labels) <= _MAX_LABELS,
        # Of many labels, this many are shown, at even distances.
        "x_labels_major_count": min(len(labels), _MAX_LABELS) or None,
        "truncate_label": 16,
        # Ten significant digits, with commas between the thousands.
        "value_formatter": "{:,.10g}".format,
        # The axis begins at 0: cut off, small differences would look large.
        "include_x_axis": True,
        "show_dots": len(labels) <= _MAX_DOTS,
        "style": _chart_style(picture.theme),
    }


def _label_rotation(labels: Sequence[str]) -> int:
    """Return by how many degrees labels are turned: long ones would overlap beside each other."""
    return 30 if sum(map(len, labels)) > _MAX_LABEL_CHARACTERS else 0


def _chart_style(theme: Theme) -> object:
    return _pygal().style.Style(
        background=theme.background,
        plot_background=theme.background,
        foreground=theme.text,
        foreground_strong=theme.text,
        foreground_subtle=theme.faint,
        guide_stroke_color=theme.faint,
        guide_stroke_dasharray="1,5",
        major_guide_stroke_color=theme.faint,
        major_guide_stroke_dasharray="1,5",
        opacity="1",
        colors=(theme.accent,),
        font_family=FONT,
        title_font_size=TITLE_SIZE,
        label_font_size=12,
        major_label_font_size=12,
        no_data_font_size=TITLE_SIZE,
    )


def _axis_name(panel: Panel) -> str:
    options = panel.options
    field = options.get("valueField") or options.get("yAxis")
    function = chart_function(options)
    return cut(f"{function} of {field}" if field else function)


def _date_text(moment: str, panel: Panel) -> str:
    """Return a date as long as its precision needs."""
    date_format = _DATE_FORMATS.get(panel.options.get("precision") or "day", "%Y-%m-%d %H:%M")
    return datetime.fromisoformat(moment).strftime(date_format)
