"""A view replaces a table while requests wait for it: each is answered, as before or as after."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

from cms.store import snapshot
from cms.structure import collections, fields
from tests.client import Answer, Client
from tests.databases import run_sql
from tests.waiting import eventually

WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted"
RENAME = {"field": "other"}
WITH_NAME = {"filter": {"name": {"_eq": "a"}}}

CALLS: dict[str, Callable[[Client], Answer]] = {
    "list": lambda api: api.get("/items/goods?filter[parts][id][_gt]=0"),
    "nested": lambda api: api.get("/items/parts?fields=*,goods.*"),
    "item": lambda api: api.get("/items/goods/1"),
    "page": lambda api: api.get("/items/goods?filter[name][_eq]=a&sort=-name&meta=*"),
    "create": lambda api: api.post("/items/goods", {"name": "b"}),
    "create nested": lambda api: api.post("/items/parts", {"goods": {"name": "n"}}),
    "create pointing": lambda api: api.post("/items/parts", {"goods": 1}),
    "update": lambda api: api.patch("/items/goods/1", {"name": "x"}),
    "update query": lambda api: api.patch(
        "/items/goods", {"query": WITH_NAME, "data": {"name": "y"}}
    ),
    "delete": lambda api: api.delete("/items/goods/2"),
    "field": lambda api: api.patch("/fields/goods/name", {"meta": {"note": "n"}}),
    "rename": lambda api: api.patch("/fields/goods/name", RENAME),
    "new field": lambda api: api.post("/fields/goods", {"field": "more", "type": "string"}),
    "collection": lambda api: api.patch("/collections/goods", {"meta": {"note": "n"}}),
    "searchable": lambda api: api.patch("/collections/goods", {"meta": {"searchable": True}}),
    "relation": lambda api: api.patch(
        "/relations/parts/goods", {"schema": {"on_delete": "CASCADE"}}
    ),
    "delete collection": lambda api: api.delete("/collections/goods"),
}
MAKE = """
DROP TABLE IF EXISTS goods, stored_goods, parts CASCADE;
DELETE FROM system_collections;
DELETE FROM system_fields;
DELETE FROM system_relations;
CREATE TABLE goods (id serial PRIMARY KEY, name text);
CREATE TABLE parts (id serial PRIMARY KEY, goods integer REFERENCES goods);
INSERT INTO goods (name) VALUES ('a'), ('b'), ('c');
INSERT INTO parts (goods) VALUES (1)
"""
CHANGES = {
    "groups": "CREATE VIEW goods AS SELECT id, max(name) AS name FROM stored_goods GROUP BY id",
    "less": "CREATE VIEW goods AS SELECT id FROM stored_goods",
}


@pytest.mark.release
@pytest.mark.parametrize("view", CHANGES)
def test_requests_that_wait_while_a_view_replaces_their_table_are_answered(
    make_client: Callable[..., Client], admin_token: str, dsn: str, view: str
) -> None:
    admin = make_client().bearing(admin_token)
    faults = {}
    for name, call in CALLS.items():
        run_sql(dsn, MAKE)
        relation = admin.patch("/relations/parts/goods", {"meta": {"one_field": "parts"}})
        assert relation.status == 200, relation
        answer = answer_across(dsn, CHANGES[view], partial(call, admin))
        if answer.status >= 500:
            faults[name] = answer.text
        run_sql(dsn, "DROP TABLE IF EXISTS stored_goods CASCADE")
    assert faults == {}


def answer_across(dsn: str, change: str, call: Callable[[], Answer]) -> Answer:
    """Return the answer of a call that begins before the change is committed."""
    with ThreadPoolExecutor(1) as executor, psycopg.connect(dsn) as other:
        other.execute("ALTER TABLE goods RENAME TO stored_goods")
        other.execute(change.encode())
        answer = executor.submit(call)
        eventually(lambda: answer.done() or run_sql(dsn, WAITING) != [])
        other.commit()
        return answer.result()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ("ALTER TABLE goods DROP COLUMN name", "/fields/goods/name"),
        ("ALTER TABLE goods RENAME TO stored_goods", "/fields/goods/name"),
        ("ALTER TABLE goods RENAME TO stored_goods", "/collections/goods"),
    ],
)
def test_settings_of_what_another_program_drops_meanwhile_are_no_fault(
    api: Client,
    admin_token: str,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    path: str,
) -> None:
    load = snapshot.load_snapshot

    def change_and_load(*arguments: Any, **named_arguments: Any) -> snapshot.Snapshot:
        monkeypatch.undo()
        run_sql(dsn, change)
        return load(*arguments, **named_arguments)

    run_sql(dsn, MAKE)
    admin = api.bearing(admin_token)
    for module in (fields, collections):
        monkeypatch.setattr(module, "load_snapshot", change_and_load)
    assert admin.patch(path, {"meta": {"note": "n"}}).status in {200, 404}
    assert vars(fields)["load_snapshot"] is load  # the change came between
