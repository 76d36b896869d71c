"""Reads through many to-many relations: what multiplies is refused before it runs, anything else is answered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cms.config import Config
from tests.client import Client
from tests.things import Json, field, furnished

COLLECTIONS = {
    "authors": [field("name", "string")],
    "articles": [field("title", "string"), field("author", "integer")],
    "tags": [field("name", "string")],
    "comments": [field("text", "string"), field("article", "integer")],
}
RELATIONS: list[Json] = [
    {"collection": "articles", "field": "author", "related_collection": "authors", "meta": {"one_field": "articles"}},
    {
        "collection": "articles",
        "field": "tags",
        "related_collection": "tags",
        "meta": {"junction_collection": "articles_tags", "one_field": "articles"},
    },
    {"collection": "comments", "field": "article", "related_collection": "articles", "meta": {"one_field": "comments"}},
]


@pytest.fixture(scope="module")
def template(settings: Config, make_database: Any, template: str) -> Iterator[str]:
    with furnished(settings, make_database, template, furnish=make_site) as name:
        yield name


def make_site(admin: Client) -> None:
    for name, fields in COLLECTIONS.items():
        assert admin.post("/collections", {"collection": name, "schema": {}, "fields": fields}).status == 200
    for relation in RELATIONS:
        assert admin.post("/relations", relation).status == 200


def along(path: list[str], leaf: Json) -> Json:
    """Return the filter that asks something of what lies at the end of a path."""
    for name in reversed(path):
        leaf = {name: leaf}
    return leaf


@pytest.mark.parametrize("word", ["_and", "_or"])
def test_many_filters_along_many_relations_are_answered(make_client: Any, admin_token: str, word: str) -> None:
    """PostgreSQL would plan them for minutes where it joined all of their ninety tables."""
    api = make_client(db_statement_timeout=timedelta(seconds=10)).bearing(admin_token)
    (ann, _) = api.post("/items/authors", [{"name": "Ann", "articles": [{"title": "A"}]}, {"name": "Bob"}]).data
    path = ["articles", "author"] * 4 + ["articles"]
    filters = [along(path, {"title": {"_neq": f"nothing {number}"}}) for number in range(10)]
    assert api.search("/items/authors", {"filter": {word: filters}, "fields": ["id"]}).data == [{"id": ann["id"]}]
    filters[0] = along([*path[:-1], "articles", "_none"], {"title": {"_eq": "A"}})
    expected = [] if word == "_and" else [{"id": ann["id"]}]
    assert api.search("/items/authors", {"filter": {word: filters}, "fields": ["id"]}).data == expected
