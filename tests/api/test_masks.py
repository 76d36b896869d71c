"""Fields that permissions show in different rows: exact everywhere, each rule printed once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import pytest

from tests.client import Client
from tests.members import may, member_of, new_role
from tests.things import Stage, field, table

OWN = {"owner": {"name": {"_eq": "me"}}}
LIVE = {"status": {"_eq": "live"}}
MASKED = ("title", "body", "price", "published")


class Shop:
    """Articles of two owners: two permissions, by owner and by status, and the key for all."""

    def __init__(self, stage: Stage, admin: Client) -> None:
        self.stage = stage
        self.owners = table(admin, field("name", "string"))
        self.articles = table(
            admin,
            field("title", "string"),
            field("body", "text"),
            field("price", "integer", is_indexed=True),
            field("published", "timestamp"),
            field("status", "string"),
            field("kind", "string"),
            field("owner", "integer"),
        )
        relation = {
            "collection": self.articles.name,
            "field": "owner",
            "related_collection": self.owners.name,
            "meta": {"one_field": "articles"},
        }
        assert admin.post("/relations", relation).status == 200
        me, other = self.owners.add({"name": "me"}, {"name": "other"})
        self.rows = self.articles.add(
            *(
                {
                    "title": f"t{n}",
                    "body": f"common words of {n}",
                    "price": n,
                    "published": f"20{n + 10}-01-02T03:04:05Z",
                    "status": "live" if n % 3 == 0 else "draft",
                    "kind": "even" if n % 2 == 0 else "odd",
                    "owner": (me if n % 4 < 2 else other)["id"],
                }
                for n in range(24)
            )
        )
        role = new_role(
            stage,
            may(self.owners.name),
            may(self.articles.name, "id", "status", "owner"),
            may(self.articles.name, *MASKED, permissions=OWN),
            may(self.articles.name, "price", "kind", permissions=LIVE),
        )
        self.caller = member_of(stage, role)
        self.user = self.caller.get("/users/me").data["id"]

    def is_own(self, n: int) -> bool:
        return n % 4 < 2

    def is_live(self, n: int) -> bool:
        return n % 3 == 0

    def ids(self, numbers: Iterable[int]) -> list[int]:
        return [self.rows[n]["id"] for n in numbers]

    def returned_ids(self, query: str) -> list[int]:
        answer = self.caller.get(f"{self.articles.path}?fields=id&limit=-1&{query}")
        return [row["id"] for row in answer.data]

    def statement(self, query: str) -> Any:
        path = quote(f"{self.articles.path}?{query}", safe="")
        return self.stage.admin.get(f"/utils/explain?path={path}&user={self.user}").data


@pytest.fixture(scope="module")
def shop(stage: Stage, admin: Client) -> Shop:
    return Shop(stage, admin)


@pytest.mark.parametrize(
    "page", ["limit=-1", "limit=25", "limit=7&offset=3", "limit=100&meta=next_cursor"]
)
def test_each_row_shows_the_fields_of_the_permissions_that_hold_for_it(
    shop: Shop, page: str
) -> None:
    rows = shop.caller.get(f"{shop.articles.path}?sort=id&{page}").data
    numbers = range(3, 10) if "offset" in page else range(24)
    assert len(rows) == len(numbers)
    for n, row in zip(numbers, rows, strict=True):
        stored = shop.rows[n]
        visible = {"id", "status", "owner"}
        visible |= set(MASKED) if shop.is_own(n) else set()
        visible |= {"price", "kind"} if shop.is_live(n) else set()
        assert row == {name: stored[name] if name in visible else None for name in row}
        assert set(row) == {"id", "status", "owner", "kind", *MASKED}


def test_one_item_shows_them_too(shop: Shop) -> None:
    for n in (0, 1, 2, 3):
        row = shop.caller.get(f"{shop.articles.path}/{shop.rows[n]['id']}")
        assert (row.data["title"] is not None) == shop.is_own(n)
        assert (row.data["kind"] is not None) == shop.is_live(n)
        assert row.headers["etag"]


def test_a_related_item_and_a_list_show_them_too(shop: Shop) -> None:
    path = f"{shop.owners.path}?fields=name,articles.*&deep[articles][_sort]=id&sort=id"
    for owner in shop.caller.get(path).data:
        for row in owner["articles"]:
            n = shop.ids(range(24)).index(row["id"])
            assert (row["title"] is not None) == shop.is_own(n) == (owner["name"] == "me")
            assert (row["price"] is not None) == (shop.is_own(n) or shop.is_live(n)), n


FILTERS: list[tuple[str, Any]] = [
    ("filter[price][_gte]=10", lambda n: n >= 10),
    ("filter[price][_neq]=10", lambda n: n != 10),
    ("filter[price][_in]=1,2,3,4", lambda n: n in (1, 2, 3, 4)),
    ("filter[price][_nnull]=true", lambda n: True),
]


@pytest.mark.parametrize(("query", "fits"), FILTERS)
def test_a_filter_finds_only_values_that_the_caller_sees(shop: Shop, query: str, fits: Any) -> None:
    seen = [n for n in range(24) if shop.is_own(n) or shop.is_live(n)]
    assert shop.returned_ids(f"sort=id&{query}") == shop.ids(n for n in seen if fits(n))


def test_a_hidden_value_is_null_for_filters(shop: Shop) -> None:
    hidden = [n for n in range(24) if not shop.is_own(n)]
    assert shop.returned_ids("sort=id&filter[title][_null]=true") == shop.ids(hidden)
    assert shop.returned_ids("sort=id&filter[title][_empty]=true") == shop.ids(hidden)
    # An empty `_nin` holds for null.
    assert len(shop.returned_ids('filter={"title":{"_nin":[]}}')) == 24
    any_of = '{"_or":[{"title":{"_eq":"t2"}},{"title":{"_eq":"t4"}},{"body":{"_contains":"of 5"}}]}'
    assert shop.returned_ids(f"sort=id&filter={quote(any_of)}") == shop.ids([4, 5])
    through = f"{shop.owners.path}?fields=name&filter[articles][title][_in]=t2,t3"
    assert shop.caller.get(through).data == []
    through = f"{shop.owners.path}?fields=name&filter[articles][title][_in]=t0,t3"
    assert shop.caller.get(through).data == [{"name": "me"}]


def test_a_search_finds_only_texts_that_the_caller_sees(shop: Shop) -> None:
    own = [n for n in range(24) if shop.is_own(n)]
    assert shop.returned_ids("sort=id&search=common") == shop.ids(own)


def test_sorts_and_cursors_take_a_hidden_value_as_null(shop: Shop) -> None:
    seen = [n for n in range(24) if shop.is_own(n) or shop.is_live(n)]
    hidden = [n for n in range(24) if n not in seen]
    expected = shop.ids([*seen, *hidden])
    assert shop.returned_ids("sort=price") == expected
    pages: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        after = f"&page[after]={quote(cursor)}" if cursor else "&meta=next_cursor"
        answer = shop.caller.get(f"{shop.articles.path}?sort=price&limit=5{after}")
        pages += [row["id"] for row in answer.data]
        cursor = answer.body["meta"]["next_cursor"]
    assert pages == expected


def test_groups_and_aggregates_take_a_hidden_value_as_null(shop: Shop) -> None:
    query = "aggregate[count]=title,body,published&aggregate[sum]=price&aggregate[min]=price"
    (row,) = shop.caller.get(f"{shop.articles.path}?{query}").data
    own = [n for n in range(24) if shop.is_own(n)]
    priced = [n for n in range(24) if shop.is_own(n) or shop.is_live(n)]
    assert set(row["count"].values()) == {len(own)}
    assert row["sum"] == {"price": sum(priced)}
    grouped = shop.caller.get(
        f"{shop.articles.path}?groupBy=title&aggregate[count]=body,published&limit=-1&sort=title"
    ).data
    assert [row["title"] for row in grouped] == [*sorted(f"t{n}" for n in own), None]
    assert grouped[-1]["count"] == {"body": 0, "published": 0}


@pytest.mark.parametrize(
    "query",
    [
        "",
        "limit=7&offset=3",
        "fields=title,body,price",
        "aggregate[count]=title,body,published&aggregate[sum]=price",
        "groupBy=title&aggregate[count]=body,published",
    ],
)
def test_a_rule_is_tested_once_for_all_outputs(shop: Shop, query: str) -> None:
    explanation = shop.statement(query)
    statement = explanation["statement"]
    assert statement.count(f'FROM "{shop.owners.name}"') == 1, statement
    # PostgreSQL must not put the rule back to each place where its result is used.
    plan = str(explanation["plan"])
    assert plan.count(f"'Relation Name': '{shop.owners.name}'") == 1, plan


def test_a_search_tests_a_rule_once_for_all_fields(shop: Shop) -> None:
    statement = shop.statement("fields=id&search=common")["statement"]
    assert statement.count(f'FROM "{shop.owners.name}"') <= 2, statement


def test_a_cheap_rule_of_few_fields_stays_with_them(shop: Shop) -> None:
    assert "_mask" not in shop.statement("fields=kind")["statement"]


def test_columns_called_like_those_of_rules_are_no_harm(stage: Stage, admin: Client) -> None:
    things = table(admin, *(field(name, "string") for name in "abcd"), field("status", "string"))
    stage.execute(f"ALTER TABLE \"{things.name}\" ADD COLUMN _mask0 text DEFAULT 'mine'")
    things.add({"a": "1", "status": "live"}, {"a": "2", "status": "draft"})
    role = new_role(stage, may(things.name, "id"), may(things.name, "*", permissions=LIVE))
    caller = member_of(stage, role)
    rows = caller.get(f"{things.path}?sort=id").data
    assert [row["_mask0"] for row in rows] == ["mine", None]
    assert [row["a"] for row in rows] == ["1", None]
