"""A shop whose member sees published books and Austrian authors: of each
some fields, and of the rest nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cms.config import Config
from tests.client import Client
from tests.members import may, member
from tests.things import Stage, field, make_collections, staged

Json = dict[str, Any]

COLLECTIONS: dict[str, list[Json]] = {
    "authors": [field("name", "string"), field("country", "string")],
    "books": [
        field("title", "string"),
        field("price", "integer"),
        field("weight", "float"),
        field("published", "date"),
        field("status", "string"),
        field("note", "string"),
        field("code", "hash"),
        field("token", "string", special="conceal"),
        field("author", "integer"),
        field("item", "string"),
        field("kind", "string"),
    ],
    "reviews": [field("text", "string"), field("book", "integer")],
}
RELATIONS: list[tuple[str, str, str | None, Json]] = [
    ("books", "author", "authors", {"one_field": "books"}),
    ("reviews", "book", "books", {"one_field": "reviews"}),
    (
        "books",
        "item",
        None,
        {"one_collection_field": "kind", "one_allowed_collections": ["authors", "reviews"]},
    ),
]
ROWS: dict[str, list[Json]] = {
    "authors": [{"name": "Ann", "country": "AT"}, {"name": "Ben", "country": "BE"}],
    # Before the books that name them; they get their own books afterwards.
    "reviews": [{"text": "Good"}, {"text": "Bad"}],
    "books": [
        {
            "title": title,
            "price": price,
            "weight": price,
            "published": "2020-01-01",
            "status": status,
            "note": f"note {price}",
            "code": "secret",
            "token": "swordfish",
            "author": author,
            "item": "1",
            "kind": kind,
        }
        for title, price, status, author, kind in (
            ("One", 1, "published", 1, "authors"),
            ("Two", 2, "draft", 1, "reviews"),
            ("Three", 3, "published", 2, "reviews"),
        )
    ],
}

BOOKS = (
    "id",
    "title",
    "price",
    "weight",
    "published",
    "code",
    "token",
    "author",
    "reviews",
    "item",
    "kind",
)
PERMISSIONS = [
    may("books", *BOOKS, permissions={"status": {"_eq": "published"}}),
    may("authors", "id", "name", "books", permissions={"country": {"_eq": "AT"}}),
    may("system_users", "id", permissions={"id": {"_eq": "$CURRENT_USER"}}),
]


@dataclass(frozen=True)
class Shop:
    stage: Stage
    member: Client

    @property
    def admin(self) -> Client:
        return self.stage.admin


@pytest.fixture(scope="module")
def shop(settings: Config, make_database: Callable[..., str], template: str) -> Iterator[Shop]:
    with staged(settings, make_database, template) as stage:
        make_collections(stage.admin, COLLECTIONS, RELATIONS)
        for name, rows in ROWS.items():
            assert stage.admin.post(f"/items/{name}", rows).status == 200
        books = [{"id": 1, "book": 1}, {"id": 2, "book": 2}]
        assert stage.admin.patch("/items/reviews", books).status == 200
        yield Shop(stage, member(stage, *PERMISSIONS))
