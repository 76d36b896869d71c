"""How long lists are: a page in the items of a list, whole in a single item."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.client import Client
from tests.things import Stage, field, table

pytestmark = pytest.mark.release


@pytest.fixture(scope="module", autouse=True)
def tags(stage: Stage) -> None:
    fields = [field("name", "string")]
    tags = {"collection": "tags", "schema": {}, "fields": fields}
    assert stage.admin.post("/collections", tags).status == 200
    assert stage.admin.post("/items/tags", {"name": "x"}).status == 200


@pytest.fixture
def many_kids(stage: Stage) -> Iterator[None]:
    """A tag with 150 kids, the first of which has 120 toys, and a singleton with that tag."""
    stage.execute("CREATE TABLE kids (id serial PRIMARY KEY, tag integer REFERENCES tags)")
    stage.execute("CREATE TABLE toys (id serial PRIMARY KEY, kid integer REFERENCES kids)")
    stage.execute("INSERT INTO kids (tag) SELECT 1 FROM generate_series(1, 150)")
    stage.execute("INSERT INTO toys (kid) SELECT 1 FROM generate_series(1, 120)")
    for collection, name, related, one_field in (
        ("kids", "tag", "tags", "kids"),
        ("toys", "kid", "kids", "toys"),
    ):
        body = {
            "collection": collection,
            "field": name,
            "related_collection": related,
            "meta": {"one_field": one_field},
        }
        assert stage.admin.post("/relations", body).status == 200
    yield
    for collection in ("toys", "kids"):
        assert stage.admin.delete(f"/collections/{collection}").status == 204


@pytest.mark.usefixtures("many_kids")
def test_lists_of_a_list_hold_a_page_and_those_of_one_item_are_whole(admin: Client) -> None:
    for query in ("fields=kids", "fields=kids.id", "fields=*"):
        assert len(admin.get(f"/items/tags?limit=1&{query}").data[0]["kids"]) == 100
        for answer in (
            admin.get(f"/items/tags/1?{query}"),
            admin.patch(f"/items/tags/1?{query}", {"name": "x"}),
        ):
            assert len(answer.data["kids"]) == 150, answer
    assert len(admin.get("/items/tags/1?fields=kids&deep[kids][_limit]=7").data["kids"]) == 7
    assert len(admin.get("/items/tags/1?fields=kids&deep[kids][_limit]=-1").data["kids"]) == 150
    deeper = admin.get("/items/tags/1?fields=kids.toys&deep[kids][_sort]=id").data["kids"]
    assert (len(deeper), len(deeper[0]["toys"])) == (150, 120)
    created = admin.post("/items/toys?fields=kid.tag.kids.toys", {"kid": 1}).data["kid"]
    assert len(created["tag"]["kids"]) == 150
    operations = [
        {"method": "read", "collection": "tags", "key": 1, "query": {"fields": ["kids"]}},
        {"method": "update", "collection": "tags", "key": 1, "data": {}, "fields": ["kids"]},
        {"method": "update", "collection": "tags", "keys": [1], "data": {}, "fields": ["kids"]},
    ]
    read, one, several = admin.post("/batch", {"operations": operations}).data
    assert (len(read["kids"]), len(one["kids"]), len(several[0]["kids"])) == (150, 150, 100)
    many = admin.patch("/items/tags?fields=kids", {"keys": [1], "data": {"name": "x"}}).data
    assert len(many[0]["kids"]) == 100


@pytest.mark.release
def test_the_settings_bound_the_lists_of_one_item(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    client = make_client(query_limit_max=40, query_limit_default=10).bearing(admin_token)
    parents = table(client)
    kids = table(client, field("parent", "integer"))
    relation = {
        "collection": kids.name,
        "field": "parent",
        "related_collection": parents.name,
        "meta": {"one_field": "kids"},
    }
    assert client.post("/relations", relation).status == 200
    parents.add({})
    kids.add(*({"parent": 1} for _ in range(50)))
    for answer in (
        client.get(f"{parents.path}/1?fields=kids"),
        client.get(f"{parents.path}/1?fields=kids.id"),
        client.patch(f"{parents.path}/1?fields=kids", {}),
    ):
        assert len(answer.data["kids"]) == 40, answer
    assert len(client.get(f"{parents.path}?fields=kids").data[0]["kids"]) == 10
    small = make_client(max_answer_size=300).bearing(admin_token)
    assert small.get(f"{parents.path}/1?fields=kids.id").codes == ["INVALID_QUERY"]


@pytest.mark.release
@pytest.mark.usefixtures("many_kids")
def test_the_lists_of_a_singleton_are_whole(stage: Stage, admin: Client) -> None:
    body = {
        "collection": "start",
        "meta": {"singleton": True},
        "schema": {},
        "fields": [field("tag", "integer")],
    }
    assert admin.post("/collections", body).status == 200
    relation = {"collection": "start", "field": "tag", "related_collection": "tags"}
    assert admin.post("/relations", relation).status == 200
    for answer in (
        admin.patch("/items/start?fields=tag.kids", {"tag": 1}),
        admin.get("/items/start?fields=tag.kids"),
    ):
        assert len(answer.data["tag"]["kids"]) == 150, answer
    assert admin.delete("/collections/start").status == 204
