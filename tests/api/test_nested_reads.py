"""Reads through many to-many relations: what multiplies is refused before
it runs, anything else is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cms.config import Config
from tests.client import Answer, Client
from tests.members import may, member
from tests.statements import counted
from tests.things import Json, Stage, field, staged

COLLECTIONS = {
    "authors": [field("name", "string")],
    "articles": [field("title", "string"), field("author", "integer")],
    "tags": [field("name", "string")],
    "comments": [field("text", "string"), field("article", "integer")],
}
RELATIONS: list[Json] = [
    {
        "collection": "articles",
        "field": "author",
        "related_collection": "authors",
        "meta": {"one_field": "articles"},
    },
    {
        "collection": "articles",
        "field": "tags",
        "related_collection": "tags",
        "meta": {"junction_collection": "articles_tags", "one_field": "articles"},
    },
    {
        "collection": "comments",
        "field": "article",
        "related_collection": "articles",
        "meta": {"one_field": "comments"},
    },
]


ROWS = """
    INSERT INTO authors (name) SELECT 'author ' || n FROM generate_series(1, 20) AS n;
    INSERT INTO articles (title, author) SELECT 'article ' || n, 1 + n % 20 FROM generate_series(1,
        2000) AS n;
    INSERT INTO tags (name) SELECT 'tag ' || n FROM generate_series(1, 10) AS n;
    INSERT INTO articles_tags (articles_id, tags_id) SELECT 1 + n % 2000,
        1 + n % 10 FROM generate_series(1, 4000) AS n;
    INSERT INTO comments (text, article) SELECT 'comment ' || n,
        1 + n % 2000 FROM generate_series(1, 4000) AS n;
"""
WITH_COUNT = "author.articles.author.articles.author.articles_count"
MULTIPLYING = "author.articles.author.articles.author.articles.author.articles"


@pytest.fixture(scope="module", params=["with statistics", "without statistics"])
def stage(
    request: pytest.FixtureRequest, settings: Config, make_database: Any, template: str
) -> Iterator[Stage]:
    """A site of twenty authors with a hundred articles each, which PostgreSQL has looked at or
    not.
    """
    with staged(settings, make_database, template) as site:
        make_site(site.admin)
        site.execute(ROWS)
        if request.param == "with statistics":
            site.execute("ANALYZE")
        yield site


def make_site(admin: Client) -> None:
    for name, fields in COLLECTIONS.items():
        assert (
            admin.post("/collections", {"collection": name, "schema": {}, "fields": fields}).status
            == 200
        )
    for relation in RELATIONS:
        assert admin.post("/relations", relation).status == 200


def along(path: list[str], leaf: Json) -> Json:
    """Return the filter that asks something of what lies at the end of a path."""
    for name in reversed(path):
        leaf = {name: leaf}
    return leaf


def is_refused(answer: Answer, chain: str = MULTIPLYING) -> bool:
    """Tell whether a read was refused for what it nests."""
    (fault,) = answer.errors
    assert (answer.status, fault["code"], fault["parameter"]) == (400, "INVALID_QUERY", "fields")
    return bool(fault["chain"] == chain and chain in fault["message"])


@pytest.mark.release
def test_lists_that_multiply_are_refused_however_they_are_asked_for(stage: Stage) -> None:
    api = stage.admin
    fields = f"{MULTIPLYING}.id"
    assert is_refused(api.get(f"/items/articles?fields={fields}"))
    assert is_refused(api.get(f"/items/articles/1?fields={fields}"))
    assert is_refused(api.search("/items/articles", {"fields": [fields], "limit": 1}))
    assert is_refused(api.get(f"/items/articles?export=csv&fields={fields}"))
    aliased = "fields=a.b.a.b.a.b.a.b.id&alias[a]=author" + "".join(
        f"&deep{'[a][b]' * n}[a][_alias][b]=articles&deep{'[a][b]' * (n + 1)}[_alias][a]=author"
        for n in range(4)
    )
    assert is_refused(api.get(f"/items/articles?{aliased}"), "a.b.a.b.a.b.a.b")


@pytest.mark.quick(1)
def test_what_a_write_answers_is_bounded_like_a_read(stage: Stage) -> None:
    api = stage.admin
    fields = f"fields={MULTIPLYING}.id"
    before = stage.value("SELECT count(*) FROM articles")
    assert is_refused(api.post(f"/items/articles?{fields}", {"author": 1}))
    assert is_refused(api.post(f"/items/articles?{fields}", [{"author": 1}] * 3))
    assert is_refused(api.patch(f"/items/articles/1?{fields}", {"title": "changed"}))
    operations = [
        {"method": "create", "collection": "articles", "data": {"author": 1}},
        {"method": "read", "collection": "articles", "query": {"fields": f"{MULTIPLYING}.id"}},
    ]
    assert is_refused(api.post("/batch", {"operations": operations}))
    assert stage.value("SELECT count(*) FROM articles") == before
    assert stage.value("SELECT count(*) FROM articles WHERE title = 'changed'") == 0


def test_members_are_refused_like_administrators(stage: Stage) -> None:
    rights = [may(name, "*") for name in ("authors", "articles")]
    assert is_refused(member(stage, *rights).get(f"/items/articles?fields={MULTIPLYING}.id"))


def test_a_page_of_a_site_four_relations_deep_is_answered(stage: Stage) -> None:
    latest = "deep[author][articles][_limit]=10&deep[author][articles][_sort]=-id"
    names = (
        "title,author.name,author.articles.title,author.articles.tags.tags_id.name,"
        "author.articles.comments.text"
    )
    page = stage.admin.get(f"/items/articles?limit=25&fields={names}&{latest}").data
    assert [len(page), len(page[0]["author"]["articles"])] == [25, 10]
    assert len(page[0]["author"]["articles"][0]["comments"]) == 2
    deeper = (
        "name,articles.title,articles.comments.text,"
        "articles.tags.tags_id.articles.articles_id.title"
    )
    page = stage.admin.get(f"/items/authors?limit=2&fields={deeper}&deep[articles][_limit]=5").data
    assert len(page[0]["articles"][0]["tags"][0]["tags_id"]["articles"]) == 100


def test_pages_that_could_hold_too_much_and_do_not_are_answered(stage: Stage) -> None:
    """A hundred articles with a hundred comments each for every author
    would be more; there are two of each.
    """
    page = stage.admin.get(
        "/items/authors?limit=-1&fields=articles.comments.text,articles.tags.tags_id.name"
    ).data
    assert (
        sum(len(article["comments"]) for author in page for article in author["articles"]) == 4000
    )
    for path in (
        "?limit=-1",
        "?limit=-1&fields=title,count(comments),author.count(articles)&sort=-count(comments)",
    ):
        assert len(stage.admin.get(f"/items/articles{path}").data) >= 2000


def test_an_export_is_bounded_for_each_batch_of_it(
    stage: Stage, make_client: Any, admin_token: str
) -> None:
    every = stage.admin.get(
        "/items/articles?export=json&limit=-1&fields=comments.text,tags.tags_id.name"
    )
    assert len(every.body) >= 2000


def test_the_look_at_a_statement_is_kept_for_its_operands_only(
    make_client: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = bounded(make_client, stage, max_nested_rows=50_000)
    chain = "articles.author.articles"
    path = f"/items/authors?fields={chain}.id&filter[name]"
    for _ in range(2):
        assert api.get(f"{path}[_eq]=nobody").data == []
        assert is_refused(api.get(f"{path}[_neq]=nobody"), chain)
        assert is_refused(api.get(f"{path}[_neq]=somebody"), chain)
    with counted(monkeypatch) as seen:
        assert api.get(f"{path}[_eq]=nobody").data == []
        assert is_refused(api.get(f"{path}[_neq]=nobody"), chain)
    assert not any("EXPLAIN" in text for text in seen)


def test_what_cannot_be_too_much_is_not_even_looked_at(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/items/authors?fields=articles.comments.id"
    assert stage.admin.get(path).status == 200
    with counted(monkeypatch) as seen:
        assert stage.admin.get(path).status == 200
        assert stage.admin.get(f"{path}&limit=99").status == 200
    assert not any("EXPLAIN" in text for text in seen)
    assert len(seen) == 2


@pytest.mark.quick(2)
@pytest.mark.parametrize(("limit", "status"), [(10, 200), (11, 400)])
def test_the_setting_is_met_and_not_passed(
    make_client: Any, stage: Stage, limit: int, status: int
) -> None:
    """Of ten authors all articles are a thousand; of eleven they are
    more, and PostgreSQL expects so.
    """
    api = bounded(make_client, stage, max_nested_rows=1000)
    assert api.get(f"/items/authors?fields=articles.id&limit={limit}").status == status
    assert (
        api.get(f"/items/authors?fields=articles.id&deep[articles][_limit]=9&limit={limit}").status
        == 200
    )


def bounded(make_client: Any, stage: Stage, **settings: object) -> Client:
    """Return an administrator's client of another process, with other settings."""
    client: Client = make_client(database_url=stage.dsn, **settings).bearing(stage.admin._token)
    return client


@pytest.mark.release
def test_a_small_site_that_postgres_has_never_looked_at_is_read_in_depth(api: Client) -> None:
    """It takes tables that it knows nothing of to be larger than they
    are, and their lists to be shorter.
    """
    make_site(api)
    tree = {"title": "A", "comments": [{"text": "c"}], "tags": [{"tags_id": {"name": "t"}}]}
    assert (
        api.post(
            "/items/authors", [{"name": "Ann", "articles": [tree, tree]}, {"name": "Bob"}]
        ).status
        == 200
    )
    assert len(api.get("/items/authors?fields=*.*.*.*.*").data) == 2
    many = [{"title": f"{number}"} for number in range(100)]
    assert api.patch("/items/authors/2", {"articles": many}).status == 200
    assert is_refused(api.get(f"/items/articles?fields={MULTIPLYING}.id"))


@pytest.mark.release
@pytest.mark.parametrize("word", ["_and", "_or"])
def test_many_filters_along_many_relations_are_answered(
    make_client: Any, admin_token: str, word: str
) -> None:
    """PostgreSQL would plan them for minutes where it joined all of their ninety tables."""
    api = make_client(db_statement_timeout=timedelta(seconds=10)).bearing(admin_token)
    make_site(api)
    (ann, _) = api.post(
        "/items/authors", [{"name": "Ann", "articles": [{"title": "A"}]}, {"name": "Bob"}]
    ).data
    path = ["articles", "author"] * 4 + ["articles"]
    filters = [along(path, {"title": {"_neq": f"nothing {number}"}}) for number in range(10)]
    assert api.search("/items/authors", {"filter": {word: filters}, "fields": ["id"]}).data == [
        {"id": ann["id"]}
    ]
    filters[0] = along([*path[:-1], "articles", "_none"], {"title": {"_eq": "A"}})
    expected = [] if word == "_and" else [{"id": ann["id"]}]
    assert (
        api.search("/items/authors", {"filter": {word: filters}, "fields": ["id"]}).data == expected
    )


@pytest.mark.release
def test_one_long_list_among_short_ones_is_reckoned_with(api: Client, dsn: str) -> None:
    """Of most authors there is one article, and of one a hundred: what the
    mean says is not what a read picks.
    """
    make_site(api)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO authors (name) SELECT 'author ' || n FROM generate_series(1, 5000) AS n"
        )
        connection.execute(
            "INSERT INTO articles (title, author)"
            " SELECT 'article ' || n, CASE WHEN n <= 100 THEN 1 ELSE n - 99 END FROM "
            "generate_series(1, 5000) AS n"
        )
        connection.execute(
            "INSERT INTO comments (text, article) SELECT 'c', n FROM generate_series(1, 100) AS n"
        )
    chain = "author.articles.author.articles"
    assert is_refused(api.get(f"/items/articles?limit=1&filter[author]=1&fields={MULTIPLYING}.id"))
    assert is_refused(api.get(f"/items/articles/1?fields={MULTIPLYING}.id"))
    assert is_refused(api.patch(f"/items/articles/1?fields={MULTIPLYING}.id", {"title": "changed"}))
    assert is_refused(api.get(f"/items/articles?export=json&fields={MULTIPLYING}.id"))
    assert is_refused(
        api.get(f"/items/articles?filter[author]=1&fields={chain}.author.count(articles)"),
        WITH_COUNT,
    )
    page = api.get(f"/items/articles?limit=2&filter[author]=1&fields={chain}.id").data
    assert len(page[1]["author"]["articles"][99]["author"]["articles"]) == 100
    ordinary = (
        "title,author.name,author.articles.title,author.articles.comments.text,"
        "author.articles.tags.tags_id.name"
    )
    assert len(api.get(f"/items/articles?limit=100&fields={ordinary}").data) == 100
