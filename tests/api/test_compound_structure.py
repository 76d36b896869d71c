"""The structure of tables with keys and foreign keys of several columns: told, set, compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client import Client
from tests.shop import make_shop
from tests.things import Stage

Json = dict[str, Any]

PARCELS = """
CREATE TABLE parcels (
    id integer PRIMARY KEY, order_items text,
    a_order integer, a_line integer, b_order integer, b_line integer, c_order integer,
    c_line integer,
    CONSTRAINT second FOREIGN KEY (a_order, a_line) REFERENCES order_items,
    CONSTRAINT first FOREIGN KEY (b_line, b_order) REFERENCES order_items (line, order_id),
    CONSTRAINT third FOREIGN KEY (c_order, c_line) REFERENCES order_items
);
INSERT INTO parcels VALUES (1, 'a column', 17, 1, 17, 2, NULL, 3);
"""


@pytest.fixture(scope="module", autouse=True)
def tables(stage: Stage) -> None:
    make_shop(stage)


@pytest.fixture
def api(stage: Stage) -> Client:
    return stage.admin


@pytest.fixture
def parcels(stage: Stage) -> Iterator[None]:
    stage.execute(
        "INSERT INTO orders (id) VALUES (17); INSERT INTO order_items VALUES (17, 1), (17, 2)"
    )
    stage.execute(PARCELS)
    yield
    stage.execute("DROP TABLE parcels; TRUNCATE orders CASCADE")


def references(api: Client) -> dict[str, list[str]]:
    """Return the columns of the fields of foreign keys of several columns."""
    fields = api.get("/fields/parcels").data
    return {one["field"]: one["meta"]["columns"] for one in fields if one["type"] == "alias"}


THREE = {
    "order_items_2": ["b_order", "b_line"],
    "order_items_3": ["a_order", "a_line"],
    "order_items_4": ["c_order", "c_line"],
}


@pytest.mark.usefixtures("parcels")
def test_several_are_numbered_in_the_order_of_their_constraints(api: Client) -> None:
    assert references(api) == THREE
    (item,) = api.get("/items/parcels").data
    assert [item[name] for name in THREE] == [[17, 2], [17, 1], None]


@pytest.mark.usefixtures("parcels")
def test_another_action_leaves_each_field_its_columns(api: Client) -> None:
    for action in ("CASCADE", "SET NULL"):
        body = {"schema": {"on_delete": action}}
        schema = api.patch("/relations/parcels/order_items_2", body).data["schema"]
        assert (schema["constraint_name"], schema["on_delete"]) == ("first", action)
        assert references(api) == THREE


@pytest.mark.usefixtures("parcels")
def test_a_list_at_the_other_side_is_named(api: Client) -> None:
    body = {"meta": {"one_field": "parcels"}}
    assert api.patch("/relations/parcels/order_items_3", body).status == 200
    assert api.get("/items/order_items/17,1?fields=parcels").data == {"parcels": [1]}
    assert api.delete("/relations/parcels/order_items_3").status == 204
    assert api.get("/items/order_items/17,1?fields=parcels").status == 400


def test_settings_of_such_a_field_are_kept_and_its_record_can_be_sent_back(api: Client) -> None:
    path = "/fields/shipments/order_items"
    changed = api.patch(path, {"meta": {"note": "what is sent", "width": "half"}}).data
    assert (changed["meta"]["note"], changed["meta"]["width"]) == ("what is sent", "half")
    assert api.patch(path, changed).data == changed == api.get(path).data


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"field": "renamed"}, "field"),
        ({"meta": {"special": ["o2m"]}}, "meta.special"),
        ({"meta": {"special": None}}, "meta.special"),
        ({"schema": {"is_nullable": False}}, "schema"),
        ({"type": "integer"}, "type"),
    ],
)
def test_what_its_foreign_key_says_cannot_be_set(api: Client, body: Json, field: str) -> None:
    before = api.get("/fields/shipments").data
    refused = api.patch("/fields/shipments/order_items", body)
    assert (refused.codes, refused.errors[0]["field"]) == (["INVALID_PAYLOAD"], field)
    assert api.get("/fields/shipments").data == before


def test_it_is_not_deleted_without_its_columns(api: Client) -> None:
    assert api.delete("/fields/shipments/order_items").codes == ["INVALID_PAYLOAD"]
    assert api.get("/fields/shipments/order_items").status == 200


@pytest.mark.parametrize("column", ["order_id", "line"])
def test_the_record_of_a_column_of_a_key_can_be_sent_back(api: Client, column: str) -> None:
    path = f"/fields/order_items/{column}"
    record = api.get(path).data
    assert (record["schema"]["is_primary_key"], record["schema"]["is_unique"]) == (True, False)
    assert api.patch(path, record).data["schema"] == record["schema"]
    assert api.delete(path).codes == ["INVALID_PAYLOAD"]


def test_the_columns_of_keys_are_renamed_with_all_that_names_them(api: Client) -> None:
    assert api.patch("/fields/order_items/line", {"field": "number"}).status == 200
    fields = api.get("/fields/order_items").data
    keys = [each["field"] for each in fields if (each["schema"] or {}).get("is_primary_key")]
    assert keys == ["order_id", "number"]
    assert api.get("/items/shipments?fields=order_items.number").status == 200
    assert api.patch("/fields/order_items/number", {"field": "line"}).status == 200


def test_the_structure_is_that_of_its_own_snapshot(api: Client) -> None:
    snapshot = api.get("/schema/snapshot").data
    same = api.post("/schema/diff", snapshot)
    assert same.status == 204, same


def test_another_installation_with_the_same_tables_takes_the_settings_over(
    api: Client, other_stage: Stage
) -> None:
    make_shop(other_stage)
    api.patch("/fields/shipments/order_items", {"meta": {"note": "taken over"}})
    snapshot = api.get("/schema/snapshot").data
    diff = other_stage.admin.post("/schema/diff", snapshot).data
    assert [each["field"] for each in diff["diff"]["fields"]] == ["order_items"]
    assert other_stage.admin.post("/schema/apply", diff).status == 204
    field = other_stage.admin.get("/fields/shipments/order_items").data
    assert field["meta"]["note"] == "taken over"
    assert other_stage.admin.post("/schema/diff", snapshot).status == 204
    # Keys of several columns are made in the database alone.
    other_stage.execute("DROP TABLE shipments, order_items CASCADE")
    refused = other_stage.admin.post("/schema/diff", snapshot)
    assert {error["code"] for error in refused.errors} == {"INVALID_PAYLOAD"}
