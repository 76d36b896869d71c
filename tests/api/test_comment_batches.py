"""Several comments in one call: written, changed and deleted together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from cms.config import Config
from cms.items.history.mentions import MAX_MENTIONS, MAX_MENTIONS_OF_CALL
from tests.client import Answer, Client
from tests.members import may, member_of, new_role
from tests.statements import counted
from tests.things import Stage, Table, field, filled_things, staged, table

PATHS = ("/comments", "/activity/comment")

MANY = 2000
MAX_STATEMENTS = 30

Comment = dict[str, Any]


things = filled_things([field("title", "string")], [{"title": "a"}, {"title": "b"}])


@pytest.fixture(scope="module")
def reader(stage: Stage, things: Table) -> Client:
    """A user who reads the items and all activity of them."""
    return member_of(stage, new_role(stage, may(things.name), may("system_activity")))


@pytest.fixture(scope="module")
def writer(stage: Stage, things: Table) -> Client:
    """A user who reads the items, but no activity."""
    return member_of(stage, new_role(stage, may(things.name)))


def on(things: Table, text: str, item: object = 1) -> Comment:
    return {"collection": things.name, "item": item, "comment": text}


def keys_of(author: Client, things: Table, *texts: str) -> list[int]:
    """Write a comment of each text, and return their keys."""
    written = author.post("/comments?fields=id", [on(things, text) for text in texts])
    return [comment["id"] for comment in written.data]


def texts_of(admin: Client, keys: list[int]) -> list[str]:
    query = {"filter": {"id": {"_in": keys}}, "sort": ["id"], "fields": ["comment"]}
    return [comment["comment"] for comment in admin.search("/comments", query).data]


def count(stage: Stage) -> int:
    return int(stage.value("SELECT count(*) FROM system_activity WHERE action = 'comment'"))


# New comments


@pytest.mark.parametrize("path", PATHS)
def test_an_array_of_comments_is_written_and_answered_in_its_order(
    admin: Client, things: Table, path: str
) -> None:
    other = table(admin, field("id", "string", is_primary_key=True))
    other.add({"id": "x"})
    sent = [
        on(things, "One.", 2),
        {"collection": other.name, "item": "x", "comment": "Two."},
        on(things, "Three.", "1"),
    ]
    written = admin.post(path, sent).data
    assert [{name: each[name] for name in sent[0]} for each in written] == [
        {**each, "item": str(each["item"])} for each in sent
    ]
    assert {each["user"] for each in written} == {admin.get("/users/me").data["id"]}
    assert {each["action"] for each in written} == {"comment"}
    for each in written:
        assert admin.get(f"/comments/{each['id']}").data == each


def test_every_comment_on_an_item_has_the_same_text_for_its_key(
    stage: Stage, admin: Client
) -> None:
    stage.execute("CREATE TABLE prices (id numeric(6, 2) PRIMARY KEY, name text)")
    stage.execute("INSERT INTO prices VALUES (1, 'a'), (2.5, 'b')")
    sent = [{"collection": "prices", "item": item, "comment": "x"} for item in (1, "2.50", 2)]
    assert admin.post("/comments", sent).codes == ["NOT_FOUND"]
    written = admin.post("/comments?fields=item", sent[:2]).data
    assert written == [{"item": "1.00"}, {"item": "2.50"}]
    assert admin.post("/comments?fields=item", sent[0]).data == {"item": "1.00"}


def test_no_comment_of_an_array_is_written_if_one_item_cannot_be_read(
    stage: Stage, things: Table, reader: Client
) -> None:
    before = count(stage)
    for item in (99, "x"):
        answer = reader.post("/comments", [on(things, "Good."), on(things, "Bad.", item)])
        assert answer.codes == ["NOT_FOUND"]
    hidden = {"collection": "system_users", "item": 1, "comment": "Bad."}
    assert reader.post("/comments", [on(things, "Good."), hidden]).codes == ["FORBIDDEN"]
    only_first = may(things.name, permissions={"title": {"_eq": "a"}})
    narrow = member_of(stage, new_role(stage, only_first))
    both = [on(things, "Good."), on(things, "Hidden.", 2)]
    assert narrow.post("/comments", both).codes == ["NOT_FOUND"]
    assert stage.anonymous.post("/comments", both).codes == ["INVALID_CREDENTIALS"]
    assert count(stage) == before


def test_a_bad_array_is_refused_with_every_place(stage: Stage, things: Table) -> None:
    before = count(stage)
    sent = [on(things, "Good."), on(things, " "), "text", {**on(things, "x"), "user": None}]
    answer = things.api.post("/comments", sent)
    assert answer.status == 400
    reported = [(error["index"], error.get("path")) for error in answer.errors]
    assert reported == [(1, ["comment"]), (2, None), (3, ["user"])]
    assert things.api.post("/comments", "text").codes == ["INVALID_PAYLOAD"]
    assert count(stage) == before


def test_an_answer_names_a_hundred_problems_at_most(things: Table) -> None:
    answer = things.api.post("/comments", [{}] * 200)
    assert (answer.status, len(answer.errors)) == (400, 100)


def test_a_repeated_call_with_its_key_writes_an_array_once(stage: Stage, things: Table) -> None:
    sent = [on(things, "Once."), on(things, "Twice.")]
    before = count(stage)
    answers = [
        things.api.send("POST", "/comments", sent, **{"Idempotency-Key": "several comments"})
        for _ in range(2)
    ]
    assert answers[0].data == answers[1].data
    assert count(stage) == before + 2


# Changes


@pytest.mark.parametrize("path", PATHS)
def test_comments_get_texts_of_their_own_or_one_text(
    admin: Client, things: Table, reader: Client, path: str
) -> None:
    first, second = keys_of(reader, things, "First", "Second")
    own = [{"id": second, "comment": "Two"}, {"id": str(first), "comment": "One"}]
    changed = reader.patch(f"{path}?fields=id,comment", own).data
    assert changed == [{"id": second, "comment": "Two"}, {"id": first, "comment": "One"}]
    same = {"keys": [second, first, str(second)], "data": {"comment": "Same"}}
    assert reader.patch(f"{path}?fields=id", same).data == [{"id": second}, {"id": first}]
    assert texts_of(admin, [first, second]) == ["Same", "Same"]
    query = {"filter": {"comment": {"_eq": "Same"}}, "sort": ["-id"], "limit": 1}
    by_query = {"query": query, "data": {"comment": "Last"}}
    assert reader.patch(f"{path}?fields=id", by_query).data == [{"id": second}]
    assert texts_of(admin, [first, second]) == ["Same", "Last"]


def test_a_query_selects_comments_and_no_other_activity(
    stage: Stage, admin: Client, things: Table
) -> None:
    things.api.patch(things.path, {"keys": [1], "data": {"title": "a"}})
    others = "SELECT count(*) FROM system_activity WHERE action <> 'comment'"
    before = stage.value(others)
    (key,) = keys_of(admin, things, "Found")
    everything = {"filter": {"collection": {"_eq": things.name}}}
    change = {"query": everything, "data": {"comment": "Changed"}}
    assert key in [each["id"] for each in admin.patch("/comments", change).data]
    assert stage.value(f"{others} AND comment = 'Changed'") == 0
    assert admin.delete("/comments", {"query": everything}).status == 204
    assert admin.search("/comments", everything).data == []
    assert stage.value(others) == before


REFUSED_CHANGES: list[tuple[object, list[tuple[object, object]]]] = [
    ([{"comment": "x"}, {"id": 1}], [(0, "id"), (1, "comment")]),
    ([{"id": "one", "comment": "x"}, {"id": True, "comment": "x"}], [(0, "id"), (1, "id")]),
    ([{"id": 1, "comment": "x"}, {"id": "1", "comment": "y"}], [(1, "id")]),
    ([{"id": 1, "comment": "x", "item": "2"}], [(None, "item")]),
    ([1], [(None, None)]),
    ({"keys": [1], "data": {"comment": ""}}, [(None, "comment")]),
    ({"keys": [1], "data": {"comment": "x", "collection": "y"}}, [(None, "collection")]),
    ({"keys": [1], "data": []}, [(None, None)]),
    ({"keys": [1]}, [(None, None)]),
    ({"data": {"comment": "x"}}, [(None, "keys")]),
    ({"keys": [1], "query": {}, "data": {"comment": "x"}}, [(None, "keys")]),
    ({"keys": 1, "data": {"comment": "x"}}, [(None, "keys")]),
    ({"keys": [None], "data": {"comment": "x"}}, [(None, "keys")]),
    ({"query": {"filtr": {}}, "data": {"comment": "x"}}, [(None, "query")]),
    ("text", [(None, None)]),
    (None, [(None, None)]),
]


@pytest.mark.parametrize(("body", "expected"), REFUSED_CHANGES)
def test_a_bad_change_of_several_is_refused_with_its_places(
    admin: Client, body: object, expected: list[tuple[object, object]]
) -> None:
    answer = admin.patch("/comments", body)
    assert (answer.status, {*answer.codes}) == (400, {"INVALID_PAYLOAD"})
    assert [(error.get("index"), error.get("field")) for error in answer.errors] == expected


# Deletions


@pytest.mark.parametrize("path", PATHS)
def test_comments_are_deleted_by_keys_and_by_query(
    admin: Client, things: Table, reader: Client, path: str
) -> None:
    keys = keys_of(reader, things, "a", "b", "c", "d", "e")
    assert reader.delete(path, [keys[0], str(keys[0]), keys[1]]).status == 204
    assert reader.delete(path, {"keys": [keys[2]]}).status == 204
    assert reader.delete(path, {"query": {"filter": {"id": {"_eq": keys[3]}}}}).status == 204
    assert texts_of(admin, keys) == ["e"]


@pytest.mark.parametrize("body", [None, "x", {}, {"keys": 1}, {"keys": [[]]}, [{}]])
def test_a_bad_deletion_of_several_is_refused(admin: Client, body: object) -> None:
    assert admin.delete("/comments", body).codes == ["INVALID_PAYLOAD"]


# Rights


def changed(caller: Client, keys: list[Any]) -> Answer:
    return caller.patch("/comments", {"keys": keys, "data": {"comment": "x"}})


def changed_each(caller: Client, keys: list[Any]) -> Answer:
    return caller.patch("/comments", [{"id": key, "comment": "x"} for key in keys])


def deleted(caller: Client, keys: list[Any]) -> Answer:
    return caller.delete("/comments", keys)


WRITES = pytest.mark.parametrize("write", [changed, changed_each, deleted])


@WRITES
def test_one_comment_of_somebody_else_refuses_them_all(
    admin: Client, things: Table, reader: Client, write: Callable[[Client, list[Any]], Answer]
) -> None:
    own = keys_of(reader, things, "Mine", "Mine")
    foreign = keys_of(admin, things, "Yours")
    for keys in (own + foreign, foreign + own):
        assert write(reader, keys).codes == ["FORBIDDEN"]
    assert texts_of(admin, own + foreign) == ["Mine", "Mine", "Yours"]
    assert write(reader, own).status in (200, 204)
    assert write(admin, foreign).status in (200, 204)


@WRITES
def test_one_unknown_or_hidden_comment_refuses_them_all(
    stage: Stage,
    admin: Client,
    things: Table,
    reader: Client,
    write: Callable[[Client, list[Any]], Answer],
) -> None:
    (own,) = keys_of(reader, things, "Mine")
    (foreign,) = keys_of(admin, things, "Yours")
    hidden_things = table(admin, field("title", "string"))
    hidden_things.add({"title": "hidden"})
    (hidden,) = keys_of(admin, hidden_things, "Hidden")
    creations = {"collection": {"_eq": things.name}, "action": {"_eq": "create"}}
    other = admin.search("/activity", {"filter": creations, "limit": 1}).data[0]["id"]
    for key in (hidden, 2**62, other):
        # The same whatever else is in the call, and in any order.
        for keys in ([own, key], [key, own], [foreign, key], [key, foreign]):
            assert write(reader, keys).codes == ["NOT_FOUND"]
    assert texts_of(admin, [own, foreign, hidden]) == ["Mine", "Yours", "Hidden"]


@WRITES
def test_who_may_not_read_activity_writes_their_own_comments_only(
    admin: Client, things: Table, writer: Client, write: Callable[[Client, list[Any]], Answer]
) -> None:
    assert writer.post("/comments", [on(things, "Mine"), on(things, "Too")]).status == 204
    mine = admin.get("/comments?fields=id&sort=-id&limit=2").data
    own = [comment["id"] for comment in mine]
    (foreign,) = keys_of(admin, things, "Yours")
    # The same for comments that are there and for those that are not.
    assert write(writer, [*own, foreign]).codes == ["FORBIDDEN"]
    assert write(writer, [*own, 2**62]).codes == ["FORBIDDEN"]
    assert write(writer, own).status == 204


@WRITES
def test_nobody_writes_comments_without_credentials(
    stage: Stage, admin: Client, things: Table, write: Callable[[Client, list[Any]], Answer]
) -> None:
    keys = keys_of(admin, things, "Mine")
    assert write(stage.anonymous, keys).codes == ["INVALID_CREDENTIALS"]
    assert texts_of(admin, keys) == ["Mine"]


def test_a_query_over_comments_of_others_is_refused(
    admin: Client, things: Table, reader: Client, writer: Client
) -> None:
    own = keys_of(reader, things, "Mine")
    foreign = keys_of(admin, things, "Yours")
    query = {"filter": {"id": {"_in": own + foreign}}}
    for caller in (reader, writer):
        assert caller.delete("/comments", {"query": query}).codes == ["FORBIDDEN"]
    assert texts_of(admin, own + foreign) == ["Mine", "Yours"]
    of_oneself = {"filter": {"user": {"_eq": "$CURRENT_USER"}, **query["filter"]}}
    assert reader.delete("/comments", {"query": of_oneself}).status == 204
    assert texts_of(admin, own + foreign) == ["Yours"]


# None, and many


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_done_for_no_comments(
    stage: Stage, admin: Client, writer: Client, path: str
) -> None:
    before = count(stage)
    for caller in (admin, writer):
        assert caller.post(path, []).data == []
        assert caller.patch(path, []).data == []
        assert caller.patch(path, {"keys": [], "data": {"comment": "x"}}).data == []
        assert caller.delete(path, []).status == 204
        assert caller.delete(path, {"keys": []}).status == 204
    assert stage.anonymous.post(path, []).status == 401
    assert count(stage) == before


def test_many_comments_take_a_few_statements(
    things: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [on(things, f"Number {number}", 1 + number % 2) for number in range(MANY)]
    with counted(monkeypatch) as statements:
        written = things.api.post("/comments?fields=id,comment", sent).data
        keys = [comment["id"] for comment in written]
        changes = [{"id": key, "comment": "Changed"} for key in reversed(keys)]
        assert len(things.api.patch("/comments?fields=id", changes).data) == MANY
        assert things.api.delete("/comments", keys).status == 204
    assert [comment["comment"] for comment in written] == [each["comment"] for each in sent]
    assert len(statements) < MAX_STATEMENTS


def test_an_answer_that_is_too_large_undoes_the_write(
    settings: Config, make_database: Callable[..., str], template: str
) -> None:
    small = replace(settings, max_answer_size=4000)
    with staged(small, make_database, template) as stage:
        things = table(stage.admin, field("title", "string"))
        things.add({"title": "a"})
        sent = [on(things, "x" * 900) for _ in range(5)]
        answer = stage.admin.post("/comments", sent)
        assert (answer.codes, answer.errors[0]["limit"]) == (["INVALID_QUERY"], 4000)
        assert count(stage) == 0
        assert len(stage.admin.post("/comments?fields=id", sent).data) == 5


# Mentions


def notifications(stage: Stage, user: str) -> list[str]:
    """Return the messages that a user has got, the oldest first."""
    messages_as_json = "coalesce(json_agg(message ORDER BY id), '[]') FROM system_notifications"
    messages: list[str] = stage.value(f"SELECT {messages_as_json} WHERE recipient = '{user}'")
    return messages


def test_users_are_notified_of_each_comment_that_mentions_them(
    stage: Stage, admin: Client, things: Table
) -> None:
    only_first = may(things.name, permissions={"title": {"_eq": "a"}})
    users = [
        member_of(stage, new_role(stage, may(things.name), app_access=True)),
        member_of(stage, new_role(stage, only_first, app_access=True)),
        member_of(stage, new_role(stage, app_access=True)),
    ]
    everything, first, nothing = [user.get("/users/me").data["id"] for user in users]
    text = f"@{everything} @{first} @{nothing} @{uuid4()}"
    sent = [on(things, f"{text} 1"), on(things, f"{text} 2", 2), on(things, f"@{first} 3")]
    keys = [comment["id"] for comment in admin.post("/comments", sent).data]
    assert notifications(stage, everything) == [f"{text} 1", f"{text} 2"]
    assert notifications(stage, first) == [f"{text} 1", f"@{first} 3"]
    assert notifications(stage, nothing) == []
    # Of a change only those learn whom the comment did not mention before.
    changes = {"keys": keys, "data": {"comment": f"@{everything}"}}
    assert admin.patch("/comments", changes).status == 200
    assert notifications(stage, everything)[2:] == [f"@{everything}"]


def test_a_call_that_mentions_too_many_is_refused(stage: Stage, things: Table) -> None:
    text = " ".join(f"@{uuid4()}" for _ in range(MAX_MENTIONS + 1))
    fitting = [on(things, text)] * (MAX_MENTIONS_OF_CALL // MAX_MENTIONS)
    before = count(stage)
    too_many = things.api.post("/comments", [*fitting, on(things, f"@{uuid4()}")])
    assert too_many.codes == ["INVALID_PAYLOAD"]
    assert too_many.errors[0]["limit"] == MAX_MENTIONS_OF_CALL
    assert count(stage) == before
    assert things.api.post("/comments", fitting).status == 200
