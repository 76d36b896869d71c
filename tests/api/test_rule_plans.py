"""Rules over relations on real amounts of data: PostgreSQL begins where few rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.client import Client
from tests.members import may, member_of, new_role
from tests.things import Stage, Table, field, table

pytestmark = pytest.mark.release

AUTHORS = 1_000
ARTICLES = 100_000


class Library:
    def __init__(self, stage: Stage, admin: Client) -> None:
        self.stage = stage
        self.authors = table(
            admin,
            field("name", "string"),
            field("country", "integer"),
            field("code", "integer", is_unique=True),
        )
        self.articles = table(
            admin,
            field("title", "string"),
            field("status", "string"),
            field("price", "integer", is_indexed=True),
            field("owner", "integer", is_indexed=True),
            field("author", "integer"),
            field("editor", "integer"),
        )
        for name in ("author", "editor"):
            relation = {
                "collection": self.articles.name,
                "field": name,
                "related_collection": self.authors.name,
                "meta": {"one_field": f"{name}_of"},
            }
            assert admin.post("/relations", relation).status == 200
        stage.execute(
            f'INSERT INTO "{self.authors.name}" (name, country, code) '
            f"SELECT 'Author ' || n, n % 60, n FROM generate_series(1, {AUTHORS}) AS n"
        )
        stage.execute(
            f'INSERT INTO "{self.articles.name}" (title, status, price, owner, author, editor) '
            "SELECT 'Article ' || n, (ARRAY['live', 'live', 'draft', 'old'])[n % 4 + 1], "
            f"n * 7919::bigint % 50021, n * 7919::bigint % 2003, n % {AUTHORS} + 1, "
            f"n * 31::bigint % {AUTHORS} + 1 FROM generate_series(1, {ARTICLES}) AS n"
        )
        stage.execute(f'ANALYZE "{self.authors.name}", "{self.articles.name}"')

    def new_member_with_id(self, *permissions: dict[str, Any]) -> tuple[Client, str]:
        caller = member_of(self.stage, new_role(self.stage, *permissions))
        return caller, caller.get("/users/me").data["id"]

    def plan(self, query: str, user: str | None = None) -> Any:
        path = quote(f"{self.articles.path}?{query}", safe="")
        as_user = f"&user={user}" if user else ""
        explanation = self.stage.admin.get(f"/utils/explain?path={path}{as_user}").data
        return explanation["plan"][0]["Plan"]


@pytest.fixture(scope="module")
def library(stage: Stage, admin: Client) -> Library:
    return Library(stage, admin)


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def whole_reads(plan: Any, table: Table) -> list[str]:
    """Return the nodes that read all rows of a table, whatever for."""
    return [
        node["Node Type"]
        for node in nodes(plan)
        if node.get("Relation Name") == table.name
        and node["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan")
        and "Index Cond" not in node
    ]


SELECTIVE = [
    pytest.param({"author": {"code": {"_eq": 7}}}, id="alone"),
    pytest.param(
        {"_or": [{"author": {"code": {"_eq": 7}}}, {"author": {"name": {"_eq": "Author 9"}}}]},
        id="alternatives-over-one-relation",
    ),
    pytest.param(
        {"_or": [{"author": {"code": {"_eq": 7}}}, {"owner": {"_eq": 5}}]}, id="or-own-column"
    ),
    pytest.param(
        {"_or": [{"author": {"code": {"_eq": 7}}}, {"editor": {"code": {"_eq": 9}}}]},
        id="or-another-relation",
    ),
    pytest.param(
        {
            "_or": [
                {"author": {"_and": [{"code": {"_eq": 7}}, {"country": {"_gt": 0}}]}},
                {"_and": [{"owner": {"_eq": 5}}, {"status": {"_eq": "live"}}]},
            ]
        },
        id="with-more-tests",
    ),
]


@pytest.mark.parametrize("rule", SELECTIVE)
@pytest.mark.parametrize("query", ["fields=title", "fields=id&sort=-price&limit=20"])
def test_a_selective_rule_over_a_relation_reads_few_rows(
    library: Library, rule: Any, query: str
) -> None:
    _, user = library.new_member_with_id(may(library.articles.name, permissions=rule))
    plan = library.plan(query, user)
    assert not whole_reads(plan, library.articles), plan


def test_several_permissions_over_a_relation_read_few_rows_together(library: Library) -> None:
    caller, user = library.new_member_with_id(
        may(library.articles.name, permissions={"author": {"code": {"_eq": 7}}}),
        may(library.articles.name, permissions={"author": {"name": {"_eq": "Author 9"}}}),
    )
    assert not whole_reads(library.plan("fields=id", user), library.articles)
    ids = caller.get(f"{library.articles.path}?fields=id&limit=-1").data
    assert len(ids) == 2 * ARTICLES // AUTHORS


def test_a_rule_that_most_rows_fulfil_reads_a_page_in_order(library: Library) -> None:
    for rule in (
        {"author": {"country": {"_gt": 0}}},
        {"_or": [{"author": {"code": {"_eq": 7}}}, {"status": {"_neq": "old"}}]},
        {"_or": [{"author": {"code": {"_gt": 100}}}, {"author": {"country": {"_gt": 0}}}]},
    ):
        _, user = library.new_member_with_id(may(library.articles.name, permissions=rule))
        plan = library.plan("fields=title&limit=20", user)
        assert not [node for node in nodes(plan) if node["Node Type"] == "Sort"], plan


def test_a_filter_by_an_indexed_field_takes_its_index_though_rows_hide_the_field(
    library: Library,
) -> None:
    caller, user = library.new_member_with_id(
        may(library.articles.name, "id", "title", "status"),
        may(library.articles.name, "price", permissions={"status": {"_eq": "live"}}),
    )
    query = "fields=id&filter[price][_eq]=77&limit=-1"
    plan = library.plan(query, user)
    assert not whole_reads(plan, library.articles), plan
    live = caller.get(f"{library.articles.path}?{query}").data
    everything = library.articles.read("fields=id,status&filter[price][_eq]=77&limit=-1").data
    assert live == [{"id": row["id"]} for row in everything if row["status"] == "live"]


def test_a_sort_by_an_indexed_field_takes_its_index_though_rows_hide_other_fields(
    library: Library,
) -> None:
    _, user = library.new_member_with_id(
        may(library.articles.name, "id", "price", "status"),
        may(
            library.articles.name,
            "title",
            "owner",
            permissions={"author": {"country": {"_eq": 5}}},
        ),
    )
    plan = library.plan("fields=id,title,owner,price&sort=price&limit=20", user)
    assert "Sort" not in {node["Node Type"] for node in nodes(plan)}, plan


def test_the_total_count_under_a_rule_by_an_index_stays_a_lookup(library: Library) -> None:
    caller, user = library.new_member_with_id(
        may(library.articles.name, permissions={"owner": {"_eq": 5}}),
    )
    plan = library.plan("fields=id&limit=1&meta=total_count", user)
    (count,) = (node for node in nodes(plan) if node["Node Type"] == "Aggregate")
    assert not whole_reads(count, library.articles), plan
    counted = caller.get(f"{library.articles.path}?fields=id&limit=1&meta=total_count").body
    stored = library.stage.value(f'SELECT count(*) FROM "{library.articles.name}" WHERE owner = 5')
    assert counted["meta"] == {"total_count": stored}


def test_an_estimate_is_near_the_count(library: Library) -> None:
    caller, _ = library.new_member_with_id(
        may(library.articles.name, permissions={"status": {"_eq": "live"}}),
    )
    query = "fields=id&limit=1&filter[price][_lt]=10000&meta=filter_count,filter_count_estimate"
    for client in (library.stage.admin, caller):
        meta = client.get(f"{library.articles.path}?{query}").body["meta"]
        assert meta["filter_count"] * 0.8 < meta["filter_count_estimate"], meta
        assert meta["filter_count_estimate"] < meta["filter_count"] * 1.25, meta
