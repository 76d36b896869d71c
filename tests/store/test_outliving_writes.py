"""Statements of writes outlive what does not concern them, and are then what is made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from random import Random
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

from cms.access.policy import ADMIN, Actor
from cms.errors import Refused
from cms.items.read.reads import parse_key
from cms.items.write import item_writes, single_statement
from cms.items.write.calls import CHANGE, CREATE, DELETE, WriteCall, WriteIntent, new_call
from cms.items.write.transaction import executor
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import insert_rows, run_action_by_key, update_rows
from cms.query.language.parse import parse_query_string
from cms.query.plan.bindings import bind_values
from cms.store.actors import find_actor
from cms.store.context import RequestContext
from cms.store.fetching import cached_statement
from cms.store.identity import ClientInfo, Identity
from cms.store.snapshot import Snapshot
from tests.client import Client
from tests.store.test_changed_structure import CHANGES, TABLES, written
from tests.store.test_outliving_changes import ROLES, Installation, fresh, installation

pytestmark = pytest.mark.release

__all__ = ["installation"]

QUERY_STRINGS = ("", "fields=*,a.*,many0.b")
PAYLOADS: tuple[dict[str, object], ...] = ({"a": 1}, {"b": "x"}, {"a": 2, "b": "glad"})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The keys of the statements of writes that are made from now on."""
    made: list[object] = []

    def noting(store: Any, snapshot: Any, key: Any) -> Any:
        statement = cached_statement(store, snapshot, key)
        if statement is None:
            made.append(key)
        return statement

    for module in (single_statement, executor):
        monkeypatch.setattr(module, "cached_statement", noting)
    return made


class Recorder:
    """Stands for a transaction that runs nothing."""

    def __init__(self) -> None:
        self.runs: list[object] = []

    def execute(self, text: str, values: object, **options: object) -> list[Any]:
        self.runs.append((text, values))
        return []


Work = Callable[[WriteCall], object]


def operations() -> Iterator[tuple[WriteIntent, Work, str]]:
    for payload, query_string in product(PAYLOADS, QUERY_STRINGS):
        yield CREATE, partial(created, payload=payload), query_string
        yield CHANGE, partial(changed, payload=payload), query_string
    yield DELETE, deleted, ""


def created(call: WriteCall, payload: object) -> object:
    return item_writes.create(call, [payload])


def changed(call: WriteCall, payload: object) -> object:
    return item_writes.update(call, parse_key(call.collection, "1"), payload)


def deleted(call: WriteCall) -> None:
    item_writes.delete(call, parse_key(call.collection, "1"))


class TransactionNeeded(Exception):
    """Raised where a write is no single statement."""


class Unbegun:
    """Stands for an attempt whose transaction has not begun, and does not begin."""

    has_begun = False

    def begin_transaction(self) -> Any:
        raise TransactionNeeded


class Run(Exception):
    """Raised in place of the run of a statement, with the statement and its literals."""


def raise_run(call: object, shape: object, statement: object, literals: object) -> Any:
    raise Run(statement, literals)


def planned(
    installation: Installation, snapshot: Snapshot, caller: str | None, asked: tuple[Any, ...]
) -> object:
    """Return all that the one statement of a write is under a snapshot, or its refusal."""
    table, (intent, work, query_string) = asked
    store = installation.client.app.store
    try:
        context = context_of(installation, snapshot, caller)
        client = Identity(role=caller).client
        call = new_call(store, context, client, Unbegun(), name=table, intent=intent)
        parsed = parse_query_string(query_string, store.page, of_one_item=True)
        with patch.object(single_statement, "_run", raise_run):
            work(call._replace(parsed=parsed))
    except Refused as refused:
        return refused.problems
    except TransactionNeeded:
        return None
    except Run as run:
        statement, literals = run.args
    values = bind_values(statement.values, context.bindings(literals))
    is_version = tuple(literals)[: len(snapshot.version)] == tuple(snapshot.version)
    return statement.text, values, statement.paths, statement.counts, is_version


def context_of(
    installation: Installation, snapshot: Snapshot, caller: str | None
) -> RequestContext:
    fetch = installation.client.app.store.database.fetch
    actor = find_actor(snapshot, Identity(role=caller), fetch) if caller else Actor(ADMIN)
    return RequestContext(snapshot, actor, fetch)


def actions(installation: Installation, snapshot: Snapshot, table: str) -> object:
    """Return the statements of a transaction that writes a collection."""
    collection = snapshot.catalogue.collections.get(table)
    if collection is None or not collection.is_writable:
        return None
    recorder: Any = Recorder()
    context = context_of(installation, snapshot, None)
    run = Executor(installation.client.app.store, context, recorder, ClientInfo())
    columns = tuple(field.name for field in collection.columns if field.name in ("a", "b"))
    row: dict[str, Any] = dict.fromkeys(columns, "1")
    if collection.key_name not in row:
        # Nothing comes back, as if triggers had kept all rows.
        with suppress(Refused):
            insert_rows(run, collection, [row, row])
        with suppress(Refused):
            update_rows(run, collection, ["1", "2"], [row, row])
    for action in ("lock", "touch", "delete"):
        run_action_by_key(run, action, collection, ["1"])
    return recorder.runs


FLOW = {
    "name": "after",
    "status": "active",
    "trigger": "event",
    "options": {"type": "action", "scope": ["items.create"], "collections": ["t0"]},
}


@pytest.mark.release
@pytest.mark.parametrize("seed", range(8))
def test_statements_of_writes_that_outlive_changes_are_those_made_anew(
    installation: Installation, made: list[object], seed: int
) -> None:
    random = Random(seed)
    assert installation.client.post("/flows", FLOW).status == 200
    for role, table, action in product(ROLES, TABLES, ("read", "create", "update", "delete")):
        installation.connection.execute(
            b"INSERT INTO system_permissions (role, collection, action, permissions, fields) "
            b"VALUES (%s, %s, %s, NULL, '[\"*\"]')",
            (role, table, action),
        )
    asked = list(product((None, *ROLES), product(TABLES, list(operations()))))
    present = installation.snapshots.current()
    fresh_ones = present_ones = 0
    for _ in range(12):
        kind = random.randrange(6)
        if kind == 0:
            installation.change_rights(random)
        elif kind == 1:
            installation.connection.execute(
                b"UPDATE system_flows SET status = "
                b"CASE status WHEN 'active' THEN 'inactive' ELSE 'active' END"
            )
        else:
            installation.attempt(written(random, random.choice(CHANGES)))
        present = installation.snapshots.refresh(present)
        whole = fresh(installation)
        assert present.version == whole.version
        for caller, one in random.sample(asked, 120):
            before = len(made)
            kept = planned(installation, present, caller, one)
            between = len(made)
            assert kept == planned(installation, whole, caller, one), (caller, one)
            present_ones += between - before
            fresh_ones += len(made) - between
        for table in TABLES:
            assert actions(installation, present, table) == actions(installation, whole, table)
    # Otherwise all would be made anew, and nothing compared.
    assert present_ones < fresh_ones * 0.9


@pytest.fixture
def shop(api: Client, dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            b"CREATE TABLE goods (id serial PRIMARY KEY, name text);"
            b"CREATE TABLE orders (id serial PRIMARY KEY, name text, goods integer);"
        )
        assert api.post("/utils/cache/clear").status < 300
        yield connection


def write_all(api: Client, name: str) -> None:
    """Write by each kind of statement, in one statement and in a transaction."""
    made = api.post(f"/items/{name}", {"name": "One"})
    assert made.status == 200, made.body
    key = made.data["id"]
    assert api.patch(f"/items/{name}/{key}", {"name": "Two"}).status == 200
    many = {"keys": [key], "data": {"name": "Three"}}
    assert api.patch(f"/items/{name}", many).status == 200
    assert api.delete(f"/items/{name}/{key}").status == 204


def test_a_change_of_one_collection_leaves_the_writes_of_others(
    api: Client, shop: psycopg.Connection[Any], made: list[object]
) -> None:
    for name in ("goods", "orders"):
        write_all(api, name)
    made.clear()
    assert api.post("/fields/orders", {"field": "more", "type": "string"}).status == 200
    write_all(api, "goods")
    assert not [key for key in made if "goods" in str(key)]
    write_all(api, "orders")
    assert [key for key in made if "orders" in str(key)]


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["structure", "rights", "flows"])
def test_writes_compare_the_counters_of_their_own_time(
    api: Client, shop: psycopg.Connection[Any], made: list[object], kind: str
) -> None:
    write_all(api, "goods")
    made.clear()
    column = {"structure": "structure", "rights": "access", "flows": "flows"}[kind]
    for _ in range(3):
        shop.execute(f"UPDATE system_version SET {column} = {column} + 1".encode())
        write_all(api, "goods")
    assert made == []


def test_rows_that_point_to_a_collection_are_changed_with_it_from_the_first_delete_on(
    api: Client, shop: psycopg.Connection[Any]
) -> None:
    """A foreign key of another table is no part of the collection, and decides its deletes."""
    write_all(api, "goods")
    assert api.post("/items/goods", {"id": 10, "name": "Ten"}).status == 200
    assert api.post("/items/orders", {"id": 1, "goods": 10}).status == 200
    shop.execute(b"ALTER TABLE orders ADD FOREIGN KEY (goods) REFERENCES goods ON DELETE SET NULL")
    assert api.post("/utils/cache/clear").status < 300
    assert api.delete("/items/goods/10").status == 204
    assert api.get("/items/orders/1").data["goods"] is None
    history = api.get(
        "/revisions?filter[collection]=orders&filter[item]=1&fields=delta&sort=-id"
    ).data
    assert history[0]["delta"] == {"goods": None}


def test_a_history_that_is_switched_off_ends_at_once(
    api: Client, shop: psycopg.Connection[Any]
) -> None:
    write_all(api, "goods")
    count = "/activity?filter[collection]=goods&aggregate[count]=*"
    before = api.get(count).data
    for accountability, more in ((None, False), ("all", True)):
        meta = {"meta": {"accountability": accountability}}
        assert api.patch("/collections/goods", meta).status == 200
        write_all(api, "goods")
        assert (api.get(count).data != before) is more


def test_a_flow_that_comes_and_goes_runs_after_the_writes_of_its_time(
    api: Client, shop: psycopg.Connection[Any]
) -> None:
    write_all(api, "goods")
    options = {"type": "action", "scope": ["items.create"], "collections": ["goods"]}
    flow = api.post("/flows", {**FLOW, "options": options}).data["id"]
    runs = 0
    for status in ("active", "inactive", "active"):
        assert api.patch(f"/flows/{flow}", {"status": status}).status == 200
        write_all(api, "goods")
        runs += status == "active"
        rows = shop.execute(b"SELECT count(*) FROM system_flow_runs WHERE flow = %s", (flow,))
        assert rows.fetchone() == (runs,)


@pytest.mark.release
def test_an_enum_that_is_made_again_is_still_written(
    api: Client, shop: psycopg.Connection[Any]
) -> None:
    shop.execute(
        b"CREATE TYPE size AS ENUM ('small', 'large');"
        b"CREATE TABLE shirts (id serial PRIMARY KEY, size size, name text)"
    )
    assert api.post("/utils/cache/clear").status < 300
    again = (
        b"BEGIN; ALTER TYPE size RENAME TO old_size; CREATE TYPE size AS ENUM ('small', 'large');"
        b"ALTER TABLE shirts ALTER size TYPE size USING size::text::size; DROP TYPE old_size;"
        b"COMMIT"
    )
    for _ in range(3):
        for _ in range(3):
            answer = api.post("/items/shirts", {"size": "small"})
            assert (answer.status, answer.data["size"]) == (200, "small")
            key = answer.data["id"]
            assert api.patch(f"/items/shirts/{key}", {"size": "large"}).status == 200
            write_all(api, "shirts")
        shop.execute(again)
        assert api.post("/utils/cache/clear").status < 300
