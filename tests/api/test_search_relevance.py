"""What a search finds, sorted by how well it fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, Table, field, table

BEST_FIRST = [
    {"title": "A cat", "body": "x"},
    {"title": "x", "body": "The cat!"},
    {"title": "Concatenated", "body": "x"},
    {"title": "x", "body": "cats"},
]


@pytest.fixture(scope="module")
def articles(admin: Client) -> Table:
    title = {**field("title", "string"), "meta": {"search_weight": 10}}
    articles = table(admin, title, field("body", "text"), field("number", "integer"))
    articles.add(*reversed(BEST_FIRST))
    return articles


def positions(articles: Table, query_string: str) -> list[Any]:
    """The positions in `BEST_FIRST` of the rows of an answer, in its order."""
    items = articles.read(query_string).data
    return [BEST_FIRST.index({key: item[key] for key in ("title", "body")}) for item in items]


def test_whole_words_come_before_parts_and_fields_that_count_more_before_others(
    articles: Table,
) -> None:
    assert positions(articles, "search=CAT&sort=_relevance") == [0, 1, 2, 3]
    assert positions(articles, "search=cat&sort=-_relevance") == [3, 2, 1, 0]


def test_every_word_counts_and_later_terms_decide_between_equals(articles: Table) -> None:
    assert positions(articles, "search=a+cat&sort=_relevance,-id")[0] == 0
    assert positions(articles, "search=x&sort=_relevance,-id&fields=*") == [1, 3, 0, 2]


@pytest.mark.parametrize("word", ["c.t", "(cat", "cat)", "[", "*", "\\", "c++", "^cat$", "{2}"])
def test_no_letter_of_a_word_is_special_in_an_order_by_relevance(
    articles: Table, word: str
) -> None:
    answer = articles.get(search=word, sort="_relevance")
    assert (answer.status, answer.data) == (200, [])


def test_letters_that_mean_something_in_patterns_are_whole_words_like_others(
    admin: Client,
) -> None:
    things = table(admin, field("name", "string"))
    things.add({"name": "c+++"}, {"name": "xc++"}, {"name": "in c++ (new)"}, {"name": "ΣΟΦΟΣ"})
    assert things.column("id", "search=c%2B%2B&sort=_relevance") == [1, 3, 2]
    assert things.column("id", "search=(new)&sort=_relevance") == [3]


def test_a_number_counts_as_a_whole_word(articles: Table, admin: Client) -> None:
    things = table(admin, field("name", "string"), field("size", "integer"))
    things.add({"name": "about 70"}, {"name": "x", "size": 7}, {"name": "7"})
    assert things.column("id", "search=7&sort=_relevance") == [2, 3, 1]


def test_without_a_search_there_is_no_relevance(articles: Table) -> None:
    for query_string in (
        "sort=_relevance",
        "sort=-_relevance&search=",
        "sort=_relevance&search=+",
        "sort=_relevance&search=cat&aggregate[count]=*&groupBy=title",
    ):
        refused = articles.read(query_string)
        assert refused.codes == ["INVALID_QUERY"], query_string
        assert refused.errors[0]["parameter"] == "sort"


def test_other_problems_do_not_make_the_order_one(articles: Table) -> None:
    refused = articles.read("search=cat&sort=_relevance&filter[number][_contains]=1")
    assert refused.codes == ["INVALID_QUERY"]
    assert "_contains" in refused.text


def test_pages_by_cursor_go_through_the_order(articles: Table) -> None:
    pages = []
    query = "search=cat&sort=_relevance&limit=1&meta=next_cursor"
    after = ""
    while True:
        answer = articles.read(f"{query}{after}")
        pages += [item["id"] for item in answer.data]
        if (token := answer.body["meta"]["next_cursor"]) is None:
            break
        after = f"&page[after]={token}"
    assert pages == articles.column("id", "search=cat&sort=_relevance") == [4, 3, 2, 1]


def test_lists_in_items_are_sorted_by_their_own_search(admin: Client) -> None:
    parents = table(admin, field("name", "string"))
    children = table(admin, field("name", "string"), field("parent", "integer"))
    relation = {
        "collection": children.name,
        "field": "parent",
        "related_collection": parents.name,
        "meta": {"one_field": "children"},
    }
    assert admin.post("/relations", relation).status == 200
    parents.add({"name": "one"})
    children.add({"name": "reddish", "parent": 1}, {"name": "red", "parent": 1})
    query = "fields=children.id&deep[children][_search]=red&deep[children][_sort]=_relevance"
    assert parents.read(query).data == [{"children": [{"id": 2}, {"id": 1}]}]


def test_a_field_that_the_caller_may_not_read_moves_nothing(admin: Client, stage: Stage) -> None:
    secret = {**field("secret", "string"), "meta": {"search_weight": 1000}}
    things = table(admin, field("name", "string"), field("mine", "boolean"), secret)
    things.add(
        {"name": "cats", "mine": False, "secret": "cat"},
        {"name": "cats", "mine": True, "secret": "dog"},
        {"name": "cats", "mine": False, "secret": "dog"},
        {"name": "cats", "mine": True, "secret": "cat"},
    )
    everyone = may(things.name, "id", "name")
    own = may(things.name, "secret", permissions={"mine": {"_eq": True}})
    query = "search=cat&sort=_relevance&fields=id"
    reader = Table(member(stage, everyone), things.name)
    assert reader.column("id", query) == [1, 2, 3, 4]
    owner = Table(member(stage, everyone, own), things.name)
    assert owner.column("id", query) == [4, 1, 2, 3]
    assert things.column("id", query) == [1, 4, 2, 3]


@pytest.mark.parametrize("weight", [0, 1001, 1.5, "much", True])
def test_a_weight_is_a_whole_number_within_limits(articles: Table, weight: object) -> None:
    refused = articles.api.patch(
        f"/fields/{articles.name}/number", {"meta": {"search_weight": weight}}
    )
    assert refused.codes == ["INVALID_PAYLOAD"]
