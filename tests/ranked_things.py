"""A collection that is searched by relevance, and the order of its items as Python ranks them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from cms.query.sql import select
from tests.members import may, member
from tests.things import Stage, Table, field, table

TEXTS = ("title", "label", "body")
EQUAL: dict[str, int] = {}
WEIGHTED = {"title": 10, "label": 10, "size": 2}
"""What fields count; all others count 1."""

MAX_RANKED = 8
OWNERS = ("a cat", "hotdog", "bird 7")
"""The texts of the related items with the keys 1, 2, 3."""

Row = dict[str, Any]

CATS = [
    {
        "title": "a cat",
        "label": None,
        "body": "cat",
        "size": 1,
        "code": None,
        "owner": None,
        "shown": True,
        "mine": True,
    }
] * 12
PART = {**CATS[0], "title": "concatenated", "body": "bobcat"}
IN_BODY = {**PART, "body": "a cat"}


@contextmanager
def ranking_few() -> Iterator[None]:
    """Have pages by relevance rank `MAX_RANKED` items at most, within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "MAX_RANKED", MAX_RANKED)
        yield


@dataclass(frozen=True)
class Searched:
    """A searchable collection, callers who search it, and what its fields count.

    The reader sees items that are shown, the member also parts of others. The admin alone searches
    the related items as well, if there are any.
    """

    admin: Table
    member: Table
    reader: Table
    weights: dict[str, int]
    dsn: str

    def fill(self, rows: list[Row]) -> None:
        columns = ("shown", "mine", "size", "code", "owner", *TEXTS)
        insert = f"INSERT INTO {self.admin.name} ({', '.join(columns)}) SELECT "
        values = ", ".join(f"r.{column}" for column in columns)
        source = (
            " FROM json_populate_recordset(NULL::{0}, %s) WITH ORDINALITY AS r ORDER BY ordinality"
        )
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"TRUNCATE {self.admin.name} RESTART IDENTITY".encode())
            statement = insert + values + source.format(self.admin.name)
            connection.execute(statement.encode(), [json.dumps(rows)])


def searched(stage: Stage, weights: dict[str, int]) -> Searched:
    """Make a collection of which the member reads all but the title of items that are shown, and
    only the title of those that are the member's.
    """
    types = {"title": "string", "label": "string", "body": "text", "size": "integer"}
    fields = [
        {**field(name, kind), "meta": {"search_weight": weights[name]} if name in weights else {}}
        for name, kind in (types | {"code": "uuid"}).items()
    ]
    others = (field("shown", "boolean"), field("mine", "boolean"), field("owner", "integer"))
    things = table(stage.admin, *others, *fields, searchable=True)
    readable = ("id", "label", "body", "size", "code")
    shown = may(things.name, *readable, permissions={"shown": {"_eq": True}})
    mine = may(things.name, "id", "title", permissions={"mine": {"_eq": True}})
    everything = may(things.name, permissions={"shown": {"_eq": True}})
    return Searched(
        things,
        Table(member(stage, shown, mine), things.name),
        Table(member(stage, everything), things.name),
        weights,
        stage.dsn,
    )


def with_owners(stage: Stage, searched: Searched) -> Searched:
    """Have searches look into the owners of items, too."""
    owners = table(stage.admin, field("name", "string"))
    owners.add(*({"name": name} for name in OWNERS))
    relation = {
        "collection": searched.admin.name,
        "field": "owner",
        "related_collection": owners.name,
    }
    assert stage.admin.post("/relations", relation).status == 200
    path = f"/fields/{searched.admin.name}/owner"
    assert stage.admin.patch(path, {"meta": {"searchable": True}}).status == 200
    return searched


# The ranking that answers are compared with


def seen_by(caller: str, row: Row) -> Row | None:
    """The row as a caller sees it, with null for what is hidden in it."""
    if caller == "admin":
        return row
    if caller == "reader":
        return {**row, "owner": None} if row["shown"] else None
    if not (row["shown"] or row["mine"]):
        return None
    hidden = {"owner"}
    if not row["shown"]:
        hidden |= {"label", "body", "size", "code"}
    if not row["mine"]:
        hidden |= {"title"}
    return {name: None if name in hidden else value for name, value in row.items()}


def count_of(word: str, name: str, value: object, weight: int) -> int:
    if name not in TEXTS:
        return 1_000_000 + weight if word == str(value) else 0
    text = str(value or "").lower().replace("ä", "a")
    if word not in text:
        return 0
    is_whole = re.search(rf"(^|\W){re.escape(word)}(\W|$)", text)
    return 1_000_000 + weight if is_whole else weight


def found_items(searched: Searched, rows: list[Row], words: list[str]) -> list[tuple[int, Row]]:
    """The found rows in the order of their keys, each with its relevance."""
    names = (*TEXTS, "size", "code", "id")
    found: list[tuple[int, Row]] = []
    for row in rows:
        counts = [
            max(count_of(word, name, row[name], searched.weights.get(name, 1)) for name in names)
            for word in words
        ]
        owner = OWNERS[row["owner"] - 1] if row["owner"] else ""
        if all(count or word in owner for count, word in zip(counts, words, strict=True)):
            found.append((sum(counts), row))
    return found


def ranked(found: list[tuple[int, Row]], sort: str) -> list[int]:
    """The ids of rows in the order of the answer."""
    direction = 1 if sort.startswith("-") else -1
    order: list[tuple[float, float, int]] = []
    for count, row in found:
        # PostgreSQL has nulls as the largest.
        size = float("inf") if row["size"] is None else row["size"]
        order.append((direction * count, -size if sort.endswith("-size") else 0, row["id"]))
    return [id for *_, id in sorted(order)]


def pages_by_cursor(things: Table, query: str) -> Iterator[int]:
    """Yield the ids of the items on all pages."""
    after = ""
    for _ in range(40):  # more than there are items
        answer = things.read(f"{query}&meta=next_cursor{after}").body
        yield from (item["id"] for item in answer["data"])
        if (token := answer["meta"]["next_cursor"]) is None:
            return
        after = f"&page[after]={token}"
