"""Panels as they come from elsewhere: incomplete ones, and line charts of Directus."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.things import Table, field, table

MISSING = [
    ("metric", None, "collection: it is needed; function: it is needed"),
    ("metric", {"function": "first"}, "field: it is needed"),
    ("list", {"collection": ""}, "collection: it is a text"),
    ("line-chart", {"yAxis": "price"}, "xAxis: it is needed"),
]


@pytest.fixture
def orders(admin: Client) -> Table:
    fields = [("name", "string"), ("price", "integer"), ("year", "integer")]
    orders = table(admin, *(field(name, kind) for name, kind in fields))
    rows = [("a", 10, 2023), ("a", 30, 2024), ("b", 5, 2024), ("a", 20, 2024)]
    orders.add(*({"name": name, "price": price, "year": year} for name, price, year in rows))
    return orders


@pytest.fixture
def dashboard(admin: Client) -> str:
    return str(admin.post("/dashboards", {"name": "Sales"}).data["id"])


def points(admin: Client, dashboard: str, options: dict[str, Any]) -> Any:
    body = {"dashboard": dashboard, "type": "line-chart", "options": options}
    key = admin.post("/panels", body).data["id"]
    assert admin.get(f"/panels/{key}/data", format="svg").status == 200
    return admin.get(f"/panels/{key}/data").data["points"]


@pytest.mark.parametrize(("type", "options", "missing"), MISSING)
def test_an_incomplete_panel_is_saved_and_its_data_tell_what_is_missing(
    admin: Client, dashboard: str, type: str, options: dict[str, object] | None, missing: str
) -> None:
    if options is not None:
        options = {"collection": "system_users", **options}
    body = {"dashboard": dashboard, "type": type, "options": options}
    key = admin.post("/panels", body).data["id"]
    answer = admin.get(f"/panels/{key}/data")
    assert (answer.status, missing in answer.text) == (422, True), answer.text
    (error,) = admin.get(f"/dashboards/{dashboard}/data").data[key]["errors"]
    assert error["extensions"]["code"] == "UNPROCESSABLE_CONTENT"


def test_a_line_chart_is_computed_as_directus_writes_it(
    admin: Client, orders: Table, dashboard: str
) -> None:
    options = {"collection": orders.name, "xAxis": "name", "yAxis": "price", "aggregation": "max"}
    tops = [{"x": "a", "y": 30}, {"x": "b", "y": 5}]
    assert points(admin, dashboard, options) == tops
    by_function = {**options, "aggregation": None, "function": "max"}
    assert points(admin, dashboard, by_function) == tops
    assert points(admin, dashboard, {**options, "grouping": "year"}) == [
        {"x": "a", "group": 2023, "y": 10},
        {"x": "a", "group": 2024, "y": 30},
        {"x": "b", "group": 2024, "y": 5},
    ]
    wrong = {"type": "line-chart", "options": {**options, "aggregation": "none"}}
    assert admin.post("/panels", {"dashboard": dashboard, **wrong}).status == 422
