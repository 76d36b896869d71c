"""PATCH /items/{collection} and /items/{collection}/{id}."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table
from tests.waiting import eventually


@pytest.fixture
def books(stage: Stage) -> Table:
    """Three books: 1 a, 2 b, 3 c."""
    books = stage.empty_table(
        field("title", "string", is_nullable=False),
        field("pages", "integer"),
        field("changed", "timestamp", special="date-updated"),
    )
    books.add(*({"title": title, "pages": 10} for title in "abc"))
    return books


def titles(books: Table) -> list[str]:
    titles: list[str] = books.column("title", "sort=id")
    return titles


def test_one_item_gets_what_is_sent_and_keeps_the_rest(books: Table) -> None:
    changed = books.api.patch(f"{books.path}/2", {"title": "B"}).data
    assert (changed["id"], changed["title"], changed["pages"]) == (2, "B", 10)
    assert changed["changed"] > "2020"
    assert titles(books) == ["a", "B", "c"]


def test_a_field_can_be_set_to_null(books: Table) -> None:
    assert books.api.patch(f"{books.path}/2", {"pages": None}).data["pages"] is None
    answer = books.api.patch(f"{books.path}/2", {"title": None})
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (
        422,
        ["FAILED_VALIDATION"],
        "title",
    )


def test_an_answer_shows_rows_of_the_written_collection_as_they_now_are(admin: Client) -> None:
    pages = table(admin, field("title", "string"), field("parent", "integer"))
    relation = {"collection": pages.name, "field": "parent", "related_collection": pages.name}
    assert admin.post("/relations", relation).status == 200
    pages.add({"id": 1, "title": "a", "parent": 1})
    changed = admin.patch(f"{pages.path}/1?fields=title,parent.title", {"title": "b"})
    assert changed.data == {"title": "b", "parent": {"title": "b"}}


def test_an_empty_change_answers_the_item_as_it_is(admin: Client) -> None:
    plain = table(admin, field("title", "string"))
    plain.add({"title": "a"})
    assert admin.patch(f"{plain.path}/1", {}).data == {"id": 1, "title": "a"}
    assert admin.patch(f"{plain.path}/1", {"id": 1}).data == {"id": 1, "title": "a"}
    assert admin.patch(f"{plain.path}/2", {}).status == 404


def test_an_item_that_is_not_there_is_not_found(books: Table) -> None:
    for key in ("4", "x", "1.5", "99999999999999999999", "%00", "1%20or%201=1"):
        answer = books.api.patch(f"{books.path}/{key}", {"title": "x"})
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), key


def test_the_key_of_an_item_is_changed_unless_another_item_has_it(books: Table) -> None:
    assert books.api.patch(f"{books.path}/1", {"id": 1, "title": "A"}).data["title"] == "A"
    taken = books.api.patch(books.path, {"keys": [1, 2], "data": {"id": 1}})
    assert taken.codes == ["RECORD_NOT_UNIQUE"]
    assert books.api.patch(f"{books.path}/1", {"id": 9}).data["id"] == 9
    assert books.api.get(f"{books.path}/1").status == 404


def test_several_items_get_the_same_by_keys(books: Table) -> None:
    changed = books.api.patch(
        f"{books.path}?fields=id,title", {"keys": [3, 1, 3], "data": {"title": "x"}}
    ).data
    assert changed == [{"id": 3, "title": "x"}, {"id": 1, "title": "x"}]
    assert titles(books) == ["x", "b", "x"]


def test_several_items_each_get_their_own_by_an_array(books: Table) -> None:
    sent = [{"id": 3, "title": "C"}, {"id": 1, "pages": 1}, {"id": "2", "title": "B", "pages": 2}]
    changed = books.api.patch(f"{books.path}?fields=id,title,pages", sent).data
    assert [tuple(item.values()) for item in changed] == [(3, "C", 10), (1, "a", 1), (2, "B", 2)]


def test_an_item_whose_key_is_the_empty_text_is_one_like_any_other(admin: Client) -> None:
    shelves = table(admin, field("code", "string", is_primary_key=True), field("room", "string"))
    books = table(admin, field("title", "string"), field("shelf", "string"))
    relation = {"collection": books.name, "field": "shelf", "related_collection": shelves.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "books"}}).status == 200
    shelves.add({"code": "", "room": "a"})
    empty: Json = {"code": "", "room": "b", "books": []}
    # No path leads to it: one with a slash too many at its end is that of the collection.
    body = {"keys": [""], "data": {"room": "b"}}
    assert admin.patch(shelves.path, body).data == [empty]
    empty["room"] = "c"
    body = {"keys": [""], "data": {"room": "c"}}
    assert admin.patch(shelves.path, body).data == [empty]
    empty["room"] = "d"
    assert admin.patch(shelves.path, [{"code": "", "room": "d"}]).data == [empty]
    shelf = {"code": "", "room": "e"}
    books.add({"title": "t", "shelf": shelf}, {"title": "u", "shelf": {"code": ""}})
    empty = {"code": "", "room": "e", "books": [1, 2]}
    assert shelves.read("").data == [empty]
    lists = {"books": {"create": [{"title": "v"}], "delete": [1]}}
    assert admin.patch(shelves.path, [{"code": "", **lists}]).data[0]["books"] == [2, 3]
    assert admin.patch(shelves.path, [{"code": "", "books": [1]}]).data[0]["books"] == [1]
    assert admin.delete(shelves.path, [""]).status == 204
    assert shelves.read("").data == []


@pytest.mark.parametrize("who", ["admin", "member"])
def test_a_missing_key_is_reported_once(books: Table, stage: Stage, who: str) -> None:
    caller = member(stage, may(books.name), may(books.name, action="update"))
    api = books.api if who == "admin" else caller
    answer = api.patch(books.path, [{"id": 1, "title": "A"}, {"id": None, "title": "B"}])
    assert [(error["code"], error["index"]) for error in answer.errors] == [("INVALID_PAYLOAD", 1)]


def test_several_items_get_the_same_by_a_query_without_the_usual_limit(admin: Client) -> None:
    numbers = table(admin, field("n", "integer"))
    numbers.add(*({"n": n} for n in range(150)))
    query = {"filter": {"n": {"_gte": 20}}, "sort": "-n", "limit": -1}
    assert len(admin.patch(numbers.path, {"query": query, "data": {"n": 0}}).data) == 130
    assert len(admin.patch(numbers.path, {"query": {}, "data": {"n": 1}}).data) == 150
    first = admin.patch(
        numbers.path, {"query": {"sort": ["-id"], "limit": 1}, "data": {"n": 5}}
    ).data
    assert [item["id"] for item in first] == [150]


@pytest.mark.parametrize(
    "body",
    [
        {"keys": [1, 4], "data": {"title": "x"}},
        [{"id": 1, "title": "x"}, {"id": 4, "title": "x"}],
        {"keys": [1, "nonsense"], "data": {"title": "x"}},
    ],
)
def test_one_unknown_key_refuses_the_whole_batch(books: Table, body: object) -> None:
    answer = books.api.patch(books.path, body)
    assert (answer.status, answer.codes) == (404, ["NOT_FOUND"])
    assert titles(books) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        "x",
        5,
        {"title": "x"},
        {"keys": [1]},
        {"data": {"title": "x"}},
        {"keys": 1, "data": {"title": "x"}},
        {"keys": [[1]], "data": {"title": "x"}},
        {"keys": [None], "data": {"title": "x"}},
        {"keys": [1], "data": []},
        {"keys": [1], "data": None},
        {"query": [], "data": {"title": "x"}},
        [{"title": "x"}],
        [{"id": None, "title": "x"}],
        [{"id": 1}, 5],
        [{"id": 1, "title": "x"}, {"id": "1", "title": "y"}],
        {"keys": [1], "data": {"colour": "red"}},
    ],
)
def test_a_body_of_another_shape_is_refused(books: Table, body: object) -> None:
    answer = books.api.patch(books.path, body)
    assert (answer.status, set(answer.codes) - {"INVALID_PAYLOAD", "FAILED_VALIDATION"}) in (
        (400, set()),
        (422, set()),
    )
    assert titles(books) == ["a", "b", "c"]


def test_a_wrong_query_of_a_batch_is_refused(books: Table) -> None:
    body: Json = {"query": {"filter": {"colour": 1}}, "data": {"title": "x"}}
    assert books.api.patch(books.path, body).codes == ["INVALID_QUERY"]
    assert titles(books) == ["a", "b", "c"]


def test_nothing_of_a_call_stays_when_its_answer_cannot_be_given(books: Table) -> None:
    assert books.api.patch(f"{books.path}/1?fields=colour", {"title": "x"}).status == 400
    assert titles(books) == ["a", "b", "c"]


def test_nobody_but_an_administrator_may_change(stage: Stage) -> None:
    one = table(stage.admin, field("title", "string"))
    one.add({"title": "a"})
    for path in (f"{one.path}/1", f"{one.path}/2", "/items/nowhere/1", one.path):
        answer = stage.anonymous.patch(path, {"title": "x"})
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert one.column("title") == ["a"]


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
    "wait_event_type = 'Lock'"
)


@pytest.mark.release
def test_a_change_that_is_given_up_for_a_deadlock_is_made_again(api: Client, dsn: str) -> None:
    """The other side asks for what the service holds, and waits longer than the
    service before it looks for a cycle.
    """
    pairs = table(api, field("a", "integer"), field("b", "integer"))
    pairs.add({}, {})
    answers: list[Answer] = []
    changes = [{"id": 1, "a": 5}, {"id": 2, "b": 6}]  # two statements: they set different columns
    service = threading.Thread(target=lambda: answers.append(api.patch(pairs.path, changes)))
    with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as watch:
        other.execute("SET deadlock_timeout = '30s'")
        other.execute(f"UPDATE {pairs.name} SET a = 0 WHERE id = 2".encode())
        service.start()
        eventually(lambda: watch.execute(WAITING).fetchone() != (0,))
        other.execute(f"UPDATE {pairs.name} SET b = 0 WHERE id = 1".encode())
    service.join()
    assert answers[0].status == 200
    assert [(item["a"], item["b"]) for item in pairs.get().data] == [(5, 0), (0, 6)]


def test_a_change_that_changes_nothing_is_a_write_without_a_revision(
    stage: Stage, books: Table
) -> None:
    things = table(stage.admin, field("title", "string"))
    things.add({"title": "a"})
    path = f"{things.path}/1"
    read = stage.admin.get(path)
    for body in ({"title": "a"}, read.data):
        assert stage.admin.patch(path, body).data == read.data
    assert len(stage.admin.get(f"{path}/revisions").data) == 1
    actions = stage.admin.get("/activity", **{"filter[collection]": things.name, "sort": "id"})
    assert [activity["action"] for activity in actions.data] == ["create", "update", "update"]
    assert stage.admin.get(path).headers["etag"] != read.headers["etag"]
    # A field that the service fills is a change of its own.
    assert books.api.patch(f"{books.path}/1", {"title": "a"}).data["changed"] is not None
    assert len(books.api.get(f"{books.path}/1/revisions").data) == 2
