"""Reads through many to-many relations: answers are bounded by their size and their time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cms.config import Config
from tests.client import Client
from tests.things import Json, Stage, field, staged

pytestmark = pytest.mark.release

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
MULTIPLYING = "author.articles.author.articles.author.articles.author.articles"


@pytest.fixture(scope="module")
def stage(settings: Config, make_database: Any, template: str) -> Iterator[Stage]:
    """A site of twenty authors with a hundred articles each."""
    with staged(settings, make_database, template) as site:
        make_site(site.admin)
        site.execute(ROWS)
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


@pytest.mark.release
def test_what_multiplies_is_refused_by_the_size_of_the_answer(
    make_client: Any, stage: Stage
) -> None:
    """However it is asked for; a write then writes nothing."""
    api = bounded(make_client, stage, max_answer_size=100_000)
    chain = "author.articles.author.articles.id"
    before = stage.value("SELECT count(*) FROM articles")
    operations = [{"method": "read", "collection": "articles", "query": {"fields": chain}}]
    answers = [
        api.get(f"/items/articles?fields={chain}"),
        api.get(f"/items/articles/1?fields={chain}"),
        api.search("/items/articles", {"fields": [chain], "limit": 1}),
        api.post(f"/items/articles?fields={chain}", {"author": 1}),
        api.patch(f"/items/articles/1?fields={chain}", {"title": "changed"}),
        api.post("/batch", {"operations": operations}),
    ]
    for answer in answers:
        assert (answer.status, answer.errors[0]["code"]) == (400, "INVALID_QUERY")
        assert "larger than 100000 bytes" in answer.errors[0]["message"]
    assert stage.value("SELECT count(*) FROM articles") == before
    assert stage.value("SELECT count(*) FROM articles WHERE title = 'changed'") == 0


def test_what_takes_too_long_is_ended(make_client: Any, stage: Stage) -> None:
    api = bounded(make_client, stage, db_statement_timeout=timedelta(milliseconds=300))
    answer = api.get(f"/items/articles?limit=-1&fields={MULTIPLYING}.id")
    assert (answer.status, answer.errors[0]["code"]) == (503, "SERVICE_UNAVAILABLE")


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


def bounded(make_client: Any, stage: Stage, **settings: object) -> Client:
    """Return an administrator's client of another process, with other settings."""
    client: Client = make_client(database_url=stage.dsn, **settings).bearing(stage.admin._token)
    return client


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
