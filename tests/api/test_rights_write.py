"""What a role's permissions let it write: which fields of which items, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cms.database.connections import Row
from cms.database.reader import Reader
from tests.client import Answer, Client
from tests.members import may, member
from tests.statements import counted_in_transactions
from tests.things import Stage, Table, field, table

MINE = {"status": {"_eq": "draft"}}


@dataclass(frozen=True)
class Blog:
    stage: Stage
    posts: Table
    tags: Table

    def new_member(self, *permissions: dict[str, Any]) -> Client:
        return member(self.stage, *permissions)

    def count(self, collection: str) -> int:
        count: int = self.stage.value(f'SELECT count(*) FROM "{collection}"')
        return count

    def traces(self) -> int:
        count: int = self.stage.value(
            "SELECT (SELECT count(*) FROM system_activity WHERE action <> 'login') + count(*) FROM "
            "system_revisions"
        )
        return count

    def refused(self, answer: Answer, status: int = 403) -> None:
        assert answer.status == status, answer.text


@pytest.fixture(scope="module")
def blog(stage: Stage, admin: Client) -> Blog:
    posts = table(
        admin,
        field("title", "string"),
        field("status", "string"),
        field("note", "string"),
        field("owner", "uuid"),
    )
    tags = table(admin, field("name", "string"), field("post", "integer"))
    relation = {
        "collection": tags.name,
        "field": "post",
        "related_collection": posts.name,
        "meta": {"one_field": "tags"},
    }
    assert admin.post("/relations", relation).status == 200
    return Blog(stage, posts, tags)


@pytest.fixture
def rows(blog: Blog) -> list[int]:
    rows = blog.posts.add({"title": "a", "status": "draft"}, {"title": "b", "status": "live"})
    return [row["id"] for row in rows]


def test_only_allowed_fields_are_created_and_a_hidden_field_is_as_one_that_is_not_there(
    blog: Blog,
) -> None:
    posts = blog.posts
    caller = blog.new_member(may(blog.posts.name, "title", action="create"), may(blog.posts.name))
    before = blog.count(posts.name), blog.traces()
    hidden, missing = (
        caller.post(posts.path, {"title": "x", name: "y"}) for name in ("note", "nowhere")
    )
    assert (hidden.status, hidden.text) == (missing.status, missing.text)
    blog.refused(hidden)
    blog.refused(caller.post(posts.path, [{"title": "x"}, {"note": "x"}]))
    assert (blog.count(posts.name), blog.traces()) == before
    assert caller.post(posts.path, {"title": "x"}).data["title"] == "x"


def test_presets_stand_under_the_payload(blog: Blog) -> None:
    presets = {"status": "draft", "owner": "$CURRENT_USER", "note": None}
    caller = blog.new_member(
        may(blog.posts.name, "title", "status", action="create", presets=presets),
        may(blog.posts.name),
        may("system_users", "id"),
    )
    me = caller.get("/users/me", fields="id").data["id"]
    posts = caller.post(blog.posts.path, [{"title": "x"}, {"title": "y", "status": "live"}]).data
    assert [(row["status"], row["owner"]) for row in posts] == [("draft", me), ("live", me)]


def test_presets_follow_paths_from_the_caller(blog: Blog) -> None:
    presets = {
        "owner": "$CURRENT_USER.role.id",
        "note": "$CURRENT_USER.role.name",
        "status": "$CURRENT_USER.title",
    }
    caller = blog.new_member(
        may(blog.posts.name, "title", action="create", presets=presets), may(blog.posts.name)
    )
    post = caller.post(blog.posts.path, {"title": "x"}).data
    assert (post["note"], post["status"]) == ("Members", None)
    assert (
        blog.stage.value(f"SELECT name FROM system_roles WHERE id = '{post['owner']}'") == "Members"
    )


def test_what_a_path_from_the_caller_leads_to_is_looked_up_once_for_all_items(
    blog: Blog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"status": {"_neq": "$CURRENT_USER.role.name"}}
    caller = blog.new_member(
        may(blog.posts.name, action="create", validation=rule), may(blog.posts.name)
    )
    seen: list[str] = []
    fetch = Reader.fetch

    def spy(self: Reader, text: str, values: Sequence[object] = ()) -> list[Row]:
        seen.append(text)
        return fetch(self, text, values)

    monkeypatch.setattr(Reader, "fetch", spy)
    counts = []
    for number in (1, 50):
        assert caller.post(blog.posts.path, [{"status": "x"}] * number).status == 200
        counts.append(len(seen))
        seen.clear()
    assert counts[1] <= counts[0] <= 4


def test_validation_looks_at_the_payload_with_its_presets(blog: Blog) -> None:
    rule = {"_and": [{"title": {"_starts_with": "ok"}}, {"status": {"_eq": "draft"}}]}
    caller = blog.new_member(
        may(blog.posts.name, action="create", validation=rule, presets={"status": "draft"}),
        may(blog.posts.name),
    )
    assert caller.post(blog.posts.path, {"title": "ok 1"}).status == 200
    refused = caller.post(blog.posts.path, {"title": "bad"})
    assert (refused.status, refused.codes) == (422, ["FAILED_VALIDATION"])
    assert refused.errors[0]["field"] == "title"
    assert caller.post(blog.posts.path, {"title": "ok", "status": "live"}).status == 422


def test_a_new_item_must_fulfil_the_rule_as_it_was_written(blog: Blog) -> None:
    caller = blog.new_member(
        may(blog.posts.name, action="create", permissions=MINE), may(blog.posts.name)
    )
    before = blog.count(blog.posts.name), blog.traces()
    blog.refused(caller.post(blog.posts.path, {"title": "x", "status": "live"}))
    blog.refused(caller.post(blog.posts.path, [{"status": "draft"}, {"status": "live"}]))
    blog.refused(caller.post(blog.posts.path, {"title": "no status"}))
    assert (blog.count(blog.posts.name), blog.traces()) == before
    assert caller.post(blog.posts.path, {"status": "draft"}).status == 200


def test_one_of_several_permissions_lets_an_item_be(blog: Blog) -> None:
    caller = blog.new_member(
        may(blog.posts.name, "title", "status", action="create", permissions=MINE),
        may(
            blog.posts.name,
            "status",
            "note",
            action="create",
            permissions={"status": {"_eq": "live"}},
        ),
        may(blog.posts.name),
    )
    assert caller.post(blog.posts.path, {"title": "x", "status": "draft"}).status == 200
    assert caller.post(blog.posts.path, {"note": "x", "status": "live"}).status == 200
    blog.refused(caller.post(blog.posts.path, {"title": "x", "note": "x", "status": "live"}))
    blog.refused(caller.post(blog.posts.path, {"title": "x", "status": "live"}))


def test_a_changed_item_fulfils_the_rule_before_and_after(blog: Blog, rows: list[int]) -> None:
    draft, live = rows
    caller = blog.new_member(
        may(blog.posts.name, action="update", permissions=MINE), may(blog.posts.name)
    )
    path = blog.posts.path
    before = blog.traces()
    blog.refused(caller.patch(f"{path}/{live}", {"title": "x"}))
    blog.refused(caller.patch(f"{path}/{draft}", {"status": "live"}))
    blog.refused(caller.patch(path, {"keys": rows, "data": {"title": "x"}}))
    blog.refused(caller.patch(path, [{"id": draft, "title": "x"}, {"id": live, "title": "x"}]))
    blog.refused(
        caller.patch(path, {"query": {"filter": {"id": {"_in": rows}}}, "data": {"title": "x"}})
    )
    blog.refused(caller.patch(f"{path}/999999", {"title": "x"}), 404)
    assert blog.traces() == before
    assert caller.patch(f"{path}/{draft}", {"title": "x"}).data["title"] == "x"


def test_hidden_items_are_not_there_for_writes(blog: Blog, rows: list[int]) -> None:
    draft, live = rows
    caller = blog.new_member(
        may(blog.posts.name, permissions=MINE),
        may(blog.posts.name, action="update", permissions=MINE),
        may(blog.posts.name, action="delete", permissions=MINE),
    )
    path = blog.posts.path
    for key in (live, 999999):
        assert caller.patch(f"{path}/{key}", {"title": "x"}).status == 404
        assert caller.delete(f"{path}/{key}").status == 404
    assert (
        caller.patch(f"{path}/{live}", {"title": "x"}).text
        == caller.patch(f"{path}/999999", {"title": "x"}).text
    )
    assert caller.delete(path, rows).status == 404
    assert caller.delete(path, {"query": {"limit": -1}}).status == 204
    assert [row["id"] for row in blog.posts.get(**{"filter[id][_in]": f"{draft},{live}"}).data] == [
        live
    ]


def test_fields_of_a_change_are_those_of_the_permissions_that_hold_for_the_item(
    blog: Blog, rows: list[int]
) -> None:
    draft, live = rows
    caller = blog.new_member(
        may(blog.posts.name, "title", action="update"),
        may(blog.posts.name, "note", action="update", permissions=MINE),
        may(blog.posts.name),
    )
    path = blog.posts.path
    assert caller.patch(f"{path}/{draft}", {"title": "x", "note": "y"}).data["note"] == "y"
    blog.refused(caller.patch(f"{path}/{live}", {"title": "x", "note": "y"}))
    assert caller.patch(f"{path}/{live}", {"title": "x"}).data["title"] == "x"
    blog.refused(caller.patch(f"{path}/{draft}", {"status": "x"}))


def test_presets_and_validation_of_changes(blog: Blog, rows: list[int]) -> None:
    caller = blog.new_member(
        may(
            blog.posts.name,
            "title",
            action="update",
            presets={"note": "set"},
            validation={"title": {"_neq": "bad"}},
        ),
        may(blog.posts.name),
    )
    path = f"{blog.posts.path}/{rows[0]}"
    assert caller.patch(path, {"title": "bad"}).codes == ["FAILED_VALIDATION"]
    changed = caller.patch(path, {"title": "good"}).data
    assert (changed["title"], changed["note"]) == ("good", "set")


def test_who_may_write_but_not_read_is_answered_nothing(blog: Blog, rows: list[int]) -> None:
    caller = blog.new_member(
        may(blog.posts.name, action="create"), may(blog.posts.name, "title", action="update")
    )
    assert caller.post(blog.posts.path, {"title": "unseen"}).status == 204
    assert caller.patch(f"{blog.posts.path}/{rows[0]}", {"title": "unseen"}).status == 204
    hiding = blog.new_member(
        may(blog.posts.name, action="create"), may(blog.posts.name, permissions=MINE)
    )
    assert hiding.post(blog.posts.path, {"status": "live"}).status == 204
    answered = hiding.post(blog.posts.path, [{"status": "draft"}, {"status": "live"}]).data
    assert [row["status"] for row in answered] == ["draft"]


def test_nested_writes_take_the_rights_of_the_other_collection(blog: Blog, rows: list[int]) -> None:
    posts = blog.posts
    tags = blog.tags
    draft = rows[0]
    reading = [may(posts.name), may(tags.name)]
    writing = [may(posts.name, action="create"), may(posts.name, action="update")]
    path = f"{posts.path}/{draft}"
    before = (blog.count(tags.name), blog.traces())
    caller = blog.new_member(*reading, *writing)
    blog.refused(caller.patch(path, {"tags": [{"name": "x"}]}))
    blog.refused(caller.post(posts.path, {"title": "x", "tags": [{"name": "x"}]}))
    named = blog.new_member(*reading, *writing, may(tags.name, "name", action="create"))
    blog.refused(
        named.patch(path, {"tags": [{"name": "x"}]})
    )  # the column that ties it is written as well
    limited = blog.new_member(
        *reading, *writing, may(tags.name, action="create", permissions={"name": {"_eq": "ok"}})
    )
    blog.refused(limited.patch(path, {"tags": [{"name": "x"}]}))
    assert (blog.count(tags.name), blog.traces()) == before
    assert limited.patch(f"{path}?fields=tags.name", {"tags": [{"name": "ok"}]}).data == {
        "tags": [{"name": "ok"}]
    }
    blog.refused(limited.patch(path, {"tags": []}))  # to unlink is to change
    unlinking = blog.new_member(*reading, *writing, may(tags.name, "post", action="update"))
    assert unlinking.patch(path, {"tags": []}).data["tags"] == []


def test_what_a_caller_cannot_see_is_never_unlinked(blog: Blog, rows: list[int]) -> None:
    posts = blog.posts
    tags = blog.tags
    draft = rows[0]
    tags.add({"name": "seen", "post": draft}, {"name": "hidden", "post": draft})
    seen = {"name": {"_eq": "seen"}}
    caller = blog.new_member(
        may(posts.name),
        may(posts.name, action="update"),
        may(tags.name, permissions=seen),
        may(tags.name, action="update"),
    )
    assert caller.patch(f"{posts.path}/{draft}", {"tags": []}).data["tags"] == []
    assert tags.column("name", f"filter[post]={draft}") == ["hidden"]


def test_rules_see_variables_of_the_caller(blog: Blog) -> None:
    own = {"owner": {"_eq": "$CURRENT_USER"}}
    caller = blog.new_member(
        may(blog.posts.name),
        may(blog.posts.name, action="create", validation={"title": {"_eq": "$CURRENT_USER.email"}}),
        may(blog.posts.name, action="update", permissions=own),
        may("system_users", "id", "email"),
    )
    me = caller.get("/users/me").data
    assert caller.post(blog.posts.path, {"title": "x"}).status == 422
    post = caller.post(blog.posts.path, {"title": me["email"], "owner": me["id"]}).data
    assert caller.patch(f"{blog.posts.path}/{post['id']}", {"note": "mine"}).status == 200


def test_nobody_writes_without_permission(blog: Blog, rows: list[int]) -> None:
    for caller in (blog.new_member(may(blog.posts.name)), blog.new_member(), blog.stage.anonymous):
        for name in (blog.posts.name, "nowhere", "system_users"):
            path = f"/items/{name}"
            answers = (
                caller.post(path, {"title": "x"}),
                caller.patch(f"{path}/{rows[0]}", {"title": "x"}),
                caller.patch(path, {"keys": rows, "data": {}}),
                caller.delete(f"{path}/{rows[0]}"),
                caller.delete(path, rows),
            )
            assert {(answer.status, answer.text) for answer in answers} == {
                (403, answers[0].text)
            }, answers


def test_rules_are_tried_on_all_items_at_once(blog: Blog, monkeypatch: pytest.MonkeyPatch) -> None:
    posts = blog.posts
    caller = blog.new_member(
        may(posts.name, action="create", permissions=MINE),
        may(
            posts.name,
            action="create",
            permissions={"note": {"_eq": "n"}},
            validation={"title": {"_eq": "t"}},
        ),
        may(posts.name, action="update", permissions=MINE),
        may(posts.name),
    )
    counts = []
    for number in (2, 100):
        with counted_in_transactions(monkeypatch) as seen:
            items = [{"status": "draft"}, {"status": "draft", "title": "t"}] * number
            created = caller.post(posts.path, items).data
            assert (
                caller.patch(posts.path, [{"id": row["id"], "note": "x"} for row in created]).status
                == 200
            )
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_callers_in_turns_write_by_their_own_rights_and_in_their_own_names(
    admin: Client, stage: Stage
) -> None:
    """What one write has looked up of a collection is kept for the next, whoever makes it."""
    papers = table(
        admin,
        field("title", "string"),
        field("note", "string"),
        field("pin", "string", special="conceal"),
        field("by", "uuid", special="user-created"),
        field("last", "uuid", special="user-updated"),
    )
    wide, narrow = (
        member(
            stage,
            *(may(papers.name, *fields, action=action) for action in ("create", "update")),
            may(papers.name),
        )
        for fields in (("title", "note"), ("title",))
    )
    callers = [admin, wide, narrow]
    users = [caller.get("/users/me").data["id"] for caller in callers]
    for _ in range(2):
        for caller, user in zip(callers, users, strict=True):
            paper = caller.post(papers.path, {"title": "t"}).data
            changed = caller.patch(f"{papers.path}/{paper['id']}", {"title": "u"}).data
            assert (paper["by"], paper["last"], changed["by"], changed["last"]) == (
                user,
                None,
                user,
                user,
            )
        for name, statuses in (
            ("note", (200, 200, 403)),
            ("pin", (200, 403, 403)),
            ("nowhere", (400, 403, 403)),
        ):
            sent = [caller.post(papers.path, {"title": "t", name: "x"}) for caller in callers]
            assert tuple(answer.status for answer in sent) == statuses, sent
            sent = [caller.patch(f"{papers.path}/1", {name: "x"}) for caller in callers]
            assert tuple(answer.status for answer in sent) == statuses, sent
