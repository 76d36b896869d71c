"""SEARCH and QUERY with the parameters in the body."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.things import Table, field, table


@pytest.fixture(scope="module")
def books(admin: Client) -> Table:
    books = table(
        admin, field("title", "string"), field("pages", "integer"), field("price", "decimal")
    )
    books.add(
        *(
            {"title": title, "pages": 10 * n, "price": f"{n}.10"}
            for n, title in enumerate("abcd", start=1)
        )
    )
    return books


@pytest.mark.parametrize("method", ["SEARCH", "QUERY"])
def test_the_body_takes_every_parameter_of_a_query_string(books: Table, method: str) -> None:
    query = {
        "fields": ["title", "length"],
        "alias": {"length": "pages"},
        "filter": {"_or": [{"pages": {"_gt": 20}}, {"title": {"_in": ["a"]}}]},
        "sort": ["-pages"],
        "limit": 2,
        "page": 1,
        "meta": ["filter_count"],
        "search": None,
        "deep": None,
        "aggregate": None,
    }
    answer = books.api.send(method, books.path, {"query": query})
    assert answer.body == {
        "data": [{"title": "d", "length": 40}, {"title": "c", "length": 30}],
        "meta": {"filter_count": 3},
    }


def test_comma_lists_and_json_texts_are_taken_too(books: Table) -> None:
    query = {"fields": "id,title", "filter": '{"title":"b"}', "sort": "-id,title", "limit": "5"}
    assert books.api.search(books.path, query).data == [{"id": 2, "title": "b"}]


def test_an_empty_query_is_the_usual_list(books: Table) -> None:
    bodies: list[dict[str, Any] | None] = [
        None,
        {},
        {"query": {}},
        {"query": {"filter": None, "limit": None}},
    ]
    for body in bodies:
        assert len(books.api.send("SEARCH", books.path, body).data) == 4


def test_numbers_in_the_body_keep_their_digits(books: Table) -> None:
    raw = '{"query":{"filter":{"price":{"_eq":1.100000000000000000000000000001}}}}'
    assert books.api.send("SEARCH", books.path, raw=raw).data == []
    assert len(books.api.send("SEARCH", books.path, raw=raw.replace("0" * 28 + "1", "")).data) == 1


def test_aggregates_in_the_body(books: Table) -> None:
    query = {
        "aggregate": {"count": "*", "max": ["pages"]},
        "groupBy": ["title"],
        "sort": ["-title"],
        "limit": 1,
    }
    assert books.api.search(books.path, query).data == [
        {"title": "d", "count": 1, "max": {"pages": 40}}
    ]


@pytest.mark.parametrize("body", [[], 5, "x", {"query": None}, {"query": []}, {"query": "x"}])
def test_a_body_without_parameters_is_refused(books: Table, body: Any) -> None:
    answer = books.api.send("SEARCH", books.path, body)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"query": {"limit": 1.5}},
        {"query": {"limit": True}},
        {"query": {"limit": []}},
        {"query": {"fields": [1]}},
        {"query": {"fields": {"a": "title"}}},
        {"query": {"fields": 5}},
        {"query": {"sort": [["id"]]}},
        {"query": {"filter": 5}},
        {"query": {"filter": {"title": {"_eq": {"a": 1}}}}},
        {"query": {"search": ["a"]}},
        {"query": {"alias": []}},
        {"query": {"alias": {"a": 1}}},
        {"query": {"aggregate": {"count": 1}}},
        {"query": {"aggregate": []}},
        {"query": {"meta": 1}},
        {"query": {"deep": [1]}},
        {"query": {"fields": ["id"], "deep": {"id": 5}}},
        {"query": {"fields": ["id"], "deep": {"id": {"_limit": 1}}}},
    ],
)
def test_a_wrong_parameter_in_the_body_is_refused(books: Table, body: Any) -> None:
    answer = books.api.send("SEARCH", books.path, body)
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"]), answer.text


def test_it_obeys_the_same_rights(books: Table) -> None:
    anonymous = Client(books.api.app)
    answer = anonymous.search(books.path, {})
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])
    assert books.api.search("/items/nowhere", {}).codes == ["NOT_FOUND"]


@pytest.mark.parametrize("method", ["SEARCH", "QUERY"])
def test_one_item_is_read_with_the_parameters_in_the_body_too(
    admin: Client, books: Table, method: str
) -> None:
    role = admin.get("/users/me?fields=role").data["role"]
    folder = admin.post("/folders", {"name": "pictures"}).data["id"]
    activity = admin.get("/activity?limit=1").data[0]["id"]
    query = {"fields": ["id"], "alias": {"same": "id"}}
    for path, key in (
        (f"{books.path}/1", 1),
        ("/users/me", admin.get("/users/me").data["id"]),
        (f"/roles/{role}", role),
        (f"/folders/{folder}", folder),
        (f"/activity/{activity}", activity),
    ):
        assert admin.send(method, path, {"query": query}).data == {"id": key}, path
        assert admin.send(method, path, {"query": {}}).data == admin.get(path).data, path
        assert admin.send(method, path, {"filter": {}}).status == 400, path
    assert books.api.send(method, f"{books.path}/99", {"query": {}}).codes == ["NOT_FOUND"]
    hidden = {"filter": {"title": "b"}}
    assert books.api.send(method, f"{books.path}/1", {"query": hidden}).codes == ["NOT_FOUND"]
