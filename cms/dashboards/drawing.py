"""Panels drawn as SVG, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cms.dashboards.charts import draw_chart
from cms.dashboards.panels import Data, Panel
from cms.dashboards.pictures import Picture
from cms.dashboards.text_pictures import draw_list, draw_metric, draw_table, draw_text

_PAINTERS: Mapping[str, Callable[[Panel, Data, Picture], bytes]] = MappingProxyType(
    {
        "metric": draw_metric,
        "list": draw_list,
        "table": draw_table,
        "time-series": draw_chart,
        "line-chart": draw_chart,
        "bar-chart": draw_chart,
        "label": draw_text,
        "markdown": draw_text,
    }
)


def draw(panel: Panel, data: Data, picture: Picture) -> bytes:
    """Return the SVG of a panel with its data."""
    # The colour of the panel takes the place of the theme's.
    if panel.color:
        picture = picture._replace(theme=picture.theme._replace(accent=panel.color))
    return _PAINTERS[panel.type](panel, data, picture)
