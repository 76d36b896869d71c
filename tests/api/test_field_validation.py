"""Rules of fields hold for every write of an item."""

from __future__ import annotations

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage, Table, field, table

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


def test_a_new_item_keeps_the_rules_of_its_fields_and_all_that_it_breaks_is_reported(
    shop: Table,
) -> None:
    answer = shop.api.post(shop.path, [{"code": "AB"}, {"price": 0, "code": "ab"}])
    assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"] * 2)
    assert [(error["field"], error["index"], error["type"]) for error in answer.errors] == [
        ("price", 1, "gt"),
        ("code", 1, "regex"),
    ]
    assert answer.errors[0]["message"] == "A price is above nothing."
    assert shop.get().data == []


def test_a_change_is_held_to_the_rules_of_what_it_changes(shop: Table) -> None:
    (item,) = shop.add({"code": "AB"})
    path = f"{shop.path}/{item['id']}"
    assert shop.api.patch(path, {"price": -1}).codes == ["FAILED_VALIDATION"]
    assert shop.api.patch(path, {"free": False}).status == 200
    assert shop.api.patch(shop.path, {"keys": [item["id"]], "data": {"code": "x"}}).codes == [
        "FAILED_VALIDATION"
    ]


def test_a_condition_makes_a_field_required(shop: Table) -> None:
    answer = shop.api.post(shop.path, {"code": "AB", "free": True})
    assert [(error["field"], error["type"]) for error in answer.errors] == [("reason", "required")]
    assert shop.api.post(shop.path, {"code": "AB", "free": True, "reason": "gift"}).status == 200
    assert shop.api.post(shop.path, {"code": "AB", "free": False}).status == 200


def test_rules_see_presets_and_what_fills_itself(stage: Stage, admin: Client) -> None:
    required_when_free = {"conditions": [{"rule": {"free": {"_eq": True}}, "required": True}]}
    reason = field("reason", "string")
    identifier = field("made", "uuid", special="uuid")
    code = field("code", "string", default_value="a")
    reason["meta"] = required_when_free
    code["meta"] = {"validation": {"_in": ["a", "b"]}}
    identifier["meta"] |= required_when_free | {"validation": {"_nnull": True}}
    things = table(admin, reason, identifier, code, field("free", "boolean"))
    gift, free, wrong = (
        member(stage, may(things.name, "free", "reason", action="create", presets=presets))
        for presets in ({"reason": "gift"}, {"free": True}, {"code": "c"})
    )
    assert gift.post(things.path, {"free": True}).status == 204
    assert [fault["field"] for fault in free.post(things.path, {}).errors] == ["reason"]
    assert free.post(things.path, {"reason": "x"}).status == 204
    assert wrong.post(things.path, {}).codes == ["FORBIDDEN"]  # the field is hidden
    assert [item["reason"] for item in things.get().data] == ["gift", "x"]


def test_submitted_is_what_stands_in_the_body(admin: Client) -> None:
    sent = field("sent", "string")
    unsent = field("unsent", "string", default_value="x")
    sent["meta"], unsent["meta"] = (
        {"validation": {"_submitted": submitted}} for submitted in (True, False)
    )
    things = table(admin, sent, unsent)
    assert [fault["field"] for fault in admin.post(things.path, {}).errors] == ["sent"]
    assert [
        fault["field"] for fault in admin.post(things.path, {"sent": None, "unsent": "y"}).errors
    ] == ["unsent"]
    assert admin.post(things.path, {"sent": None}).data == {"id": 1, "sent": None, "unsent": "x"}


def test_a_field_that_is_not_sent_and_has_no_default_breaks_no_rule_of_its_own(
    admin: Client,
) -> None:
    price = field("price", "integer", default_value=0)
    code = field("code", "string")
    price["meta"] = {"validation": {"_gt": 0}}
    code["meta"] = {"validation": {"_regex": "^[A-Z]+$"}}
    things = table(admin, price, code)
    assert [fault["field"] for fault in admin.post(things.path, {}).errors] == ["price"]
    assert admin.post(things.path, {"price": 1}).status == 200
    assert [
        fault["field"] for fault in admin.post(things.path, {"price": 1, "code": None}).errors
    ] == ["code"]


def test_a_condition_of_a_change_speaks_of_the_whole_item(stage: Stage, admin: Client) -> None:
    reason = field("reason", "string")
    reason["meta"] = {"conditions": [{"rule": {"free": {"_eq": True}}, "required": True}]}
    things = table(admin, reason, field("free", "boolean"), field("note", "string"))
    things.add({"free": False, "reason": "a"}, {"free": True, "reason": "b"}, {"free": False})
    stage.execute(f"INSERT INTO {things.name} (id, free) VALUES (4, true)")
    editor = member(stage, may(things.name, action="update"), may(things.name))
    for who in (admin, editor):
        assert who.patch(f"{things.path}/1", {"reason": None}).status == 200
        for key, wrong in (
            (2, {"reason": None}),
            (3, {"free": True}),
            (1, {"free": True, "note": "x"}),
        ):
            answer = who.patch(f"{things.path}/{key}", wrong)
            assert (answer.status, [fault["field"] for fault in answer.errors]) == (
                422,
                ["reason"],
            ), answer
        assert who.patch(things.path, {"keys": [1, 2, 3], "data": {"free": True}}).status == 422
        assert who.patch(f"{things.path}/4", {"note": "it lacked before"}).status == 200
        assert who.patch(f"{things.path}/3", {"free": True, "reason": "c"}).status == 200
        assert who.patch(f"{things.path}/3", {"free": False, "reason": None}).status == 200


def test_a_condition_reads_whatever_an_item_holds(stage: Stage, admin: Client) -> None:
    reason = field("reason", "string")
    reason["meta"] = {"conditions": [{"rule": {"more": {"_nnull": True}}, "required": True}]}
    things = table(admin, reason, field("more", "json"))
    kept = r"""{"a": "\u0000", "b": "\ud800"}"""
    stage.execute(f"INSERT INTO {things.name} (id, reason, more) VALUES (1, 'a', '{kept}')")
    assert admin.patch(f"{things.path}/1", {"reason": "b"}).status == 200
    assert admin.patch(f"{things.path}/1", {"reason": None}).codes == ["FAILED_VALIDATION"]


def test_what_a_default_computes_is_not_tried_and_does_not_lack(
    stage: Stage, admin: Client
) -> None:
    required_when_free = {"conditions": [{"rule": {"free": {"_eq": True}}, "required": True}]}
    moment = field("moment", "timestamp", default_value="now()")
    key = field("key", "uuid")
    key["schema"] = {"default_value": "gen_random_uuid()"}
    moment["meta"] = required_when_free | {"validation": {"_lte": "$NOW"}}
    key["meta"] = required_when_free | {"validation": {"_nnull": True}}
    word = field("word", "string")
    word["meta"] = required_when_free | {"validation": {"_regex": "^[a-z]$"}}
    things = table(admin, moment, key, word, field("free", "boolean"))
    stage.execute(f"ALTER TABLE {things.name} ALTER word SET DEFAULT lower('A')")
    assert [item["word"] for item in things.add({}, {"free": True})] == ["a", "a"]
    wrong = {"free": True, "moment": None, "key": None, "word": None}
    problems = [(fault["field"], fault["type"]) for fault in admin.post(things.path, wrong).errors]
    assert {("moment", "required"), ("key", "required"), ("word", "required")} <= set(problems)
    assert admin.post(things.path, {"moment": "2999-01-01T00:00:00Z"}).codes == [
        "FAILED_VALIDATION"
    ]


def test_presets_of_changes_keep_the_rules_of_fields(stage: Stage, admin: Client) -> None:
    level = field("level", "integer")
    remark = field("remark", "string")
    level["meta"] = {"validation": {"_lte": 3}}
    remark["meta"] = {"validation": {"_submitted": True}}
    firm = field("firm", "string", is_nullable=False, default_value="x")
    when = field("changed", "timestamp")
    when["meta"] = {"special": ["date-updated"]}
    things = table(admin, field("name", "string"), level, remark, firm, when)
    things.add({"name": "a", "level": 1, "remark": "b"})

    def patched(**presets: object) -> list[tuple[object, object]]:
        own = may(things.name, "id", "name", action="update", presets=presets)
        answers = [
            member(stage, may(things.name), own | {"permissions": rule}).patch(*change)
            for rule in (None, {"id": {"_eq": 1}})
            for change in (
                (f"{things.path}/1", {"name": "c"}),
                (things.path, {"keys": [1], "data": {"name": "c"}}),
                (things.path, [{"id": 1, "name": "c"}]),
            )
        ]
        problems = [
            [(fault["field"], fault["type"]) for fault in _faults(answer)] for answer in answers
        ]
        assert problems == [problems[0]] * 6
        return problems[0]

    assert patched(level=9, remark="c") == [("level", "lte")]
    assert patched(firm=None, remark="c") == [("firm", "required")]
    assert patched(level=3) == [("remark", "submitted")]
    assert patched(level=3, remark="c", changed="2001-01-01T00:00:00Z") == []
    (item,) = things.get().data
    assert (item["level"], item["remark"]) == (3, "c")
    assert item["changed"] > "2026"
    assert (
        admin.patch(f"{things.path}/1", {"level": 4, "firm": None}).codes
        == ["FAILED_VALIDATION"] * 3
    )


def _faults(answer: Answer) -> list[Json]:
    assert answer.status in (200, 422)
    return answer.errors if answer.status == 422 else []
