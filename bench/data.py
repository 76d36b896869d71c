"""The data: collections made through the REST API as users do, rows by SQL for speed."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import psycopg

from cms.auth.tokens import random_token
from cms.hashing.passwords import digest

ARTICLES = 100_000
AUTHORS = 1_000
TAGS = 50
LINKS = 300_000
ENTRIES = 20_000

Send = Callable[[str, object], object]

KEY = {
    "field": "id",
    "type": "integer",
    "schema": {"is_primary_key": True, "has_auto_increment": True},
}
_SHORT = {"type": "string", "schema": {"max_length": 100}}


def _text(name: str) -> dict[str, object]:
    return {"field": name, **_SHORT}


_ARTICLE: list[dict[str, object]] = [
    _text("title"),
    {"field": "body", "type": "text"},
    {"field": "status", "type": "string", "schema": {"max_length": 20}},
    {"field": "views", "type": "integer"},
    {"field": "rating", "type": "float"},
    {"field": "published", "type": "timestamp", "schema": {"is_indexed": True}},
    {"field": "author", "type": "integer"},
]
_ENTRY = [field for field in _ARTICLE if field["field"] not in ("rating", "published")]
_COLLECTIONS: dict[str, list[dict[str, object]]] = {
    "authors": [_text("name"), _text("country")],
    "tags": [_text("name")],
    "articles": _ARTICLE,
    "entries": _ENTRY,
}

_RELATIONS: list[dict[str, object]] = [
    {
        "collection": "articles",
        "field": "author",
        "related_collection": "authors",
        "meta": {"one_field": "articles"},
    },
    {"collection": "entries", "field": "author", "related_collection": "authors"},
    {
        "collection": "articles",
        "field": "tags",
        "related_collection": "tags",
        "meta": {"junction_collection": "articles_tags"},
    },
]

RULE = '{"status": {"_neq": "archived"}}'
"""What the member sees of articles, and may write of entries; one in four is archived."""

GRANT = (
    "INSERT INTO system_permissions (role, collection, action, permissions, fields) "
    "SELECT id, %s, %s, %s, %s FROM system_roles WHERE name = 'Members'"
)
_WRITABLE = "entries"
_RULED = {"articles", _WRITABLE}
_MEMBERS = {
    _WRITABLE: ["id", "title", "body", "status", "views", "author"],
    "articles": ["id", "title", "body", "status", "views", "rating", "published", "author", "tags"],
    "authors": ["id", "name"],
    "articles_tags": ["id", "articles_id", "tags_id"],
    "tags": ["id", "name"],
}

# Every value follows from the row's number, so that two runs measure the same. Multiplying by the
# prime 7919 spreads consecutive numbers, as in a table that has been written to for years.
_AUTHORS = (
    "INSERT INTO authors (name, country) "
    "SELECT 'Author ' || n, 'Country ' || n % 60 FROM generate_series(1, {}) AS n"
)
_TAGS = "INSERT INTO tags (name) SELECT 'Tag ' || n FROM generate_series(1, {}) AS n"
_ROWS = (
    "INSERT INTO {} (title, body, status, views, rating, published, author) "
    "SELECT 'Article number ' || n, repeat('Lorem ipsum dolor sit amet. ', 12), "
    "(ARRAY['published', 'published', 'draft', 'archived'])[n % 4 + 1], "
    "n::bigint * 7919 % 10007, n % 50 / 10.0, "
    "timestamptz '2020-01-01' + n::bigint * 7919 % 100003 * interval '25 minutes', n % {} + 1 "
    "FROM generate_series(1, {}) AS n"
)
_ENTRIES = (
    "INSERT INTO entries (title, body, status, views, author) "
    "SELECT title, body, status, views, author FROM articles LIMIT {}"
)
_LINKS = (
    "INSERT INTO articles_tags (articles_id, tags_id) "
    "SELECT n % {} + 1, (n::bigint * 7919 + n / {}) % {} + 1 FROM generate_series(1, {}) AS n"
)


def make(send: Send, dsn: str) -> None:
    """Make the collections of the cases and fill them; `send` posts to the service."""
    for name, fields in _COLLECTIONS.items():
        send("/collections", {"collection": name, "schema": {}, "fields": [KEY, *fields]})
    for relation in _RELATIONS:
        send("/relations", relation)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in (
            _AUTHORS.format(AUTHORS),
            _TAGS.format(TAGS),
            _ROWS.format("articles", AUTHORS, ARTICLES),
            _LINKS.format(ARTICLES, ARTICLES, TAGS, LINKS),
            _ENTRIES.format(ENTRIES),
        ):
            connection.execute(statement.encode())
        # Now, and not by autovacuum in the middle of a case.
        connection.execute("VACUUM (ANALYZE)")


def make_member(dsn: str) -> str:
    """Make a user of a role that sees what is not archived, and of that some fields; return its
    token.
    """
    token = random_token()
    role = str(uuid4())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO system_roles (id, name) VALUES (%s, 'Members')", (role,))
        connection.execute(
            "INSERT INTO system_users (email, role, token) VALUES ('member@example.com', %s, %s)",
            (role, digest(token)),
        )
        for collection, fields in _MEMBERS.items():
            rule = RULE if collection in _RULED else None
            actions = ["read"]
            if collection == _WRITABLE:
                actions += ["create", "update"]
            for action in actions:
                connection.execute(GRANT, (collection, action, rule, json.dumps(fields)))
    return token


def entry(number: int) -> dict[str, object]:
    """Return an item to create."""
    return {
        "title": f"Entry number {number}",
        "body": "Lorem ipsum dolor sit amet. " * 2,
        "status": "draft",
        "views": number % 1000,
        "author": number % AUTHORS + 1,
    }
