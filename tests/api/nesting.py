"""Collections with every kind of relation, for the tests of nested writes."""

from __future__ import annotations

from typing import Any

from cms.schema.system import ENDPOINTS
from tests.client import Client
from tests.things import Json, field, make_collections

COLLECTIONS = {
    "people": [
        field("name", "string", is_unique=True),
        field("boss", "integer"),
        field("pin", "string"),
    ],
    "posts": [
        field("title", "string"),
        field("author", "integer"),
        field("changed", "timestamp", special="date-updated"),
    ],
    "tags": [field("name", "string", is_nullable=False), field("size", "integer")],
    "comments": [field("text", "string"), field("post", "integer")],
    "steps": [
        field("text", "string"),
        field("post", "integer", is_nullable=False),
        field("place", "integer"),
    ],
    "headings": [field("title", "string")],
    "notes": [
        {"field": "code", "type": "uuid", "schema": {"is_primary_key": True}},
        field("text", "string"),
    ],
    "sections": [
        field("post", "integer"),
        field("item", "string"),
        field("kind", "string"),
        field("sort", "integer"),
    ],
}
RELATIONS: list[tuple[str, str, str | None, Json]] = [
    ("people", "boss", "people", {"one_field": "staff"}),
    ("posts", "author", "people", {"one_field": "posts"}),
    ("posts", "tags", "tags", {"junction_collection": "posts_tags", "one_field": "posts"}),
    ("comments", "post", "posts", {"one_field": "comments", "one_deselect_action": "delete"}),
    ("steps", "post", "posts", {"one_field": "steps", "sort_field": "place"}),
    ("sections", "post", "posts", {"one_field": "sections", "sort_field": "sort"}),
    (
        "sections",
        "item",
        None,
        {"one_collection_field": "kind", "one_allowed_collections": ["headings", "notes"]},
    ),
]


def make_relations(admin: Client) -> None:
    make_collections(admin, COLLECTIONS, RELATIONS)


def add_post(admin: Client, **values: object) -> int:
    """Create a post, and return its key."""
    key: int = admin.post("/items/posts", {"title": "p", **values}).data["id"]
    return key


def item(admin: Client, path: str, fields: str) -> Any:
    return admin.get(f"/items/{path}?fields={fields}").data


def count(admin: Client, collection: str) -> int:
    path = ENDPOINTS.get(collection, f"/items/{collection}")
    count: int = admin.get(f"{path}?aggregate[count]=*").data[0]["count"]
    return count
