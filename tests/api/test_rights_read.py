"""What a role's permissions show: rows, fields of rows, and nothing by any other way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.client import Client
from tests.members import grant, may, member, member_of, new_role
from tests.things import Stage, Table, field, table

SAME = "You don't have permission to access this."


@dataclass(frozen=True)
class Library:
    """Authors, their books with a secret, and tags of books."""

    stage: Stage
    authors: Table
    books: Table

    def new_member(self, *permissions: dict[str, Any]) -> Client:
        return member(self.stage, *permissions)


@pytest.fixture(scope="module")
def library(stage: Stage, admin: Client) -> Library:
    authors = table(admin, field("name", "string"), field("country", "string"))
    books = table(
        admin,
        field("title", "string"),
        field("price", "integer"),
        field("note", "string"),
        field("status", "string"),
        field("author", "integer"),
    )
    relation = {
        "collection": books.name,
        "field": "author",
        "related_collection": authors.name,
        "meta": {"one_field": "books"},
    }
    assert admin.post("/relations", relation).status == 200
    authors.add({"name": "Ann", "country": "AT"}, {"name": "Ben", "country": "BE"})
    books.add(
        {"title": "One", "price": 1, "note": "x1", "status": "published", "author": 1},
        {"title": "Two", "price": 2, "note": "x2", "status": "draft", "author": 1},
        {"title": "Three", "price": 3, "note": "x3", "status": "published", "author": 2},
    )
    return Library(stage, authors, books)


PUBLISHED = {"status": {"_eq": "published"}}


def test_who_has_no_permission_gets_the_same_as_for_a_collection_that_is_not_there(
    library: Library,
) -> None:
    somebody = library.new_member()
    for caller in (somebody, library.stage.anonymous):
        answers = [
            caller.get(path)
            for path in (library.books.path, "/items/nowhere", f"{library.books.path}/1")
        ]
        assert {(answer.status, answer.text) for answer in answers} == {(403, answers[0].text)}, (
            answers
        )


def test_a_rule_shows_its_rows_only_in_lists_by_key_and_in_counts(library: Library) -> None:
    books = library.books
    caller = library.new_member(may(library.books.name, permissions=PUBLISHED))
    assert [book["id"] for book in caller.get(books.path).data] == [1, 3]
    assert caller.get(f"{books.path}/1").data["title"] == "One"
    assert caller.get(f"{books.path}/2").status == caller.get(f"{books.path}/99").status == 404
    assert caller.get(f"{books.path}/2").text == caller.get(f"{books.path}/99").text
    meta = caller.get(
        books.path, meta="total_count,filter_count", **{"filter[price][_gt]": 1}
    ).body["meta"]
    assert meta == {"total_count": 2, "filter_count": 1}
    assert caller.get(books.path, **{"aggregate[sum]": "price"}).data == [{"sum": {"price": 4}}]


def test_fields_that_are_not_allowed_are_not_there_for_any_operand(library: Library) -> None:
    books = library.books
    caller = library.new_member(may(library.books.name, "id", "title"))
    assert caller.get(books.path).data[0] == {"id": 1, "title": "One"}
    operands = (
        "fields={}",
        "filter[{}][_eq]=x1",
        "filter[{}][_null]=true",
        "sort={}",
        "sort=-{}",
        "aggregate[count]={}",
        "aggregate[min]={}",
        "groupBy={}",
        "alias[a]={}&fields=a",
        "fields=count({})",
        "deep[{}][_limit]=1&fields={}",
        "filter[_or][0][{}]=x1",
        "filter[id][{}][_eq]=1",
        "groupBy=id&aggregate[count]=*&sort=count.{}",
    )
    for operand in operands:
        hidden, missing = (
            caller.get(f"{books.path}?{operand.replace('{}', name)}")
            for name in ("note", "nowhere")
        )
        assert (hidden.status, hidden.text) == (missing.status, missing.text), operand
        assert hidden.status in (400, 403), operand
    assert caller.get(books.path, search="x1").data == []
    assert len(caller.get(books.path, search="One").data) == 1


def test_a_row_shows_the_fields_of_the_permissions_that_allow_it(library: Library) -> None:
    """Published books show everything, all others their titles: so the price
    of a draft is null to every operand.
    """
    books = library.books
    caller = library.new_member(
        may(books.name, permissions=PUBLISHED), may(books.name, "id", "title")
    )
    assert caller.get(books.path, fields="title,price").data == [
        {"title": "One", "price": 1},
        {"title": "Two", "price": None},
        {"title": "Three", "price": 3},
    ]
    assert [
        book["id"] for book in caller.get(books.path, **{"filter[price][_null]": "true"}).data
    ] == [2]
    assert caller.get(books.path, **{"filter[price]": 2}).data == []
    assert [book["id"] for book in caller.get(books.path, sort="-price").data] == [2, 3, 1]
    assert caller.get(books.path, **{"aggregate[sum]": "price"}).data == [{"sum": {"price": 4}}]
    groups = caller.get(
        books.path, **{"aggregate[count]": "*", "groupBy": "price", "sort": "price"}
    ).data
    assert groups == [
        {"price": 1, "count": 1},
        {"price": 3, "count": 1},
        {"price": None, "count": 1},
    ]
    assert caller.get(books.path, search="x2").data == []


def test_relations_show_what_the_other_collections_rules_show(library: Library) -> None:
    books = library.books
    authors = library.authors
    caller = library.new_member(
        may(books.name, permissions=PUBLISHED),
        may(authors.name, "id", "name", "books", permissions={"country": "AT"}),
    )
    assert caller.get(books.path, fields="title,author.name").data == [
        {"title": "One", "author": {"name": "Ann"}},
        {"title": "Three", "author": None},
    ]
    assert caller.get(authors.path, fields="name,books").data == [{"name": "Ann", "books": [1]}]
    assert caller.get(authors.path, fields="count(books)").data == [{"books_count": 1}]
    assert caller.get(authors.path, **{"filter[books][title]": "Two"}).data == []
    assert len(caller.get(authors.path, **{"filter[books][_none][title]": "Two"}).data) == 1
    assert [
        b["id"] for b in caller.get(books.path, **{"filter[author][name][_nnull]": "true"}).data
    ] == [1]
    assert [b["id"] for b in caller.get(books.path, sort="author.name,-id").data] == [1, 3]
    assert caller.get(books.path, fields="author.country").status == 403
    assert caller.get(books.path, **{"filter[author][country]": "AT"}).status == 403


def test_a_relation_to_a_collection_without_permission_leads_nowhere(library: Library) -> None:
    books = library.books
    authors = library.authors
    only_books = library.new_member(may(books.name))
    only_authors = library.new_member(may(authors.name))
    assert only_books.get(books.path, fields="*.*", limit=1).data[0]["author"] == 1
    assert "books" not in only_authors.get(authors.path).data[0]
    for path in (f"{books.path}?fields=author.name", f"{books.path}?filter[author][name]=Ann"):
        assert only_books.get(path).status == 403
    for path in (
        "fields=books",
        "fields=count(books)",
        "filter[books][_some][id]=1",
        "sort=count(books)",
    ):
        assert only_authors.get(f"{authors.path}?{path}").status == 403


def test_a_to_many_needs_the_column_that_points_back(library: Library) -> None:
    books = library.books
    authors = library.authors
    caller = library.new_member(may(authors.name), may(books.name, "id", "title"))
    assert "books" not in caller.get(authors.path).data[0]
    assert caller.get(authors.path, fields="books.title").status == 403


def test_rules_follow_the_caller(library: Library, stage: Stage, admin: Client) -> None:
    notes = table(admin, field("owner", "uuid"), field("text", "string"))
    role = new_role(
        stage,
        may(notes.name, permissions={"owner": {"_eq": "$CURRENT_USER"}}),
        may("system_users", "id"),
    )
    one = member_of(stage, role)
    other = member_of(stage, role)
    for caller in (one, other):
        notes.add({"owner": caller.get("/users/me", fields="id").data["id"], "text": "mine"})
    assert [note["id"] for note in one.get(notes.path).data] == [1]
    assert [note["id"] for note in other.get(notes.path).data] == [2]


def test_a_role_adds_up_with_its_parents_and_a_cycle_ends(library: Library) -> None:
    stage = library.stage
    books = library.books
    parent = new_role(stage, may(books.name, "id"))
    child = new_role(stage, may(books.name, "title"), parent=parent)
    stage.execute(f"UPDATE system_roles SET parent = '{child}' WHERE id = '{parent}'")
    assert member_of(stage, child).get(books.path, limit=1).data == [{"id": 1, "title": "One"}]


def test_a_user_without_role_and_nobody_hold_what_the_public_role_holds(library: Library) -> None:
    stage = library.stage
    authors = library.authors
    somebody = member_of(stage, None)
    assert somebody.get(authors.path).status == 403
    grant(stage, None, [may(authors.name, "name")])
    for caller in (somebody, stage.anonymous):
        assert caller.get(authors.path, limit=1).data == [{"name": "Ann"}]
    assert library.new_member().get(authors.path).status == 403
    stage.execute("DELETE FROM system_permissions WHERE role IS NULL")
    assert stage.anonymous.get(authors.path).status == 403


@pytest.mark.parametrize(
    "rule",
    [
        {"gone": {"_eq": 1}},
        {"price": {"_eq": "cheap"}},
        {"price": {"_contains": "1"}},
        {"title": {"_no_such": 1}},
        {"author": {"gone": 1}},
        {"price": {"_eq": "$CURRENT_USER"}},
        {"price": {"_in": ["$CURRENT_USER", "cheap"]}},
        {"_and": 5},
        {"_eq": 1},
        "not json",
    ],
)
def test_a_rule_that_cannot_be_applied_shows_nothing(library: Library, rule: object) -> None:
    caller = library.new_member(
        may(library.books.name, permissions=rule if isinstance(rule, dict) else {"x": rule})
    )
    answer = caller.get(library.books.path)
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])


def test_no_fields_is_no_field(library: Library) -> None:
    caller = library.new_member(
        {**may(library.books.name), "fields": None}, {**may(library.authors.name), "fields": []}
    )
    for path in (library.books.path, library.authors.path):
        assert caller.get(path, limit=1).data == [{}]


def test_an_export_obeys_the_same_rule(library: Library) -> None:
    caller = library.new_member(may(library.books.name, "id", permissions=PUBLISHED))
    assert caller.get(library.books.path, export="csv").text.split() == ["id", "1", "3"]


def test_a_collection_behind_a_field_is_named_only_where_it_is_there(
    stage: Stage, admin: Client
) -> None:
    seen = table(admin)
    hidden = table(admin)
    any_of = table(admin, field("item", "string"), field("kind", "string"))
    meta = {"one_collection_field": "kind", "one_allowed_collections": [seen.name, hidden.name]}
    relation = {
        "collection": any_of.name,
        "field": "item",
        "related_collection": None,
        "meta": meta,
    }
    assert admin.post("/relations", relation).status == 200
    caller = member(stage, may(any_of.name), may(seen.name))
    for name, reason, to_admin in (
        (seen.name, 200, 200),
        (hidden.name, 403, 200),
        ("nowhere", 403, 400),
    ):
        for query_string in (f"fields=item:{name}", f"fields=other&alias[other]=item:{name}"):
            assert (caller.get(f"{any_of.path}?{query_string}").status, query_string) == (
                reason,
                query_string,
            )
            assert (admin.get(f"{any_of.path}?{query_string}").status, query_string) == (
                to_admin,
                query_string,
            )


def test_a_sort_through_a_list_takes_only_what_the_caller_may_read(library: Library) -> None:
    path = f"{library.authors.path}?fields=name&sort="
    everyone = may(library.authors.name)
    reader = library.new_member(everyone, may(library.books.name, "author", "title"))
    # Ann has One and Two, of which Two is a draft; Ben has Three.
    assert [row["name"] for row in reader.get(f"{path}-books.title").data] == ["Ann", "Ben"]
    some = may(library.books.name, "author", "title", permissions=PUBLISHED)
    restricted = library.new_member(everyone, some)
    assert [row["name"] for row in restricted.get(f"{path}-books.title").data] == ["Ben", "Ann"]
    assert reader.get(f"{path}books.price").status == 403
    without_link = library.new_member(everyone, may(library.books.name, "title"))
    assert without_link.get(f"{path}books.title").status == 403
