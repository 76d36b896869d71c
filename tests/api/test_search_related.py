"""Searches that look into related items, where the setting of a relation asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.statements import counted
from tests.things import Stage, Table, field, table


@dataclass(frozen=True)
class Library:
    """Books with their author and comments, both searched along with the books."""

    books: Table
    authors: Table
    comments: Table


@pytest.fixture(scope="module")
def library(admin: Client) -> Library:
    authors = table(
        admin, field("name", "string"), field("country", "string"), field("secret", "hash")
    )
    books = table(admin, field("title", "string"), field("author", "integer"))
    comments = table(
        admin, field("text", "text"), field("public", "boolean"), field("book", "integer")
    )
    relate(admin, books, "author", authors, "books")
    relate(admin, comments, "book", books, "comments")
    authors.add({"name": "Ann Léger", "country": "Austria"}, {"name": "Ben", "country": "Belgium"})
    books.add({"title": "Red", "author": 1}, {"title": "Blue", "author": 2}, {"title": "Ann"})
    comments.add(
        {"text": "so red", "public": True, "book": 2},
        {"text": "hidden words", "public": False, "book": 3},
    )
    for name in ("author", "comments"):
        answer = admin.patch(f"/fields/{books.name}/{name}", {"meta": {"searchable": True}})
        assert answer.data["meta"]["searchable"] is True
    return Library(books, authors, comments)


def relate(admin: Client, many: Table, name: str, one: Table, one_field: str) -> None:
    relation = {
        "collection": many.name,
        "field": name,
        "related_collection": one.name,
        "meta": {"one_field": one_field},
    }
    assert admin.post("/relations", relation).status == 200


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("leger", [1]),
        ("ann", [1, 3]),
        ("red", [1, 2]),
        ("red+ben", [2]),
        ("red+leger", [1]),
        ('"ann+leger"', [1]),
        ("belgium+so", [2]),
        ("ben+leger", []),
        ("hidden", [3]),
    ],
)
def test_words_may_be_in_the_item_or_in_items_that_it_leads_to(
    library: Library, words: str, expected: list[int]
) -> None:
    assert library.books.column("id", f"search={words}") == expected
    counted = library.books.read(f"search={words}&aggregate[count]=*").data
    assert counted == [{"count": len(expected)}]


def test_only_relations_that_ask_for_it_are_followed_and_one_level_far(
    admin: Client, library: Library
) -> None:
    assert library.comments.column("id", "search=blue") == []
    assert library.authors.column("id", "search=red") == []
    records = {
        item["field"]: item["meta"] for item in admin.get(f"/fields/{library.comments.name}").data
    }
    assert (records["book"]["searchable"], records["text"]["searchable"]) == (None, True)
    # The author of the book is two relations away.
    admin.patch(f"/fields/{library.comments.name}/book", {"meta": {"searchable": True}})
    try:
        assert library.comments.column("id", "search=blue") == [1]
        assert library.comments.column("id", "search=ben") == []
    finally:
        admin.patch(f"/fields/{library.comments.name}/book", {"meta": {"searchable": None}})
    assert library.comments.column("id", "search=blue") == []


def test_a_field_that_is_left_out_is_left_out_from_elsewhere_too(
    admin: Client, library: Library
) -> None:
    country = f"/fields/{library.authors.name}/country"
    admin.patch(country, {"meta": {"searchable": False}})
    try:
        assert library.books.column("id", "search=belgium") == []
    finally:
        admin.patch(country, {"meta": {"searchable": True}})
    assert library.books.column("id", "search=belgium") == [2]


def test_a_word_in_the_item_itself_comes_before_one_in_a_related_item(library: Library) -> None:
    assert library.books.column("id", "search=ann&sort=_relevance") == [3, 1]
    item = library.books.read("search=leger&highlight=true&fields=id").data
    assert item == [{"id": 1, "_highlights": {}}]


def test_only_what_the_caller_may_read_of_related_items_is_searched(
    stage: Stage, library: Library
) -> None:
    books = may(library.books.name)

    def matching_ids(word: str, *permissions: dict[str, object]) -> list[int]:
        reader = Table(member(stage, books, *permissions), library.books.name)
        ids: list[int] = reader.column("id", f"search={word}")
        return ids

    authors = library.authors.name
    comments = library.comments.name
    assert matching_ids("leger") == []
    assert matching_ids("leger", may(authors, "id", "country")) == []
    assert matching_ids("leger", may(authors, "id", "name")) == [1]
    assert matching_ids("leger", may(authors, permissions={"country": {"_eq": "Belgium"}})) == []
    assert matching_ids("ben", may(authors, permissions={"country": {"_eq": "Belgium"}})) == [2]
    public = may(comments, permissions={"public": {"_eq": True}})
    assert matching_ids("so", public) == [2]
    assert matching_ids("hidden", public) == []
    assert matching_ids("hidden", may(comments)) == [3]
    assert (
        matching_ids("hidden", may(comments, "id", "text")) == []
    )  # nothing tells whose comment it is
    own = may(authors, "name", permissions={"country": {"_eq": "Belgium"}})
    assert matching_ids("leger", may(authors, "id"), own) == []
    assert matching_ids("ben", may(authors, "id"), own) == [2]


def test_a_relation_that_is_hidden_in_some_rows_is_not_followed_there(
    stage: Stage, library: Library
) -> None:
    rule = {"title": {"_eq": "Blue"}}
    reader = member(
        stage,
        may(library.books.name, "id", "title"),
        may(library.books.name, "author", permissions=rule),
        may(library.authors.name),
    )
    books = Table(reader, library.books.name)
    assert books.column("id", "search=leger") == []
    assert books.column("id", "search=ben") == [2]


def test_items_of_several_collections_are_searched(admin: Client) -> None:
    texts = table(admin, field("text", "string"))
    pictures = table(admin, field("caption", "string"))
    sections = table(
        admin, field("item", "string"), field("collection", "string"), field("name", "string")
    )
    relation = {
        "collection": sections.name,
        "field": "item",
        "related_collection": None,
        "meta": {
            "one_collection_field": "collection",
            "one_allowed_collections": [texts.name, pictures.name],
        },
    }
    assert admin.post("/relations", relation).status == 200
    texts.add({"text": "red words"})
    pictures.add({"caption": "a red rose"})
    sections.add(
        {"item": "1", "collection": texts.name, "name": "first"},
        {"item": "1", "collection": pictures.name, "name": "second"},
    )
    assert sections.column("id", "search=red") == []
    admin.patch(f"/fields/{sections.name}/item", {"meta": {"searchable": True}})
    assert sections.column("id", "search=red") == [1, 2]
    assert sections.column("id", "search=rose") == [2]
    assert sections.column("id", "search=red+first") == [1]


@pytest.mark.release
def test_an_index_serves_a_search_in_related_items(stage: Stage, admin: Client) -> None:
    authors = table(admin, field("name", "string"), searchable=True)
    books = table(admin, field("title", "string"), field("author", "integer"), searchable=True)
    relate(admin, books, "author", authors, "books")
    admin.patch(f"/fields/{books.name}/author", {"meta": {"searchable": True}})
    stage.execute(
        f"INSERT INTO {authors.name} (name)"
        " SELECT md5(n::text) FROM generate_series(1, 20000) AS n;"
        f"INSERT INTO {books.name} (title, author) SELECT repeat(md5(n::text), 5), n"
        f" FROM generate_series(1, 20000) AS n; ANALYZE {authors.name}, {books.name}"
    )
    path = f"{books.path}?search=c4ca4238a0b9&fields=id"
    plan = admin.get(f"/utils/explain?path={path}").data["plan"]
    assert "BitmapOr" in str(plan)
    assert set(_scanned(plan[0]["Plan"])) == {"system_version"}


def _scanned(node: dict[str, Any]) -> Iterator[str]:
    """Yield the tables that a plan reads as a whole."""
    if node["Node Type"] == "Seq Scan":
        yield node["Relation Name"]
    for inner in node.get("Plans", ()):
        yield from _scanned(inner)


def test_keys_of_related_items_are_compared_one_by_one_only_where_an_index_finds_them(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as seen:
        assert library.books.get(search="léger", fields="id").data == [{"id": 1}]
    assert "= ANY (ARRAY(" not in max(seen, key=len)
