"""Rules of fields hold for every write of an item (decisions, sections 5 and 6)."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.things import Table, field, table

Json = dict[str, object]


@pytest.fixture(scope="module")
def shop(admin: Client) -> Table:
    price = field("price", "integer", default_value=10)
    price["meta"] = {"validation": {"_gt": 0}, "validation_message": "A price is above nothing."}
    code = field("code", "string")
    code["meta"] = {"validation": {"code": {"_regex": "^[A-Z]{2}$"}}}
    reason = field("reason", "string")
    reason["meta"] = {"conditions": [{"rule": {"free": {"_eq": True}}, "required": True}]}
    return table(admin, price, code, reason, field("free", "boolean"))


def test_a_new_item_keeps_the_rules_of_its_fields_and_is_told_all_that_it_breaks(shop: Table) -> None:
    answer = shop.api.post(shop.path, [{"code": "AB"}, {"price": 0, "code": "ab"}])
    assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"] * 2)
    assert [(error["field"], error["index"], error["type"]) for error in answer.errors] == [
        ("price", 1, "gt"),
        ("code", 1, "regex"),
    ]
    assert answer.errors[0]["message"] == "A price is above nothing."
    assert shop.get().data == []


def test_a_change_is_held_to_the_rules_of_what_it_changes(shop: Table) -> None:
    (made,) = shop.add({"code": "AB"})
    path = f"{shop.path}/{made['id']}"
    assert shop.api.patch(path, {"price": -1}).codes == ["FAILED_VALIDATION"]
    assert shop.api.patch(path, {"free": False}).status == 200
    assert shop.api.patch(shop.path, {"keys": [made["id"]], "data": {"code": "x"}}).codes == ["FAILED_VALIDATION"]


def test_a_condition_makes_a_field_required(shop: Table) -> None:
    answer = shop.api.post(shop.path, {"code": "AB", "free": True})
    assert [(error["field"], error["type"]) for error in answer.errors] == [("reason", "required")]
    assert shop.api.post(shop.path, {"code": "AB", "free": True, "reason": "gift"}).status == 200
    assert shop.api.post(shop.path, {"code": "AB", "free": False}).status == 200
