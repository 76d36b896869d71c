"""Imports by callers that are no administrators, and into collections of the system."""

from __future__ import annotations

import pytest

from tests.api.test_import import lines
from tests.client import Client, with_other_status
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Stage, Table, field, table

DRAFTS = {"status": {"_eq": "draft"}}


@pytest.fixture
def posts(admin: Client) -> Table:
    posts = table(
        admin, field("title", "string"), field("status", "string"), field("note", "string")
    )
    posts.add({"title": "a", "status": "draft"}, {"title": "b", "status": "live"})
    return posts


def titles(posts: Table) -> list[str]:
    return [str(item["title"]) for item in posts.get(sort="id").data]


def test_nobody_imports_without_a_right_and_refusals_reveal_nothing(
    posts: Table, stage: Stage, anonymous: Client
) -> None:
    reader = member(stage, may(posts.name))
    nowhere = Table(reader, "nowhere")
    answers = [
        post_file(posts, "title\nx\n", api=reader),
        post_file(nowhere, "title\nx\n"),
        post_file(posts, "x\n", api=anonymous),
    ]
    assert with_other_status(answers, 403) == []
    assert len({answer.text for answer in answers}) == 1


def test_what_may_not_be_written_is_refused_before_the_file_is_received(
    posts: Table, anonymous: Client
) -> None:
    answer = anonymous.send(
        "POST",
        f"/utils/import/{posts.name}",
        raw=b"",
        **{"Content-Type": "text/csv", "Content-Length": "100"},
    )
    assert answer.status == 403


def test_a_hidden_field_of_the_header_is_as_one_that_is_not_there(
    posts: Table, stage: Stage
) -> None:
    caller = member(stage, may(posts.name, "title", action="create"), may(posts.name))
    hidden, missing = (
        post_file(posts, f"title,{name}\nx,y\n", api=caller) for name in ("note", "nowhere")
    )
    assert (hidden.status, hidden.text) == (missing.status, missing.text)
    assert (hidden.status, lines(hidden)) == (403, [(1, "FORBIDDEN", None)])
    rows = post_file(
        posts, '{"title": "x"}\n{"note": "y"}\n{"note": "z"}\n', form="jsonl", api=caller
    )
    assert (rows.status, lines(rows)) == (403, [(2, "FORBIDDEN", None)])


def test_rows_that_are_there_need_the_right_to_update_and_others_the_right_to_create(
    posts: Table, stage: Stage
) -> None:
    creator = member(stage, may(posts.name, action="create"), may(posts.name))
    updater = member(stage, may(posts.name, action="update"), may(posts.name))
    refused = post_file(posts, "id,title\n,new\n1,A\n", api=creator)
    assert (refused.status, lines(refused)) == (403, [(3, "FORBIDDEN", None)])
    refused = post_file(posts, "id,title\n1,A\n,new\n", api=updater)
    assert (refused.status, lines(refused)) == (403, [(3, "FORBIDDEN", None)])
    assert titles(posts) == ["a", "b"]
    assert post_file(posts, "id,title\n,new\n", api=creator).data == {"created": 1, "updated": 0}
    assert post_file(posts, "id,title\n1,A\n", api=updater).data == {"created": 0, "updated": 1}
    assert titles(posts) == ["A", "b", "new"]


def test_a_row_fulfils_its_rule_before_and_after(posts: Table, stage: Stage) -> None:
    caller = member(
        stage,
        may(posts.name, action="create", permissions=DRAFTS),
        may(posts.name, action="update", permissions=DRAFTS),
        may(posts.name),
    )
    for body, line in [
        ("id,title\n1,A\n2,B\n2,C\n", 3),
        ("id,status\n1,live\n", 2),
        ("title,status\nx,draft\ny,live\nz,draft\n", 3),
    ]:
        answer = post_file(posts, body, api=caller)
        assert (answer.status, lines(answer)) == (403, [(line, "FORBIDDEN", None)]), answer
    assert titles(posts) == ["a", "b"]
    assert post_file(posts, "id,title,status\n1,A,draft\n,x,draft\n", api=caller).data == {
        "created": 1,
        "updated": 1,
    }


def test_a_key_that_the_caller_does_not_see_is_new_and_therefore_taken(
    posts: Table, stage: Stage
) -> None:
    caller = member(
        stage,
        may(posts.name, action="create"),
        may(posts.name, action="update"),
        may(posts.name, permissions=DRAFTS),
    )
    answer = post_file(posts, "id,title\n1,A\n2,B\n", api=caller)
    assert (answer.status, lines(answer)) == (400, [(3, "RECORD_NOT_UNIQUE", "id")])
    assert titles(posts) == ["a", "b"]


def test_who_may_create_and_not_read_may_choose_keys(posts: Table, stage: Stage) -> None:
    caller = member(stage, may(posts.name, action="create"))
    assert post_file(posts, "id,title\n9,new\n", api=caller).data == {"created": 1, "updated": 0}
    taken = post_file(posts, "id,title\n1,A\n", api=caller)
    assert (taken.status, taken.codes) == (400, ["RECORD_NOT_UNIQUE"])


def test_presets_and_validation_apply_to_every_row(posts: Table, stage: Stage) -> None:
    rule = {"title": {"_starts_with": "ok"}}
    caller = member(
        stage,
        may(posts.name, "title", action="create", presets={"status": "draft"}, validation=rule),
        may(posts.name),
    )
    refused = post_file(posts, "title\nok\nbad\n", api=caller)
    assert (refused.status, lines(refused)) == (422, [(3, "FAILED_VALIDATION", "title")])
    assert post_file(posts, "title\nok\n", api=caller).data["created"] == 1
    assert posts.column("status", "sort=-id&limit=1") == ["draft"]


def test_people_and_rights_are_imported_by_nobody(admin: Client, stage: Stage) -> None:
    """They have endpoints of their own, and what stands in a file of them is not even looked at."""
    caller = member(stage, may("system_users", action="create"), may("system_users"))
    for name in (
        "system_users",
        "system_roles",
        "system_permissions",
        "system_settings",
        "system_activity",
    ):
        for each in (admin, caller):
            answer = post_file(
                Table(admin, name), "email,status\nann@example.com,active\n", api=each
            )
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert admin.get("/users", **{"filter[email]": "ann@example.com"}).data == []


def test_what_no_call_writes_is_not_imported(admin: Client, stage: Stage) -> None:
    single = table(admin, field("name", "string"), singleton=True)
    stage.execute("CREATE VIEW looks AS SELECT 1 AS id, 'a' AS name")
    statuses = {single.name: 404, "looks": 403, "nowhere": 404}
    assert {
        name: post_file(Table(admin, name), "name\na\n").status for name in statuses
    } == statuses
