"""Rules of permissions and of fields for rows that come into lists and leave them."""

from __future__ import annotations

import pytest

from tests.api.nesting import add_post
from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage, field, table

pytestmark = pytest.mark.usefixtures("nested_collections")


def test_a_validation_sees_where_a_row_of_a_list_will_be_whatever_is_sent_for_it(
    stage: Stage,
) -> None:
    posts = [add_post(stage.admin), add_post(stage.admin)]
    admin = stage.admin
    mine = {"validation": {"post": {"_eq": posts[0]}}}
    writer = member(
        stage,
        *(may("posts", action=action) for action in ("create", "read", "update")),
        *(may("comments", action=action, **mine) for action in ("create", "update")),
        may("comments"),
    )
    comment = admin.post("/items/comments", {"text": "loose"}).data["id"]
    for change in ({"create": [{"text": "a"}]}, {"update": [{"id": comment}]}):
        (word, (row,)) = next(iter(change.items()))
        for sent in (row, row | {"post": posts[0]}):
            answer = writer.patch(f"/items/posts/{posts[1]}", {"comments": {word: [sent]}})
            assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"]), answer
            assert (
                writer.patch(f"/items/posts/{posts[0]}", {"comments": {word: [sent]}}).status == 200
            )
        admin.patch(f"/items/comments/{comment}", {"post": None})
    assert writer.post("/items/posts", {"comments": [{"text": "b", "post": posts[0]}]}).codes == [
        "FAILED_VALIDATION"
    ]
    assert stage.value(f"SELECT count(*) FROM comments WHERE post <> {posts[0]}") == 0


def test_rules_of_fields_see_that_a_row_of_a_list_belongs_to_the_row_above(admin: Client) -> None:
    rules = {
        "validation": {"_nnull": True},
        "conditions": [{"rule": {"text": {"_nnull": True}}, "required": True}],
    }
    assert admin.patch("/fields/comments/post", {"meta": rules}).status == 200
    assert (
        len(
            admin.post("/items/posts", {"comments": [{"text": "a"}, {"text": "b"}]}).data[
                "comments"
            ]
        )
        == 2
    )
    assert admin.post("/items/comments", {"text": "a"}).status == 422
    assert admin.patch("/fields/comments/post", {"meta": dict.fromkeys(rules)}).status == 200


def test_a_row_that_leaves_a_list_is_changed_like_any_other(stage: Stage) -> None:
    admin = stage.admin
    assert (
        admin.patch("/relations/comments/post", {"meta": {"one_deselect_action": "nullify"}}).status
        == 200
    )
    assert (
        admin.post("/fields/comments", field("changed", "timestamp", special="date-updated")).status
        == 200
    )
    key = add_post(admin, comments=[{"text": "a"}, {"text": "b"}])
    ids = admin.get(f"/items/posts/{key}").data["comments"]
    keeps = may("comments", "post", action="update", validation={"post": {"_nnull": True}})
    client = member(stage, may("posts", action="update"), may("posts"), keeps, may("comments"))
    changes: tuple[object, ...] = ([], {"delete": [ids[0]]})
    for change in changes:
        answer = client.patch(f"/items/posts/{key}", {"comments": change})
        assert (answer.status, answer.codes[0], answer.errors[0]["path"]) == (
            422,
            "FAILED_VALIDATION",
            ["comments", "post"],
        ), answer
    assert admin.patch(f"/items/posts/{key}", {"comments": [ids[0]]}).data["comments"] == [ids[0]]
    left = admin.get(f"/items/comments/{ids[1]}").data
    assert (left["post"], left["changed"] > "2020") == (None, True)
    assert admin.get(f"/items/comments/{ids[0]}").data["changed"] is None


@pytest.mark.parametrize("meta", [{"required": True}, {"validation": {"_nnull": True}}])
def test_a_row_does_not_leave_a_list_without_which_it_may_not_be(
    admin: Client, meta: dict[str, object]
) -> None:
    assert (
        admin.patch("/relations/comments/post", {"meta": {"one_deselect_action": "nullify"}}).status
        == 200
    )
    key = add_post(admin, comments=[{"text": "a"}])
    before = dict.fromkeys(meta) | ({"required": False} if "required" in meta else {})
    assert admin.patch("/fields/comments/post", {"meta": meta}).status == 200
    answer = admin.patch(f"/items/posts/{key}", {"comments": []})
    assert answer.status in (400, 422)
    assert len(admin.get(f"/items/posts/{key}").data["comments"]) == 1
    assert admin.patch("/fields/comments/post", {"meta": before}).status == 200
    assert admin.patch(f"/items/posts/{key}", {"comments": []}).data["comments"] == []


def test_a_row_that_is_not_there_is_reported_with_its_place_to_whoever_writes(stage: Stage) -> None:
    hidden = stage.admin.post("/items/comments", {"text": "hidden"}).data["id"]
    key = add_post(stage.admin)
    seen = {"permissions": {"text": {"_neq": "hidden"}}}
    writer = member(
        stage,
        *(may("posts", action=action) for action in ("read", "update")),
        *_all("comments", **seen),
    )
    for row in (hidden, 9_999):
        for change, path in (
            ({"update": [{"id": row, "text": "x"}]}, ["comments", "update", 0]),
            ({"update": [row]}, ["comments", "update", 0]),
            ({"delete": [row]}, ["comments", "delete", 0]),
            ([row], ["comments", 0]),
        ):
            for who in (stage.admin, writer) if row != hidden else (writer,):
                fault = who.patch(f"/items/posts/{key}", {"comments": change}).errors[0]
                assert (fault["code"], fault["path"]) == ("INVALID_FOREIGN_KEY", path)
    answer = writer.patch("/items/posts", [{"id": key, "comments": []}, {"comments": []}])
    assert [(fault["code"], fault["index"]) for fault in answer.errors] == [("INVALID_PAYLOAD", 1)]


def _all(collection: str, **permissions: object) -> list[Json]:
    return [
        may(collection, action=action, **permissions)
        for action in ("create", "read", "update", "delete")
    ]


def test_a_collection_where_many_to_any_does_not_lead_is_as_a_hidden_one_for_members(
    stage: Stage,
) -> None:
    caller = member(
        stage, may("sections", action="create"), may("sections", action="update"), may("sections")
    )
    sections = [{"kind": kind, "item": {"title": "H"}} for kind in ("posts", "nowhere", "headings")]
    answers = {
        (answer.status, answer.text)
        for answer in (caller.post("/items/sections", sent) for sent in sections)
    }
    assert len(answers) == 1
    assert next(iter(answers))[0] == 403
    assert stage.admin.post("/items/sections", sections[0]).codes == ["INVALID_PAYLOAD"]


def test_a_key_that_names_a_row_takes_no_right_to_change_it(stage: Stage) -> None:
    unlinking = {"meta": {"one_deselect_action": "nullify"}}
    assert stage.admin.patch("/relations/comments/post", unlinking).status == 200
    owner = add_post(stage.admin)
    other = add_post(stage.admin)
    rights = (
        may("posts"),
        may("posts", action="update"),
        may("comments", "text", "post", action="update"),
    )
    writer = member(stage, *rights, may("comments", "id", "text", "post"))
    comments = [
        stage.admin.post("/items/comments", {"text": "a", "post": owner}).data["id"]
        for _ in range(2)
    ]
    first, second = comments
    for whole in (
        [second],
        [second, first],
        [{"id": first, "text": "b"}, second],
        {"update": [{"id": first}]},
    ):
        assert writer.patch(f"/items/posts/{owner}", {"comments": whole}).status == 200, whole
    assert writer.patch(f"/items/posts/{other}?fields=comments", {"comments": [first]}).data == {
        "comments": [first]
    }
    assert writer.patch("/items/comments", [{"id": first, "text": "c"}]).data[0]["text"] == "c"
    assert writer.patch(f"/items/comments/{first}", {"id": first, "text": "d"}).data["text"] == "d"
    assert writer.patch(f"/items/comments/{first}", {"id": second}).status in (400, 403)
    for new in ({"id": 9999, "text": "new"}, {"text": "new"}):
        assert writer.patch(f"/items/posts/{owner}", {"comments": {"create": [new]}}).codes == [
            "FORBIDDEN"
        ]
        assert writer.patch(f"/items/posts/{owner}", {"comments": [new]}).codes == ["FORBIDDEN"]


def test_the_name_of_a_hidden_key_is_reported_to_nobody(stage: Stage) -> None:
    writer = member(stage, may("comments", "text"), may("comments", "text", action="update"))
    key = stage.admin.post("/items/comments", {"text": "a"}).data["id"]
    for name in ("id", "no_such_field"):
        answer = writer.patch(f"/items/comments/{key}", {name: key, "text": "b"})
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer


def test_a_list_is_put_in_order_by_whom_its_order_is_hidden_from(stage: Stage) -> None:
    admin = stage.admin
    lists = table(admin, field("name", "string"))
    rows = table(admin, field("list", "integer"), field("place", "integer"))
    relation = {"collection": rows.name, "field": "list", "related_collection": lists.name}
    meta = {"one_field": "rows", "sort_field": "place"}
    assert admin.post("/relations", {**relation, "meta": meta}).status == 200
    (item,) = lists.add({"rows": [{}, {}]})
    writer = member(
        stage,
        *(may(lists.name, action=action) for action in ("read", "update")),
        *(may(rows.name, "id", "list", action=action) for action in ("read", "update")),
    )
    assert writer.patch(f"{lists.path}/{item['id']}", {"rows": item["rows"][::-1]}).status == 200
    assert rows.column("place", "sort=id") == [2, 1]
