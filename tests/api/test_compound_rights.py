"""Foreign keys of several columns under rules, presets and rights: by their field or columns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage

pytestmark = pytest.mark.usefixtures("shop")

Json = dict[str, Any]

PATH = "/items/shipments/1"


def writer(stage: Stage, **settings: object) -> Client:
    """Return a caller who may create and change shipments with these settings of permissions."""
    permissions = [may("shipments", action=action, **settings) for action in ("create", "update")]
    related = [may("order_items", action=action) for action in ("read", "update")]
    return member(stage, may("shipments"), *related, *permissions)


@pytest.mark.parametrize(
    "validation",
    [
        {"item_order": {"_eq": 17}},
        {"order_items": {"_in": [[17, 1], [17, 2], [17, 10]]}},
        {"order_items": {"_neq": [18, 1]}},
    ],
)
@pytest.mark.parametrize(
    "item",
    [
        {"order_items": [18, 1]},
        {"order_items": "18,1"},
        {"item_order": 18, "item_line": 1},
        {"order_items": {"order_id": 18, "line": 1}},
    ],
)
def test_rules_count_for_a_reference_and_for_its_columns(
    stage: Stage, validation: Json, item: Json
) -> None:
    ann = writer(stage, validation=validation)
    assert ann.post("/items/shipments", {"order_items": [17, 2]}).status == 200
    assert ann.post("/items/shipments", {"item_order": 17, "item_line": 2}).status == 200
    for answer in (ann.post("/items/shipments", item), ann.patch(PATH, item)):
        assert answer.codes == ["FAILED_VALIDATION"], answer


def test_a_rule_for_a_column_takes_objects_with_their_key(stage: Stage) -> None:
    ann = writer(stage, validation={"item_order": {"_eq": 17}})
    assert ann.patch(PATH, {"order_items": {"order_id": 17, "line": 1}}).status == 200


def test_a_rule_for_a_reference_refuses_changes_of_a_part_of_it(stage: Stage) -> None:
    ann = writer(stage, validation={"order_items": {"_eq": [17, 1]}})
    assert ann.patch(PATH, {"item_line": 1}).codes == ["FAILED_VALIDATION"]
    assert ann.patch(PATH, {"note": "x"}).status == 200


def test_presets_set_references_that_are_not_sent(stage: Stage) -> None:
    ann = writer(stage, presets={"item_order": 18, "item_line": 1})
    assert ann.post("/items/shipments", {"order_items": [17, 2]}).data["order_items"] == [17, 2]
    assert ann.post("/items/shipments", {}).data["order_items"] == [18, 1]
    bob = writer(stage, presets={"order_items": [18, 1]})
    assert bob.post("/items/shipments", {}).data["item_order"] == 18
    sent = {"item_order": 17, "item_line": 2}
    assert bob.post("/items/shipments", sent).data["order_items"] == [17, 2]


def test_the_validation_of_a_column_counts_for_references(stage: Stage) -> None:
    rule = {"meta": {"validation": {"_lt": 18}}}
    assert stage.admin.patch("/fields/shipments/item_order", rule).status == 200
    assert stage.admin.patch(PATH, {"order_items": [18, 1]}).codes == ["FAILED_VALIDATION"]
    assert stage.admin.patch(PATH, {"order_items": [17, 1]}).status == 200
    stage.admin.patch("/fields/shipments/item_order", {"meta": {"validation": None}})


def test_a_refusal_names_no_hidden_columns(stage: Stage) -> None:
    ann = member(stage, may("shipments", "id", "order_items"))
    path = "/items/shipments?groupBy=order_items"
    assert "item_order" not in ann.get(path).errors[0]["message"]
    assert "item_order" in stage.admin.get(path).errors[0]["message"]
