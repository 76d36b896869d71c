"""Nothing reveals a secret, another's row, or of a field that is null in a row for its
reader.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member, member_of, new_role
from tests.security.conftest import BOOKS, Shop
from tests.things import field

SECRETS = ("code", "token")
GUESSES = [
    f"filter[{{}}][{operator}]={operand}"
    for operator, operand in (
        *(
            (f"_{mode}{name}", "s")
            for mode in ("", "n", "i", "ni")
            for name in ("contains", "starts_with", "ends_with")
        ),
        *(
            (operator, "secret")
            for operator in ("_eq", "_neq", "_ieq", "_nieq", "_lt", "_lte", "_gt", "_gte")
        ),
        *((operator, "secret,swordfish") for operator in ("_in", "_nin", "_between", "_nbetween")),
    )
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("who", ["admin", "member"])
@pytest.mark.parametrize("name", SECRETS)
def test_no_operator_guesses_at_a_secret(shop: Shop, who: str, name: str) -> None:
    caller = getattr(shop, who)
    for operand in (
        *GUESSES,
        "filter[_or][0][{}][_starts_with]=s",
        "filter[author][books][{}][_starts_with]=s",
        "filter[count({})]=1",
        "sort={}",
        "sort=-author.{}",
        "sort=author.books.{}",
        "groupBy={}",
        "aggregate[min]={}",
        "aggregate[countDistinct]={}",
        "aggregate[count]=*&groupBy=price&sort=-max.{}",
        "deep[author][books][_sort]={}&fields=author.books.id",
        "deep[author][books][_filter][{}][_contains]=s&fields=author.books.id",
        "fields=count({})",
        "alias[a]=count({})&fields=a",
    ):
        assert caller.get(f"/items/books?{operand.replace('{}', name)}").status in (400, 403), (
            operand
        )


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_under_every_name_and_found_by_no_search(shop: Shop, name: str) -> None:
    queries = (
        f"fields={name}",
        f"fields=a&alias[a]={name}",
        f"fields=title&alias[title]={name}",
        f"fields=author.books.{name}",
    )
    for operand in (
        *queries,
        *(f"{one}&export=csv" for one in queries),
        *(f"{one}&export=xml" for one in queries),
    ):
        answer = shop.member.get(f"/items/books?{operand}")
        assert "**********" in answer.text, operand
        assert not [word for word in ("secret", "swordfish", "argon2") if word in answer.text], (
            operand
        )
    for word in ("swordfish", "sword", "argon2", "**********"):
        assert shop.member.get("/items/books", search=word).data == []


def test_a_filter_counts_only_what_is_there_for_its_caller(shop: Shop) -> None:
    """One of Ann's two books is published."""
    operands = {"_eq": 2, "_gt": 1, "_in": 2, "_between": "2,9"}
    for operator, operand in operands.items():
        assert (
            shop.member.get("/items/authors", **{f"filter[count(books)][{operator}]": operand}).data
            == []
        )
    assert len(shop.member.get("/items/authors", **{"filter[count(books)]": 1}).data) == 1
    without_books = member(shop.stage, may("authors"))
    assert without_books.get("/items/authors", **{"filter[count(books)][_gte]": 0}).status == 403


def test_an_empty_singleton_shows_no_default_of_another_field(shop: Shop) -> None:
    fields = [
        field("title", "string"),
        field("note", "string", default_value="hidden"),
        field("day", "date"),
    ]
    fields.append(field("day_year", "integer", default_value=42))
    body = {"collection": "about", "schema": {}, "meta": {"singleton": True}, "fields": fields}
    assert shop.admin.post("/collections", body).status == 200
    caller = member(shop.stage, may("about", "title", "day"))
    assert caller.get("/items/about").data == {"title": None, "day": None}
    assert caller.get("/items/about?alias[note]=title&fields=note").data == {"note": None}
    assert caller.get("/items/about?fields=year(day)").data == {"day_year": None}
    assert shop.admin.get("/items/about?fields=note,day_year").data == {
        "note": "hidden",
        "day_year": 42,
    }


@pytest.mark.parametrize("alias", ["note", "status", "nowhere"])
def test_an_alias_may_be_called_like_a_hidden_field_and_stays_what_it_stands_for(
    shop: Shop, alias: str
) -> None:
    assert shop.member.get(f"/items/books?alias[{alias}]=title&fields={alias}").data == [
        {alias: "One"},
        {alias: "Three"},
    ]
    assert (
        shop.member.get(
            f"/items/books?alias[{alias}]=title&fields={alias}&filter[{alias}]=One"
        ).status
        == 403
    )
    assert (
        shop.member.get(f"/items/books?alias[{alias}]=title&fields={alias}&sort={alias}").status
        == 403
    )
    nested = f"/items/books?deep[author][_alias][{alias}]=name&fields=author.{alias}&limit=1"
    assert shop.member.get(nested).data == [{"author": {alias: "Ann"}}]


def test_a_row_that_is_not_there_cannot_be_distinguished_from_one_that_never_was(
    shop: Shop,
) -> None:
    for query in ("", "?fields=title", "?fields=author.name", "?filter[id]=2", "?search=Two"):
        hidden, missing = (shop.member.get(f"/items/books/{key}{query}") for key in (2, 99))
        assert (hidden.status, hidden.text, hidden.headers) == (
            404,
            missing.text,
            {**missing.headers, "x-request-id": hidden.headers["x-request-id"]},
        ), query
    assert (
        shop.member.get("/items/authors/2").status
        == shop.member.get("/items/authors/x").status
        == 404
    )
    for query in (
        "filter[id]=2",
        "filter[id][_in]=2,99",
        "search=Two",
        "filter[author][id]=2",
        "filter[author][name]=Ben",
    ):
        assert shop.member.get(f"/items/books?{query}").data == [], query


def test_users_see_no_more_of_users_than_they_may(shop: Shop) -> None:
    role = new_role(
        shop.stage,
        may("system_users", "id", "first_name", permissions={"id": {"_eq": "$CURRENT_USER"}}),
    )
    one, other = (member_of(shop.stage, role, first_name=name) for name in ("One", "Other"))
    ids = [caller.get("/users/me", fields="id").data["id"] for caller in (one, other)]
    assert one.get("/users/me").data == {"id": ids[0], "first_name": "One"}
    assert one.get("/users/me?fields=email").status == 403
    assert one.get("/users/me?filter[email][_contains]=a").status == 403
    assert one.get(f"/users/me?filter[id]={ids[1]}").status == 404
    assert one.get(f"/users/{ids[1]}").text == one.get(f"/users/{ids[0][:-1]}z").text
    assert [user["id"] for user in one.get("/users").data] == [ids[0]]
    assert shop.member.get("/users/me?fields=role.name").status == 403


def test_a_path_from_the_caller_reads_what_the_caller_may_read(shop: Shop) -> None:
    """The users' first names are the titles of books; only one of the roles shows them."""
    books = may("books", "id", "title")
    shows = {
        "hidden field": [may("system_users", "id")],
        "hidden row": [may("system_users", permissions={"status": {"_eq": "archived"}})],
        "hidden in this row": [
            may("system_users", "id"),
            may("system_users", permissions={"status": {"_eq": "archived"}}),
        ],
        "shown": [may("system_users", "first_name")],
    }
    answered: dict[str, Any] = {}
    for name, permissions in shows.items():
        caller = member_of(shop.stage, new_role(shop.stage, books, *permissions), first_name="Two")
        answers = [
            caller.get("/items/books", **{f"filter[title][{operator}]": "$CURRENT_USER.first_name"})
            for operator in ("_eq", "_in", "_gte")
        ]
        answered[name] = [
            [book["id"] for book in answer.data] if answer.status == 200 else answer.status
            for answer in answers
        ]
    assert answered == {
        "hidden field": [403, 403, 403],
        "hidden row": [[], [], []],
        "hidden in this row": [[], [], []],
        "shown": [[2], [2], [2]],
    }


def test_a_path_from_the_caller_passes_hidden_rows_nowhere(shop: Shop) -> None:
    """Each role may name its other users only where their rule lets them be seen."""
    caller_only = may("system_users", permissions={"id": {"_eq": "$CURRENT_USER"}})
    role = new_role(shop.stage, may("books", "id", "title"), may("system_roles"), caller_only)
    member_of(shop.stage, role, first_name="Two")
    caller = member_of(shop.stage, role, first_name="Three")
    answer = caller.get("/items/books", **{"filter[title][_in]": "$CURRENT_ROLE.users.first_name"})
    assert [book["id"] for book in answer.data] == [3]
    answer = caller.get(
        "/items/books", **{"filter[title][_in]": "$CURRENT_USER.role.users.first_name"}
    )
    assert [book["id"] for book in answer.data] == [3]


def test_a_mask_is_the_same_in_a_group_however_its_rule_is_made(shop: Shop) -> None:
    """Rules through every kind of relation stand in SELECT and GROUP BY at once."""
    for rule in (
        {"status": {"_in": ["published", "$CURRENT_USER"]}},
        {"item:authors": {"name": {"_eq": "Ann"}}},
        {"author": {"books": {"_some": {"item:reviews": {"text": {"_eq": "Good"}}}}}},
        {"reviews": {"_none": {"text": {"_eq": "Bad"}}}},
        {"count(reviews)": {"_gt": 0}},
        {"note": {"_neq": "$CURRENT_USER.role.name"}, "published": {"_lt": "$NOW(-1 day)"}},
    ):
        caller = member(
            shop.stage,
            may("books", "id"),
            may("books", "price", "published", "reviews", permissions=rule),
            may("reviews", "id", "book", permissions={"text": {"_neq": "$CURRENT_USER.role.name"}}),
        )
        rows = caller.get("/items/books").data
        groups = caller.get(
            "/items/books?groupBy=price,year(published)&aggregate[count]=*&sort=-price"
        ).data
        assert sum(group["count"] for group in groups) == len(rows) == 3, rule
        assert {group["price"] for group in groups} == {row["price"] for row in rows}, rule
        sizes = caller.get(
            "/items/books?groupBy=count(reviews)&aggregate[count]=*&sort=-count(reviews)"
        ).data
        assert [size["reviews_count"] for size in sizes if size["reviews_count"]] == [1], rule


def test_pages_never_overlap_where_the_key_is_there_in_some_rows_only(shop: Shop) -> None:
    caller = member(
        shop.stage,
        may("books", "title"),
        may("books", "id", permissions={"title": {"_eq": "Three"}}),
    )
    pages = [caller.get("/items/books", limit=1, page=page).data[0]["title"] for page in (1, 2, 3)]
    assert pages == ["One", "Two", "Three"]


def test_an_export_has_the_columns_and_rows_that_a_list_has(shop: Shop) -> None:
    for form in ("csv", "json", "jsonl", "xml", "yaml"):
        answer = shop.member.get("/items/books", export=form)
        assert answer.status == 200, answer
        assert not [
            word
            for word in ("Two", "draft", "status", "note", "Good", "secret", "sword")
            if word in answer.text
        ], answer
    head = shop.member.get("/items/books", export="csv").text.split("\r\n")[0]
    assert head.split(",") == [name for name in BOOKS if name != "reviews"]


def test_structure_is_for_administrators(shop: Shop) -> None:
    for caller in (shop.member, shop.stage.anonymous):
        for path in (
            "/collections",
            "/collections/books",
            "/fields",
            "/fields/books/note",
            "/relations/books",
            "/relations",
        ):
            answer = caller.get(path)
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), path
            assert "note" not in answer.text, path
        assert caller.get("/utils/explain?path=/items/books").status == 403


def columns_of(caller: Client, path: str, *queries: str) -> list[Any]:
    """Return the data of each query of a collection."""
    return [caller.get(f"{path}?{query}").data for query in queries]


LISTS = (
    "fields=books",
    "fields=books.id",
    "fields=count(books)",
    "fields=books&deep[books][_aggregate][count]=*",
    "fields=id&filter[books][id]=2",
    "fields=id&filter[books][_none][id]=2",
    "fields=id&filter[count(books)]=1",
    "fields=id&sort=-count(books),id",
)


def test_what_does_not_point_back_in_a_row_is_in_no_list(shop: Shop) -> None:
    """Ann has two books, but that the second is hers may not be read."""
    published = may("books", "author", permissions={"status": {"_eq": "published"}})
    caller = member(shop.stage, may("authors"), may("books", "id", "title"), published)
    assert caller.get("/items/books?fields=author").data == [
        {"author": 1},
        {"author": None},
        {"author": 2},
    ]
    assert columns_of(caller, "/items/authors", *LISTS) == [
        [{"books": [1]}, {"books": [3]}],
        [{"books": [{"id": 1}]}, {"books": [{"id": 3}]}],
        [{"books_count": 1}, {"books_count": 1}],
        [{"books": [{"count": 1}]}, {"books": [{"count": 1}]}],
        [],
        [{"id": 1}, {"id": 2}],
        [{"id": 1}, {"id": 2}],
        [{"id": 1}, {"id": 2}],
    ]


def test_a_list_that_is_no_field_of_a_row_lists_nothing_there(shop: Shop) -> None:
    """Ann's books may not be asked for, Ben's may."""
    belgians = may("authors", "books", permissions={"country": {"_eq": "BE"}})
    caller = member(shop.stage, may("authors", "id"), belgians, may("books"))
    assert columns_of(caller, "/items/authors", *LISTS) == [
        [{"books": []}, {"books": [3]}],
        [{"books": []}, {"books": [{"id": 3}]}],
        [{"books_count": 0}, {"books_count": 1}],
        [{"books": [{"count": 0}]}, {"books": [{"count": 1}]}],
        [],
        [{"id": 1}, {"id": 2}],
        [{"id": 2}],
        [{"id": 2}, {"id": 1}],
    ]


def test_where_a_key_leads_is_reported_where_its_collection_may_be_read(shop: Shop) -> None:
    """A key of any collection reveals nothing in rows in which the column
    that names the collection is hidden.
    """
    cheap = may("books", "kind", permissions={"price": {"_lte": 1}})
    caller = member(shop.stage, may("books", "id", "item"), cheap, may("authors"), may("reviews"))
    assert columns_of(
        caller,
        "/items/books",
        "fields=item:authors.name,item:reviews.text",
        "fields=id&filter[item:reviews][id]=1",
        "fields=id&filter[item:authors][name]=Ann",
        "fields=id&sort=item:reviews.text,-id",
    ) == [
        [{"item": {"name": "Ann"}}, {"item": None}, {"item": None}],
        [],
        [{"id": 1}],
        [{"id": 3}, {"id": 2}, {"id": 1}],
    ]
