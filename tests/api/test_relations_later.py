"""Relations whose junction or sort field is made later, or goes again."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.test_relations import TO_TAGS, make_library, relate
from tests.client import Client
from tests.things import filled_template

template = filled_template(make_library)


@pytest.fixture
def library(api: Client) -> Client:
    """The administrator's client, with authors, articles (whose `author` is an
    integer) and tags (keyed by uuid).
    """
    return api


def listed(api: Client, article: int, field: str = "id") -> list[Any]:
    """Return a field of the rows that an article's list of tags shows, in its order."""
    return [
        row[field] for row in api.get(f"/items/articles/{article}?fields=tags.{field}").data["tags"]
    ]


@pytest.mark.release
def test_a_sort_field_may_be_made_after_the_relation_that_names_it(library: Client) -> None:
    assert relate(library, TO_TAGS, sort_field="place")["meta"]["sort_field"] == "place"
    article = library.post("/items/articles", {"tags": [{}, {}, {}]}).data["id"]
    assert listed(library, article) == [1, 2, 3]
    assert library.patch(f"/items/articles/{article}", {"tags": [2, 3, 1]}).status == 200

    assert (
        library.post("/fields/articles_tags", {"field": "place", "type": "integer"}).status == 200
    )
    assert library.get("/relations/articles/tags").data["meta"]["sort_field"] == "place"
    assert library.patch(f"/items/articles/{article}", {"tags": [2, 3, 1]}).status == 200
    assert listed(library, article) == [2, 3, 1]
    assert listed(library, article, "place") == [1, 2, 3]

    library.delete("/fields/articles_tags/place")
    assert library.get("/relations/articles/tags").data["meta"]["sort_field"] is None
    assert library.patch(f"/items/articles/{article}", {"tags": [3, 1, 2]}).status == 200
    assert listed(library, article) == [1, 2, 3]


@pytest.mark.release
def test_a_junction_field_may_be_made_after_the_relation_that_names_it(library: Client) -> None:
    fields = [{"field": "article", "type": "integer"}]
    library.post("/collections", {"collection": "labels", "schema": {}, "fields": fields})
    near = {"collection": "labels", "field": "article", "related_collection": "articles"}
    relate(library, near, one_field="tags", junction_field="tag")
    assert library.get("/fields/articles/tags").data["meta"]["special"] == ["m2m"]
    assert library.post("/items/articles", {"tags": [{}]}).data["tags"] == [1]
    library.post("/fields/labels", {"field": "tag", "type": "uuid"})
    assert library.get("/relations/articles/tags").data["meta"]["junction_field"] == "tag"
    far = {"collection": "labels", "field": "tag", "related_collection": "tags"}
    relate(library, far, junction_field="article")
    tag = library.post("/items/tags", {}).data["id"]
    article = library.post("/items/articles", {"tags": [{"tag": tag}]}).data["id"]
    assert library.get(f"/items/articles/{article}?fields=tags.tag.id").data == {
        "tags": [{"tag": {"id": tag}}]
    }


@pytest.mark.release
def test_a_sort_field_that_was_dropped_behind_the_services_back_counts_as_unnamed(
    library: Client, dsn: str
) -> None:
    relate(library, TO_TAGS)
    library.post("/fields/articles_tags", {"field": "place", "type": "integer"})
    library.patch("/relations/articles/tags", {"meta": {"sort_field": "place"}})
    article = library.post("/items/articles", {"tags": [{}, {}]}).data["id"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE articles_tags DROP COLUMN place")
    library.post("/utils/cache/clear")
    assert library.patch(f"/items/articles/{article}", {"tags": [2, 1, {}]}).status == 200
    assert listed(library, article) == [1, 2, 3]


def test_a_list_sorted_by_what_holds_no_place_gets_none_written(library: Client) -> None:
    relate(library, TO_TAGS, sort_field="id")
    for _ in range(2):
        article = library.post("/items/articles", {"tags": [{}, {}]}).data["id"]
    assert listed(library, article) == [3, 4]
