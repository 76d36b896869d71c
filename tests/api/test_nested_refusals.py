"""Collections that many-to-any does not lead to, keys that are in no list, too many items."""

from __future__ import annotations

import pytest

from cms.items.write import item_writes
from tests.api.nesting import add_post, count
from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage

pytestmark = pytest.mark.usefixtures("nested_collections")


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", ["posts", "nowhere", ""])
@pytest.mark.parametrize("section", [{"item": {"title": "H"}}, {"item": "1"}, {}])
def test_a_collection_that_many_to_any_does_not_lead_to_is_refused(
    admin: Client, kind: str, section: Json
) -> None:
    body = {**section, "kind": kind}
    for method, path, sent, location in (
        ("POST", "/items/posts", {"sections": [body]}, ["sections", 0, "kind"]),
        ("POST", "/items/sections", body, ["kind"]),
        ("POST", "/items/sections", [{"kind": "notes"}, {"kind": kind}], ["kind"]),
        ("PATCH", f"/items/sections/{make_section(admin)}", body, ["kind"]),
    ):
        (error,) = admin.send(method, path, sent).errors
        assert (error["code"], error["path"], error["value"]) == ("INVALID_PAYLOAD", location, kind)
        assert error["allowed"] == ["headings", "notes"], sent
        assert "headings, notes" in error["message"], sent


def make_section(admin: Client) -> int:
    key: int = admin.post("/items/sections", {"kind": "notes"}).data["id"]
    return key


def test_problems_name_only_collections_that_the_caller_knows(stage: Stage, admin: Client) -> None:
    rights = [may("sections", action="create"), may("sections"), may("headings")]
    caller = member(stage, *rights)
    heading = str(admin.post("/items/headings", {}).data["id"])
    assert caller.post("/items/sections", {"kind": "headings", "item": heading}).status == 200
    answers = [
        caller.post("/items/sections", {"kind": kind, "item": "1"}) for kind in ("notes", "xotes")
    ]
    assert [answer.errors[0]["allowed"] for answer in answers] == [["headings"], ["headings"]]
    assert answers[0].text == answers[1].text.replace("xotes", "notes")


def test_a_key_that_is_in_no_list_is_reported(admin: Client) -> None:
    post = admin.post("/items/posts", {}).data["id"]
    for word in ("delete", "update"):
        (error,) = admin.patch(f"/items/posts/{post}", {"comments": {word: [999]}}).errors
        assert (error["code"], error["collection"], error["field"], error["value"]) == (
            "INVALID_FOREIGN_KEY",
            "comments",
            "id",
            999,
        )
        assert error["path"] == ["comments", word, 0]
    (error,) = admin.patch(f"/items/posts/{post}", {"comments": {"delete": ["x"]}}).errors
    assert (error["field"], error["value"], error["path"]) == ("id", "x", ["comments", "delete", 0])


@pytest.mark.parametrize(
    "data",
    [
        {"comments": [{"text": "a"}, {"text": "b"}]},
        {"author": {"name": "Ann"}, "comments": {"create": [{"text": "a"}]}},
        {"comments": {"delete": [1, 2]}},
    ],
)
def test_related_items_are_not_multiplied_without_bound(
    admin: Client, monkeypatch: pytest.MonkeyPatch, data: Json
) -> None:
    monkeypatch.setattr(item_writes, "MAX_REPEATED_ITEMS", 5)
    keys = [add_post(admin) for _ in range(3)]
    before = count(admin, "comments"), count(admin, "people")
    refusal = admin.patch("/items/posts", {"keys": keys, "data": data}).errors
    assert [(error["code"], error["limit"]) for error in refusal] == [("INVALID_PAYLOAD", 5)]
    assert (count(admin, "comments"), count(admin, "people")) == before
    fewer = {"keys": keys[:2], "data": {"comments": [{"text": "a"}, {"text": "b"}]}}
    assert len(admin.patch("/items/posts", fewer).data) == 2
