"""Reads through relations: nested fields, deep, paths in filters and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client import Answer, Client
from tests.sql.compiler import assert_one_statement
from tests.things import Stage, at, field, make_collections

COLLECTIONS = {
    "authors": [field("name", "string"), field("boss", "integer"), field("user", "uuid")],
    "articles": [
        field("title", "string"),
        field("author", "integer"),
        field("published", "timestamp"),
    ],
    "tags": [field("name", "string")],
    "headings": [field("title", "string")],
    "paras": [field("body", "string")],
    "notes": [
        {"field": "code", "type": "uuid", "schema": {"is_primary_key": True}},
        field("text", "string"),
    ],
    "sections": [
        field("article", "integer"),
        field("item", "string"),
        field("kind", "string"),
        field("sort", "integer"),
    ],
}
RELATIONS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("authors", "boss", "authors", {"one_field": "staff"}),
    ("articles", "author", "authors", {"one_field": "articles"}),
    ("articles", "tags", "tags", {"junction_collection": "articles_tags", "one_field": "articles"}),
    ("sections", "article", "articles", {"one_field": "sections", "sort_field": "sort"}),
    (
        "sections",
        "item",
        None,
        {"one_collection_field": "kind", "one_allowed_collections": ["headings", "paras", "notes"]},
    ),
]
NOTE = "3d6f0a52-3b1e-4d6e-9f6e-0a2b6c1d9e77"
ROWS: dict[str, list[dict[str, Any]]] = {
    "authors": [{"name": "Ann"}, {"name": "Bob", "boss": 1}, {"name": "Cid", "boss": 1}],
    "articles": [
        {"title": "A1", "author": 1, "published": "2020-05-01"},
        {"title": "A2", "author": 2, "published": "2021-06-01"},
        {"title": "A3", "author": 2},
        {"title": "A4"},
    ],
    "tags": [{"name": "x"}, {"name": "y"}],
    "articles_tags": [{"articles_id": a, "tags_id": t} for a, t in ((1, 1), (1, 2), (2, 2))],
    "headings": [{"title": "H1"}, {"title": "H2"}],
    "paras": [{"body": "P1"}],
    "notes": [{"code": NOTE, "text": "N"}],
    "sections": [
        {"article": 1, "item": item, "kind": kind, "sort": n}
        for n, (item, kind) in enumerate([("2", "headings"), ("1", "paras"), (NOTE, "notes")])
    ],
}


@pytest.fixture(scope="module", autouse=True)
def articles_and_authors(stage: Stage) -> None:
    make_collections(stage.admin, COLLECTIONS, RELATIONS)
    for name, rows in ROWS.items():
        assert stage.admin.post(f"/items/{name}", rows).status == 200
    stage.execute(
        """
        INSERT INTO sections (article, item, kind, sort)
        VALUES (1, 'no key', 'headings', 3), (1, '1', 'elsewhere', 4)
        """
    )


@pytest.fixture
def read(admin: Client) -> Callable[[str], Any]:
    """Read `collection?query` and return the data."""

    def read(path: str) -> Any:
        return admin.get(at(path)).data

    return read


P1 = {"id": 1, "body": "P1"}
N = {"code": NOTE, "text": "N"}
CASES: list[tuple[str, object]] = [
    # A to-one that is opened is an object or null; one that is not is its key.
    (
        "articles?fields=author.name&sort=id",
        [{"author": n} for n in ({"name": "Ann"}, {"name": "Bob"}, {"name": "Bob"}, None)],
    ),
    ("articles/1?fields=author", {"author": 1}),
    (
        "articles/1?fields=author.boss.name,author.staff.name",
        {"author": {"boss": None, "staff": [{"name": "Bob"}, {"name": "Cid"}]}},
    ),
    # A to-many that is not opened is an array of keys.
    (
        "authors/1?fields=*",
        {"id": 1, "name": "Ann", "boss": None, "user": None, "staff": [2, 3], "articles": [1]},
    ),
    (
        "articles/1?fields=tags.tags_id.name",
        {"tags": [{"tags_id": {"name": "x"}}, {"tags_id": {"name": "y"}}]},
    ),
    (
        "tags/2?fields=articles.articles_id.author.name",
        {
            "articles": [
                {"articles_id": {"author": {"name": "Ann"}}},
                {"articles_id": {"author": {"name": "Bob"}}},
            ]
        },
    ),
    (
        "articles/4?fields=*.*",
        {"id": 4, "title": "A4", "author": None, "published": None, "tags": [], "sections": []},
    ),
    # Many-to-any: for one collection, for several, for all; what leads nowhere is null.
    (
        "articles/1?fields=sections.item:headings.title&deep[sections][_limit]=2",
        {"sections": [{"item": {"title": "H2"}}, {"item": "1"}]},
    ),
    (
        "articles/1?fields=sections.item:headings.title,sections.item:paras.body,"
        "sections.item:notes.text",
        {
            "sections": [
                {"item": item}
                for item in ({"title": "H2"}, {"body": "P1"}, {"text": "N"}, None, "1")
            ]
        },
    ),
    # An item of a collection that is not opened is its key, also beside others that are.
    (
        "sections?fields=item:headings,item:paras.body",
        [{"item": item} for item in ("2", {"body": "P1"}, NOTE, "no key", "1")],
    ),
    (
        "sections?fields=block:paras.body&alias[block]=item&limit=3",
        [{"block": item} for item in ("2", {"body": "P1"}, NOTE)],
    ),
    (
        "sections?fields=item.body,item:headings.title&limit=3",
        [{"item": item} for item in ({"title": "H2"}, {"body": "P1"}, NOTE)],
    ),
    (
        "articles/1?fields=sections.item.title&deep[sections][_limit]=1",
        {"sections": [{"item": {"title": "H2"}}]},
    ),
    (
        "articles/1?fields=sections.item.*.*&deep[sections][_limit]=1",
        {"sections": [{"item": {"id": 2, "title": "H2"}}]},
    ),
    ("articles?fields=id&filter[sections][item:headings][title]=H2", [{"id": 1}]),
    # `*` behind it opens all of them, and deeper ones what those lead to.
    ("sections?fields=item.*.*&limit=3", [{"item": n} for n in ({"id": 2, "title": "H2"}, P1, N)]),
    # Parameters for one of the collections; a key that is not opened stays as it is stored.
    (
        "sections?fields=item.*&deep[item:headings][_filter][title]=H1&limit=2",
        [{"item": None}, {"item": P1}],
    ),
    (
        "sections?fields=item&deep[item][_limit]=1",
        [{"item": key} for key in ("2", "1", NOTE, None, None)],
    ),
    (
        "sections?fields=item&deep[item:headings][_filter][title]=H1",
        [{"item": key} for key in (None, "1", NOTE, None, None)],
    ),
    (
        "sections?fields=item:headings&deep[item:headings][_search]=h2&limit=2",
        [{"item": key} for key in ("2", None)],
    ),
    ("articles?fields=id&filter[sections][item:headings][title]=H1", []),
    # A list sorts by its smallest value, or by its largest; nothing in it sorts as null does.
    ("authors?fields=id&sort=articles.title", [{"id": 1}, {"id": 2}, {"id": 3}]),
    ("authors?fields=id&sort=-articles.title", [{"id": 3}, {"id": 2}, {"id": 1}]),
    ("authors?fields=id&sort=-articles.published", [{"id": 3}, {"id": 2}, {"id": 1}]),
    ("articles?fields=id&sort=tags.tags_id.name,-id", [{"id": n} for n in (1, 2, 4, 3)]),
    ("articles?fields=id&sort=-tags.tags_id.name,id", [{"id": n} for n in (3, 4, 1, 2)]),
    ("articles?fields=id&sort=author.staff.name,-id", [{"id": n} for n in (1, 4, 3, 2)]),
    ("authors?fields=id&sort=-staff.articles.tags.tags_id.name", [{"id": n} for n in (2, 3, 1)]),
    ("articles?fields=id&sort=-sections.item:headings.title", [{"id": n} for n in (2, 3, 4, 1)]),
    ("authors/2?fields=articles&deep[articles][_sort]=-tags.tags_id.name", {"articles": [3, 2]}),
    # Functions and aliases.
    (
        "authors?fields=name,count(articles)",
        [{"name": n, "articles_count": c} for n, c in (("Ann", 1), ("Bob", 2), ("Cid", 0))],
    ),
    (
        "authors?fields=name&filter[count(articles)][_gte]=1&sort=-count(articles)",
        [{"name": "Bob"}, {"name": "Ann"}],
    ),
    (
        "authors/2?fields=arts.t&alias[arts]=articles&deep[arts][_alias][t]=title",
        {"arts": [{"t": "A2"}, {"t": "A3"}]},
    ),
    (
        "articles/1?fields=a.name,b.id&alias[a]=author&alias[b]=author",
        {"a": {"name": "Ann"}, "b": {"id": 1}},
    ),
    # deep: filter, sort, limit for each parent, offset, page, search, at every level; also for what
    # * lists.
    (
        "authors?fields=articles.title&deep[articles][_sort]=-title&deep[articles][_limit]=1",
        [{"articles": [{"title": "A1"}]}, {"articles": [{"title": "A3"}]}, {"articles": []}],
    ),
    ("authors/2?fields=articles&deep[articles][_filter][title]=A3", {"articles": [3]}),
    ("authors/2?fields=articles&deep[articles][_offset]=1", {"articles": [3]}),
    (
        "authors/2?fields=articles&deep[articles][_limit]=1&deep[articles][_page]=2",
        {"articles": [3]},
    ),
    ("authors/2?fields=articles&deep[articles][_search]=a3", {"articles": [3]}),
    (
        "authors/2?fields=*&deep[articles][_limit]=1",
        {"id": 2, "name": "Bob", "boss": 1, "user": None, "staff": [], "articles": [2]},
    ),
    (
        "authors/1?fields=staff.articles.title&deep[staff][_limit]=1"
        "&deep[staff][articles][_sort]=-title",
        {"staff": [{"articles": [{"title": "A3"}, {"title": "A2"}]}]},
    ),
    (
        'authors/1?fields=staff.name&deep={"staff":{"_sort":["-name"]}}',
        {"staff": [{"name": "Cid"}, {"name": "Bob"}]},
    ),
    ("sections?fields=item:headings&limit=1", [{"item": "2"}]),
    (
        "articles/2?fields=author.*.*,*.*&deep[author][articles][_limit]=1",
        {
            "id": 2,
            "title": "A2",
            "author": {
                "id": 2,
                "name": "Bob",
                "boss": {
                    "id": 1,
                    "name": "Ann",
                    "boss": None,
                    "user": None,
                    "staff": [2, 3],
                    "articles": [1],
                },
                "user": None,
                "staff": [],
                "articles": [
                    {
                        "id": 2,
                        "title": "A2",
                        "author": 2,
                        "published": "2021-06-01T00:00:00.000Z",
                        "tags": [3],
                        "sections": [],
                    }
                ],
            },
            "published": "2021-06-01T00:00:00.000Z",
            "tags": [{"id": 3, "articles_id": 2, "tags_id": 2}],
            "sections": [],
        },
    ),
    (
        "articles/4?fields=*.*,author.name",
        {"id": 4, "title": "A4", "author": None, "published": None, "tags": [], "sections": []},
    ),
    (
        "tags/1?fields=*.*,articles.articles_id.title",
        {
            "id": 1,
            "name": "x",
            "articles": [{"id": 1, "tags_id": 1, "articles_id": {"title": "A1"}}],
        },
    ),
    (
        "tags/2?fields=*.*&deep[articles][_limit]=1",
        {"id": 2, "name": "y", "articles": [{"id": 2, "articles_id": 1, "tags_id": 2}]},
    ),
    (
        "articles/1?fields=*,sections.item:headings.title&deep[sections][_limit]=1",
        {
            "id": 1,
            "title": "A1",
            "author": 1,
            "published": "2020-05-01T00:00:00.000Z",
            "tags": [1, 2],
            "sections": [{"item": {"title": "H2"}}],
        },
    ),
    # Aggregates in deep.
    ("authors/2?fields=articles&deep[articles][_aggregate][count]=*", {"articles": [{"count": 2}]}),
    (
        "authors/2?fields=articles&deep[articles][_aggregate][count]=id,published"
        "&deep[articles][_aggregate][max]=title",
        {"articles": [{"count": {"id": 2, "published": 1}, "max": {"title": "A3"}}]},
    ),
    (
        "authors/2?fields=articles&deep[articles][_aggregate][count]=*"
        "&deep[articles][_groupBy]=year(published)",
        {"articles": [{"published_year": 2021, "count": 1}, {"published_year": None, "count": 1}]},
    ),
    # Filters in both directions; a filter on a to-many never doubles its parent.
    ("articles?fields=id&filter[author][name]=Bob", [{"id": 2}, {"id": 3}]),
    ("authors?fields=id&filter[articles][title][_starts_with]=A", [{"id": 1}, {"id": 2}]),
    ("authors?fields=id&filter[articles][_none][title]=A1", [{"id": 2}, {"id": 3}]),
    (
        "authors?fields=id&filter[articles][_some][title]=A2&filter[articles][_none][title]=A1",
        [{"id": 2}],
    ),
    ("authors?fields=id&filter[articles][tags][tags_id][name]=y", [{"id": 1}, {"id": 2}]),
    # In groups of groups, beside what is meant of one and the same item.
    (
        'authors?fields=id&filter={"articles":{"_and":[{"_or":[{"_some":{"title":"A2"}},'
        '{"_none":{}}]},{"title":"A3"}]}}',
        [{"id": 2}],
    ),
    (
        'authors?fields=id&filter={"articles":{"_or":[{"_and":[{"_none":{"title":"A1"}},'
        '{"_none":{"title":"A2"}}]},'
        '{"title":"A1"}]}}',
        [{"id": 1}, {"id": 3}],
    ),
    ("authors?fields=id&filter[boss][articles][title]=A1", [{"id": 2}, {"id": 3}]),
    # Side by side is one item; under _and each may be another one.
    ("authors?fields=id&filter[articles][title]=A2&filter[articles][published][_null]=true", []),
    (
        'authors?fields=id&filter={"_and":[{"articles":{"title":"A2"}},'
        '{"articles":{"published":{"_null":true}}}]}',
        [{"id": 2}],
    ),
    ("articles?fields=id&sort=-author.name,-id", [{"id": i} for i in (4, 3, 2, 1)]),
    ("articles?fields=id&sort=author.boss.name,title&limit=2", [{"id": 2}, {"id": 3}]),
    (
        "articles?groupBy=year(published)&aggregate[count]=*",
        [{"published_year": y, "count": c} for y, c in ((2020, 1), (2021, 1), (None, 2))],
    ),
    (
        "authors?groupBy=count(articles)&aggregate[max]=name&sort=-count(articles)",
        [
            {"articles_count": c, "max": {"name": n}}
            for c, n in ((2, "Bob"), (1, "Ann"), (0, "Cid"))
        ],
    ),
    (
        "authors/1?fields=staff&deep[staff][_groupBy]=count(articles)"
        "&deep[staff][_aggregate][count]=*",
        {"staff": [{"articles_count": 0, "count": 1}, {"articles_count": 2, "count": 1}]},
    ),
    # Variables.
    ("system_users?fields=email&filter[id]=$CURRENT_USER", [{"email": "admin@example.com"}]),
    ("system_users?fields=email&filter[role]=$CURRENT_USER.role", [{"email": "admin@example.com"}]),
    (
        "system_users?fields=email&filter[role][_in]=$CURRENT_ROLE.users.role",
        [{"email": "admin@example.com"}],
    ),
    ("authors?fields=id&filter[user]=$CURRENT_USER.avatar", []),
    ("articles?fields=id&filter[published][_lt]=$NOW(-1 year)&limit=1", [{"id": 1}]),
]


@pytest.mark.parametrize(("path", "data"), CASES, ids=[case[0] for case in CASES])
def test_a_read_through_relations_answers(
    read: Callable[[str], Any], path: str, data: object
) -> None:
    assert read(path) == data


@pytest.mark.quick(24)
@pytest.mark.parametrize("path", [case[0] for case in CASES])
def test_a_read_is_one_statement(stage: Stage, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    assert_one_statement(stage, monkeypatch, f"{at(path)}{'&' if '?' in path else '?'}meta=*")


def test_counts_agree_with_the_rows(admin: Client) -> None:
    answer = admin.get("/items/authors?filter[articles][title][_starts_with]=A&meta=*")
    assert len(answer.data) == answer.body["meta"]["filter_count"] == 2
    assert answer.body["meta"]["total_count"] == 3


REFUSED = [
    "articles?fields=author.nope",
    "articles?fields=title.name",
    "articles?fields=sections.item:tags.name",
    "articles?fields=sections.item.nope",
    "articles?filter[author][nope]=1",
    "articles?filter[title][name]=1",
    "articles?filter[_some][title]=1",
    "articles?sort=tags.nope",
    "articles?sort=tags",
    "articles?sort=author.nope",
    "articles?fields=author.name&deep[author]=5",
    "articles?fields=*&deep[tags][_limit]=abc",
    "articles?fields=author.id&deep[author][_filter][password][_eq]=x",
    # What is named is looked at, whether it is shown or not.
    "articles?fields=id&deep[nope][_limit]=1",
    "articles?fields=*&deep[nope][_limit]=1",
    "articles?fields=id&deep[tags][_filter][nope]=1",
    "articles?fields=*&deep[author][nope][_limit]=1",
    "articles?fields=sections.id&deep[sections][item:tags][_limit]=1",
    "articles?fields=id&alias[a]=nope",
    "articles?fields=author.name&deep[author][_alias][a]=nope",
    "articles?aggregate[count]=*&fields=nope",
    "articles?groupBy=author&deep[nope][_limit]=1",
    "articles?filter[id]=$CURRENT_USER.role",
    "system_users?filter[id]=$CURRENT_ROLE.users.id",
    "system_users?filter[email][_gt]=$CURRENT_USER.role.users.email",
    "system_users?filter[email]=$CURRENT_USER.password",
    "system_roles?fields=count(users).email",
    "system_roles?fields=count(users).email&deep[count(users)][_filter][token][_starts_with]=a",
    "system_roles?fields=users.email&deep[users][_sort]=token",
    "system_roles?fields=users.email&deep[users][_filter][token][_starts_with]=a",
    "system_roles?filter[users][password][_contains]=a",
    "system_roles?fields=year(id).x",
    "authors?fields=" + ".".join(["boss"] * 12),
    "authors?filter" + "[boss]" * 12 + "[id]=1",
    "articles/1?aggregate[count]=*",
]


@pytest.mark.parametrize("path", REFUSED)
def test_what_cannot_be_read_is_refused_wherever_it_is_named(admin: Client, path: str) -> None:
    answer: Answer = admin.get(at(path))
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])


@pytest.mark.parametrize(
    ("location", "fault"),
    [
        ("deep[articles][_limit]", "-2"),
        ("deep[articles][_page]", "-1"),
        ("deep[articles][tags][_offset]", "x"),
        ("deep[articles][tags][_sort]", "a,,b"),
        ("deep[staff][boss]", "5"),
        ("deep[articles][_filter]", "nothing"),
        ("deep[articles][_limt]", "1"),
    ],
)
def test_a_fault_is_reported_with_its_level(admin: Client, location: str, fault: str) -> None:
    answer = admin.get(f"/items/authors?fields=articles.tags.id,staff.boss.id&{location}={fault}")
    assert (answer.codes, answer.errors[0]["parameter"]) == (
        ["INVALID_QUERY"],
        location.removesuffix("[boss]"),
    )


def test_a_fault_in_a_filter_is_reported_with_its_path(admin: Client) -> None:
    parameter = "deep[articles][_filter][title][_between]"
    (problem,) = admin.get(f"/items/authors?fields=articles.id&{parameter}=1").errors
    assert (problem["path"], problem["parameter"]) == (parameter, "deep[articles][_filter]")


def test_a_junction_without_a_key_of_its_own_is_listed_by_its_columns(
    stage: Stage, admin: Client
) -> None:
    stage.execute(
        "CREATE TABLE pairs (author integer REFERENCES authors, tag integer REFERENCES tags,"
        " UNIQUE (author, tag));"
        "INSERT INTO pairs VALUES (1, 1), (1, 2)"
    )
    body = {
        "collection": "pairs",
        "field": "author",
        "related_collection": "authors",
        "meta": {"one_field": "pairs"},
    }
    assert admin.post("/relations", body).status == 200
    assert admin.get("/items/authors/1?fields=pairs").data == {
        "pairs": [{"author": 1, "tag": 1}, {"author": 1, "tag": 2}]
    }
    assert admin.get("/items/authors/1?fields=pairs.tag.name").data["pairs"] == [
        {"tag": {"name": "x"}},
        {"tag": {"name": "y"}},
    ]
    admin.delete("/collections/pairs")
