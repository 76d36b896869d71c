"""Panels show the same after a field that they name was renamed."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.things import field, table

pytestmark = pytest.mark.release


@pytest.mark.release
def test_panels_follow_a_renamed_field(admin: Client) -> None:
    dashboard = admin.post("/dashboards", {"name": "Sales"}).data["id"]
    sellers = table(admin, field("title", "string"))
    fields = [("price", "integer"), ("sold", "timestamp"), ("seller", "integer")]
    sales = table(admin, *(field(name, kind) for name, kind in fields))
    relation = {"collection": sales.name, "field": "seller", "related_collection": sellers.name}
    assert admin.post("/relations", relation).status == 200
    sales.add({"price": 3, "sold": "2024-12-30T10:15:20Z", "seller": {"title": "Ann"}})
    of_ann = {"seller": {"title": {"_eq": "Ann"}}, "price": {"_gt": 1}}
    panels: dict[str, list[dict[str, object]]] = {
        "metric": [
            {"function": "sum", "field": "price", "filter": of_ann},
            {"function": "last", "field": "seller.title", "sortField": "sold"},
        ],
        "list": [{"displayTemplate": "{{seller.title}} {{price}}", "sortField": "price"}],
        "table": [{"fields": ["seller.*", "price", "year(sold)"]}],
        "time-series": [{"dateField": "sold", "valueField": "price", "function": "max"}],
        "bar-chart": [{"xAxis": "year(sold)", "yAxis": "price", "function": "sum"}],
    }
    for type, of_type in panels.items():
        for options in of_type:
            payload = {"type": type, "options": {"collection": sales.name, **options}}
            assert admin.post("/panels", {"dashboard": dashboard, **payload}).status == 200
    path = f"/dashboards/{dashboard}/data"
    before = admin.get(path).text
    assert '"errors"' not in before
    for owner, name, new_name in (
        (sales, "price", "amount"),
        (sales, "sold", "closed"),
        (sellers, "title", "label"),
    ):
        assert admin.patch(f"/fields/{owner.name}/{name}", {"field": new_name}).status == 200
        before = before.replace(f'"{name}', f'"{new_name}')
    assert admin.get(path).text == before
