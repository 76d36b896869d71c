"""Fields of keys and foreign keys of several columns, as they are renamed, deleted and listed."""

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


def test_such_a_field_stays_as_long_as_its_foreign_key_is_there(stage: Stage) -> None:
    api = stage.admin
    path = "/fields/notes/rows_by_month"
    for refused in (api.delete(path), api.patch(path, {"field": "month"})):
        assert refused.codes == ["INVALID_PAYLOAD"], refused
    stage.execute("ALTER TABLE notes DROP CONSTRAINT notes_row_at_fkey")
    assert api.get(path).status in (403, 404)
    assert api.get("/items/notes?fields=*").status == 200


def test_a_column_of_a_key_is_renamed_and_not_deleted(api: Client) -> None:
    assert api.delete("/fields/queue/lane").codes == ["INVALID_PAYLOAD"]
    assert api.patch("/fields/queue/lane", {"field": "track"}).status == 200
    assert api.get("/items/queue/a,1").data["track"] == "a"
    assert api.patch("/fields/queue/track", {"field": "lane"}).status == 200
    again = {"field": "id", "type": "integer", "schema": {"is_primary_key": True}}
    assert api.post("/fields/queue", again).codes == ["INVALID_PAYLOAD"]


def test_relations_of_a_foreign_key_lose_and_get_their_list(api: Client) -> None:
    path = "/relations/shipments/order_items"
    assert api.patch(path, {"meta": {"one_field": "sent"}}).data["meta"]["one_field"] == "sent"
    assert api.get("/items/order_items/17,2?fields=sent").data == {"sent": [1]}
    assert api.patch(path, {"schema": {"on_delete": "CASCADE"}}).data["schema"]["on_delete"] == (
        "CASCADE"
    )
    assert api.delete("/items/order_items/17,2").status == 204
    assert api.get("/items/shipments/1").status == 404
