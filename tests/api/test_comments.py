"""Comments on items, under both of their names."""

from __future__ import annotations

from typing import Any

import pytest

from cms.auth import accounts
from tests.client import Client
from tests.things import Stage, Table, field, filled_things

things = filled_things([field("title", "string")], [{"title": "a"}])


@pytest.fixture(scope="module")
def somebody(stage: Stage) -> Client:
    """A user without a role."""
    accounts.create_user(stage.dsn, email="ann@example.com", password="secret-of-ann", role=None)
    return stage.anonymous.login("ann@example.com", "secret-of-ann")


def comment_on(things: Table, path: str = "/activity/comment", **changes: Any) -> Any:
    return things.api.post(
        path, {"collection": things.name, "item": 1, "comment": "Well done.", **changes}
    )


@pytest.mark.parametrize("path", ["/activity/comment", "/comments"])
def test_a_comment_is_activity_of_its_author(things: Table, path: str) -> None:
    comment = comment_on(things, path).data
    me = things.api.get("/users/me?fields=id").data["id"]
    values = {name: comment[name] for name in ("action", "user", "collection", "item", "comment")}
    assert values == {
        "action": "comment",
        "user": me,
        "collection": things.name,
        "item": "1",
        "comment": "Well done.",
    }
    assert things.api.get(f"/activity/{comment['id']}").data == comment
    assert things.api.get(f"/comments/{comment['id']}").data == comment


def test_an_author_changes_and_deletes_a_comment(things: Table) -> None:
    for path in ("/activity/comment", "/comments"):
        key = comment_on(things).data["id"]
        changed = things.api.patch(f"{path}/{key}?fields=comment", {"comment": "Better."})
        assert changed.data == {"comment": "Better."}
        assert things.api.delete(f"{path}/{key}").status == 204
        assert things.api.delete(f"{path}/{key}").status == 404
        assert things.api.get(f"/activity/{key}").status == 404


@pytest.mark.parametrize("path", ["/activity/comment", "/comments"])
def test_if_match_lets_one_of_two_editors_change_or_delete_a_comment(
    things: Table, path: str
) -> None:
    key = comment_on(things).data["id"]
    seen = things.api.get(f"/comments/{key}").headers["etag"]
    change = {"comment": "Mine."}
    conditional = {"If-Match": seen}
    assert things.api.send("PATCH", f"{path}/{key}", change, **conditional).status == 200
    for method, body in (("PATCH", change), ("DELETE", None)):
        assert things.api.send(method, f"{path}/{key}", body, **conditional).codes == [
            "PRECONDITION_FAILED"
        ]
    now = things.api.get(f"/comments/{key}?fields=comment")
    assert now.data == {"comment": "Mine."}
    assert (
        things.api.send("DELETE", f"{path}/{key}", **{"If-Match": now.headers["etag"]}).status
        == 204
    )
    assert things.api.send("DELETE", f"{path}/{key}", **{"If-Match": "*"}).status == 404


def test_comments_lists_comments_only(stage: Stage, things: Table) -> None:
    stage.execute(
        f"INSERT INTO system_activity (action, collection, item) VALUES ('update', "
        f"'{things.name}', '1')"
    )
    comment_on(things, comment="Listed.")
    kinds = {entry["action"] for entry in things.api.get("/comments").data}
    assert kinds == {"comment"}
    query = {"filter": {"comment": "Listed."}, "fields": ["comment"]}
    assert things.api.search("/comments", query).data == [{"comment": "Listed."}]
    count = stage.value("SELECT count(*) FROM system_activity WHERE action = 'comment'")
    assert things.api.get("/comments?meta=total_count&limit=1").body["meta"] == {
        "total_count": count
    }
    other = stage.value("SELECT id FROM system_activity WHERE action = 'update' LIMIT 1")
    assert things.api.get(f"/comments/{other}").status == 404
    assert things.api.patch(f"/comments/{other}", {"comment": "x"}).status == 404
    assert things.api.delete(f"/activity/comment/{other}").status == 404


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["collection", "item", "comment"]),
        ({"comment": " "}, ["comment"]),
        ({"comment": 5, "item": True}, ["item", "comment"]),
        ({"other": 1}, ["other"]),
        ({"comment": "x" * 100_001}, ["comment"]),
    ],
)
def test_a_bad_comment_is_refused_with_its_places(
    things: Table, body: Any, fields: list[str]
) -> None:
    answer = things.api.post("/activity/comment", {}) if not body else comment_on(things, **body)
    assert (answer.status, [error["field"] for error in answer.errors]) == (400, fields)


def test_a_comment_is_on_an_item_that_is_there(things: Table) -> None:
    assert comment_on(things, item=99).codes == ["NOT_FOUND"]
    assert comment_on(things, item="x").codes == ["NOT_FOUND"]
    assert comment_on(things, collection="nowhere").codes == ["NOT_FOUND"]


def test_only_those_who_can_read_an_item_comment_on_it(
    stage: Stage, things: Table, somebody: Client
) -> None:
    body = {"collection": things.name, "item": 1, "comment": "x"}
    assert somebody.post("/activity/comment", body).status == 403
    assert stage.anonymous.post("/activity/comment", body).status == 401
    key = comment_on(things).data["id"]
    assert somebody.patch(f"/activity/comment/{key}", {"comment": "x"}).status == 403
    assert somebody.delete(f"/comments/{key}").status == 403
    assert stage.anonymous.delete(f"/comments/{key}").status == 401
    assert things.api.get(f"/activity/{key}?fields=comment").data == {"comment": "Well done."}


def test_an_author_without_a_right_to_activity_changes_their_own_comment(
    stage: Stage, somebody: Client
) -> None:
    stage.execute(
        'INSERT INTO system_activity (id, action, "user", collection, item, '
        "comment) SELECT 777777, 'comment', id,"
        " 'x', '1', 'old' FROM system_users WHERE email = 'ann@example.com'"
    )
    assert somebody.patch("/activity/comment/777777", {"comment": "new"}).status == 204
    assert stage.value("SELECT comment FROM system_activity WHERE id = 777777") == "new"
    assert somebody.delete("/comments/777777").status == 204
