"""Answers tell nothing about what rules hide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table

pytestmark = pytest.mark.release

CHAIN = "notes.deal.notes"


@pytest.fixture(scope="module")
def deals(stage: Stage, admin: Client) -> Table:
    """3,000 deals with ten notes each: a thousand are own ones, half of the others ACME's."""
    deals = table(admin, field("owner", "string"), field("client", "string"))
    notes = table(admin, field("deal", "integer"))
    relation = {"collection": notes.name, "field": "deal", "related_collection": deals.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "notes"}}).status == 200
    stage.execute(f"""
        INSERT INTO {deals.name} (owner, client) SELECT 'me', 'own ' || n
            FROM generate_series(1, 1000) AS n;
        INSERT INTO {deals.name} (owner, client)
            SELECT 'other', CASE WHEN n % 2 = 0 THEN 'ACME' ELSE 'other ' || n END
            FROM generate_series(1, 2000) AS n;
        INSERT INTO {notes.name} (deal) SELECT 1 + n % 3000 FROM generate_series(1, 30000) AS n;
        ANALYZE {deals.name};
        ANALYZE {notes.name};
        """)
    return deals


@pytest.fixture(scope="module")
def notes_name(admin: Client, deals: Table) -> str:
    relations = admin.get("/relations").data
    (name,) = (
        relation["collection"]
        for relation in relations
        if relation["related_collection"] == deals.name
    )
    return str(name)


def read(caller: Client, deals: Table, query: Json) -> Any:
    lists = {"_limit": -1, "deal": {"notes": {"_limit": -1}}}
    return caller.search(
        deals.path, {"fields": [f"{CHAIN}.id"], "limit": -1, "deep": {"notes": lists}, **query}
    )


HIDDEN_CHANGES = (
    "UPDATE {deals} SET client = 'own 1' WHERE owner = 'other'",
    "UPDATE {deals} SET client = NULL WHERE owner = 'other'",
    "UPDATE {notes} SET deal = 1001 WHERE deal > 1000",
    "INSERT INTO {deals} (owner, client) SELECT 'other', 'new' FROM generate_series(1, 20000)",
    "DELETE FROM {deals} WHERE owner = 'other'",
)


def test_no_answer_depends_on_hidden_items(stage: Stage, deals: Table, notes_name: str) -> None:
    """Neither how many there are, nor their values, nor the lists in them."""
    is_own = {"owner": {"_eq": "me"}}
    rights = [
        may(deals.name, permissions=is_own),
        may(notes_name, permissions={"deal": is_own}),
    ]
    caller = member(stage, *rights)
    queries: list[Json] = [
        {},
        {"filter": {"client": {"_eq": "own 1"}}},
        {"filter": {"client": {"_in": ["own 1", "new", "ACME"]}}},
        {"filter": {"client": {"_null": True}}, "sort": ["-client"]},
        {"filter": {"notes": {"deal": {"client": {"_starts_with": "n"}}}}},
        {"search": "new"},
    ]
    before = [answer_of(caller, deals, query) for query in queries]
    assert {status for status, *_ in before} == {200}
    for change in HIDDEN_CHANGES:
        stage.execute(change.format(deals=deals.name, notes=notes_name))
        stage.execute(f"ANALYZE {deals.name}; ANALYZE {notes_name}")
        for query, expected in zip(queries, before, strict=True):
            assert answer_of(caller, deals, query) == expected, (change, query)


def answer_of(caller: Client, deals: Table, query: Json) -> tuple[int, bytes, str | None]:
    """Return what an answer tells: the counts and the tag, too."""
    answer = read(caller, deals, {"meta": "*", **query})
    return answer.status, answer.content, answer.headers.get("etag")
