"""What a search finds, with its words marked."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, Table, field, filled_things, table

KEY = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


things = filled_things(
    [
        field("title", "string"),
        field("body", "text"),
        field("size", "integer"),
        field("code", "uuid"),
        field("secret", "hash"),
    ],
    [
        {"title": "Crème <b>brûlée</b>", "body": "x", "size": 7, "code": KEY},
        {"title": "x", "body": "Straße & STRASSE", "secret": "x"},
        {"title": None, "body": "7 creme 7"},
    ],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("creme", {1: {"title": "<mark>Crème</mark> &lt;b&gt;brûlée&lt;/b&gt;"}}),
        (
            "creme 7",
            {
                1: {
                    "title": "<mark>Crème</mark> &lt;b&gt;brûlée&lt;/b&gt;",
                    "size": "<mark>7</mark>",
                }
            },
        ),
        ("strasse", {2: {"body": "<mark>Straße</mark> &amp; <mark>STRASSE</mark>"}}),
        ('"creme 7"', {3: {"body": "7 <mark>creme 7</mark>"}}),
        (KEY, {1: {"code": f"<mark>{KEY}</mark>"}}),
        ("<b>", {1: {"title": "Crème <mark>&lt;b&gt;</mark>brûlée&lt;/b&gt;"}}),
    ],
)
def test_the_fields_with_a_word_are_shown_as_html_with_the_words_marked(
    things: Table, text: str, expected: dict[int, dict[str, str]]
) -> None:
    items = things.get(search=text, highlight="true", fields="id").data
    assert {item["id"]: item["_highlights"] for item in items}.items() >= expected.items()
    assert all(item.keys() == {"id", "_highlights"} for item in items)
    answer = things.api.search(things.path, {"search": text, "highlight": True, "fields": ["id"]})
    assert answer.data == items


def test_highlights_go_with_pages_orders_counts_and_single_items(things: Table) -> None:
    query = "search=x&highlight=true&sort=_relevance&limit=1&meta=*&fields=id"
    first = things.read(query)
    assert first.data == [{"id": 1, "_highlights": {"body": "<mark>x</mark>"}}]
    assert first.body["meta"]["filter_count"] == 2
    second = things.read(f"{query}&page[after]={first.body['meta']['next_cursor']}")
    assert second.data == [{"id": 2, "_highlights": {"title": "<mark>x</mark>"}}]
    assert things.read(f"{query}&page=2").data == second.data
    one = things.api.get(f"{things.path}/1?search=x&highlight=true&fields=size")
    assert one.data == {"size": 7, "_highlights": {"body": "<mark>x</mark>"}}


def test_without_words_nothing_is_marked_and_without_the_parameter_there_is_no_key(
    things: Table,
) -> None:
    assert things.read("highlight=true&fields=id&limit=1").data == [{"id": 1, "_highlights": {}}]
    for query in ("search=x&fields=id&limit=1", "search=x&highlight=false&fields=id&limit=1"):
        assert things.read(query).data == [{"id": 1}]
    assert things.read("search=x&highlight=true&export=json&fields=id").text.count("_high") == 0


@pytest.mark.parametrize(
    "query_string",
    [
        "highlight=yes",
        "highlight[a]=true",
        "search=x&highlight=true&aggregate[count]=*",
    ],
)
def test_what_cannot_be_highlighted_is_refused(things: Table, query_string: str) -> None:
    refused = things.read(query_string)
    assert refused.codes == ["INVALID_QUERY"]
    assert refused.errors[0]["parameter"] == "highlight"


def test_a_column_with_the_name_of_the_highlights_is_not_overwritten(stage: Stage) -> None:
    stage.execute('CREATE TABLE marked (id int PRIMARY KEY, "_highlights" text, name text)')
    refused = stage.admin.get("/items/marked?search=x&highlight=true")
    assert (refused.codes, refused.errors[0]["parameter"]) == (["INVALID_QUERY"], "highlight")
    assert stage.admin.get("/items/marked?search=x&highlight=true&fields=name").data == []


def test_highlights_show_nothing_that_the_caller_may_not_read(admin: Client, stage: Stage) -> None:
    things = table(
        admin, field("name", "string"), field("note", "string"), field("mine", "boolean")
    )
    things.add(
        {"name": "cat", "note": "cat hidden", "mine": False},
        {"name": "cat", "note": "cat own", "mine": True},
    )
    everyone = may(things.name, "id", "name")
    own = may(things.name, "note", permissions={"mine": {"_eq": True}})
    query = "search=cat&highlight=true&fields=id"
    reader = Table(member(stage, everyone), things.name)
    assert [item["_highlights"] for item in reader.read(query).data] == [
        {"name": "<mark>cat</mark>"},
        {"name": "<mark>cat</mark>"},
    ]
    owner = Table(member(stage, everyone, own), things.name)
    assert [item["_highlights"] for item in owner.read(query).data] == [
        {"name": "<mark>cat</mark>"},
        {"name": "<mark>cat</mark>", "note": "<mark>cat</mark> own"},
    ]
