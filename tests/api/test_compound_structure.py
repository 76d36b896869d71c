"""The structure of tables with keys and foreign keys of several columns, as the API changes it."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.shop import fill_shop, make_shop
from tests.things import Stage


@pytest.fixture(scope="module", autouse=True)
def tables(stage: Stage) -> None:
    make_shop(stage)
    fill_shop(stage)


@pytest.fixture
def api(stage: Stage) -> Client:
    return stage.admin


def test_the_field_of_a_foreign_key_has_settings_of_its_own(api: Client) -> None:
    path = "/fields/shipments/order_items"
    shown = api.get(path).data
    assert api.patch(path, shown).data == api.get(path).data
    assert api.patch(path, {"meta": {"note": "What was sent"}}).data["meta"]["note"]
    meta = api.get(path).data["meta"]
    assert (meta["note"], meta["special"]) == ("What was sent", ["m2o"])
    assert meta["columns"] == ["item_order", "item_line"]
    assert api.get("/items/shipments?fields=order_items.line").data[0] == {
        "order_items": {"line": 2}
    }


def test_such_a_field_stays_as_long_as_its_foreign_key_is_there(stage: Stage) -> None:
    api = stage.admin
    path = "/fields/notes/rows_by_month"
    for refused in (api.delete(path), api.patch(path, {"field": "month"})):
        assert refused.codes == ["INVALID_PAYLOAD"], refused
    stage.execute("ALTER TABLE notes DROP CONSTRAINT notes_row_at_fkey")
    assert api.get(path).status in (403, 404)
    assert api.get("/items/notes?fields=*").status == 200


def test_fields_that_are_named_alike_are_numbered_in_the_order_of_their_constraints(
    stage: Stage,
) -> None:
    stage.execute(
        "CREATE TABLE pairs (a integer, b integer, PRIMARY KEY (a, b));"
        "CREATE TABLE twice (id serial PRIMARY KEY, a integer, b integer, c integer, d integer,"
        " pairs_2 text, CONSTRAINT z FOREIGN KEY (a, b) REFERENCES pairs,"
        " CONSTRAINT y FOREIGN KEY (c, d) REFERENCES pairs)"
    )
    columns = {
        field["field"]: field["meta"]["columns"]
        for field in stage.admin.get("/fields/twice").data
        if field["type"] == "alias"
    }
    assert columns == {"pairs": ["c", "d"], "pairs_3": ["a", "b"]}


def test_a_column_of_a_key_is_renamed_and_not_deleted(api: Client) -> None:
    assert api.delete("/fields/queue/lane").codes == ["INVALID_PAYLOAD"]
    assert api.patch("/fields/queue/lane", {"field": "track"}).status == 200
    assert api.get("/items/queue/a,1").data["track"] == "a"
    assert api.patch("/fields/queue/track", {"field": "lane"}).status == 200
    again = {"field": "id", "type": "integer", "schema": {"is_primary_key": True}}
    assert api.post("/fields/queue", again).codes == ["INVALID_PAYLOAD"]


def test_a_snapshot_of_such_tables_changes_nothing_where_it_was_taken(api: Client) -> None:
    snapshot = api.get("/schema/snapshot").data
    assert api.post("/schema/diff", snapshot).status == 204


def test_relations_of_a_foreign_key_lose_and_get_their_list(api: Client) -> None:
    path = "/relations/shipments/order_items"
    assert api.patch(path, {"meta": {"one_field": "sent"}}).data["meta"]["one_field"] == "sent"
    assert api.get("/items/order_items/17,2?fields=sent").data == {"sent": [1]}
    assert api.patch(path, {"schema": {"on_delete": "CASCADE"}}).data["schema"]["on_delete"] == (
        "CASCADE"
    )
    assert api.delete("/items/order_items/17,2").status == 204
    assert api.get("/items/shipments/1").status == 404
