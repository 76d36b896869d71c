"""Statements that outlive changes are those that would be made anew, whatever has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cms.access.guard import view_of
from cms.access.policy import ADMIN, Actor
from cms.errors import Refused
from cms.items.read import prepare
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import prepare_item_read
from cms.query.plan.bindings import bind_values
from cms.query.sql.statement import finish_statement
from cms.store.actors import find_actor
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot, Snapshots
from tests.client import Client
from tests.store.test_changed_structure import CHANGES, SETUP, TABLES, written

ROLES = (str(uuid4()), str(uuid4()))
"""The second is below the first, and has its permissions as well."""

RULES: tuple[Any, ...] = (
    None,
    {"a": {"_eq": 1}},
    {"a": {"_eq": True}},
    {"a": {"_eq": "1"}},
    {"b": {"_nnull": True}},
    {"a": {"id": {"_gt": 1}}},
    {"a": {"b": {"_nempty": True}}},
    {"many0": {"_some": {"a": {"_eq": 3}}}},
    {"id": {"_eq": "$CURRENT_USER"}},
    {"wrong": {"_eq": 1}},
)
FIELDS = (["*"], ["id", "a"], ["id", "b", "many0"], ["a", "b", "c"])
OTHERS = ("system_activity", "system_users")
QUERIES = (
    "",
    "fields=*.*",
    "fields=*.*.*",
    "fields=id,a.b,b.id",
    "fields=many0.*,many1",
    "fields=a",
    "filter[a][_eq]=1",
    "filter[a][b][_contains]=x&sort=-a.id",
    "filter[many0][_some][b][_null]=true",
    "search=glad&sort=b",
    "aggregate[count]=*&groupBy[]=a",
    "fields=count(many0)&sort=c",
    "meta=*&limit=3&alias[z]=b&fields=z",
)


@dataclass
class Installation:
    """A process that keeps what outlives changes, and the connection that makes these."""

    client: Client
    connection: psycopg.Connection[Any]

    @property
    def snapshots(self) -> Snapshots:
        return self.client.app.store.snapshots

    def attempt(self, text: str, values: tuple[object, ...] = ()) -> bool:
        """Make a change, after which the counter of structure has moved."""
        try:
            with self.connection.transaction():
                self.connection.execute(text.encode(), values or None)
                self.connection.execute(b"UPDATE system_version SET structure = structure + 1")
        except psycopg.Error:
            return False
        return True

    def change_rights(self, random: Random) -> None:
        role = random.choice(ROLES)
        table = random.choice((*TABLES, *OTHERS))
        action = random.choice(("read", "read", "read", "update", "create", "delete"))
        if random.randrange(3) == 0:
            self.connection.execute(
                b"DELETE FROM system_permissions WHERE role = %s AND collection = %s", (role, table)
            )
        elif random.randrange(3) == 0:
            self.connection.execute(
                b"UPDATE system_permissions SET permissions = %s "
                b"WHERE role = %s AND collection = %s",
                (json.dumps(random.choice(RULES)), role, table),
            )
        elif random.randrange(8) == 0:
            self.connection.execute(
                b"UPDATE system_roles SET app_access = NOT app_access WHERE id = %s", (role,)
            )
        else:
            rule = random.choice(RULES)
            fields = random.choice(FIELDS)
            self.connection.execute(
                b"INSERT INTO system_permissions (role, collection, action, permissions, fields) "
                b"VALUES (%s, %s, %s, %s, %s)",
                (role, table, action, json.dumps(rule), json.dumps(fields)),
            )

    def statement(self, snapshot: Snapshot, caller: str | None, request: ReadRequest) -> object:
        """Return all that a read is under a snapshot, or its refusal."""
        store = self.client.app.store
        fetch = store.database.fetch
        actor = Actor(ADMIN)
        try:
            if caller:
                actor = find_actor(snapshot, Identity(role=caller), fetch)
            context = RequestContext(snapshot, actor, fetch)
            if "aggregate" in request.query_string or "meta" in request.query_string:
                statement, literals = prepare_read(store, context, request)
            else:
                statement, literals = prepare_item_read(store, context, request, key="1")
            view = view_of(
                request.collection, catalogue=snapshot.catalogue, policy=context.actor.policy
            )
            assert view
            values = bind_values(statement.values, context.bindings(literals))
            visible = [name for name in view.collection.fields if view.includes(name)]
            return statement.text, values, statement.paths, statement.fields, visible
        except Refused as refused:
            return refused.problems


@pytest.fixture
def installation(api: Client, dsn: str) -> Iterator[Installation]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SETUP.encode())
        connection.execute(b"CREATE TABLE t2 (id serial PRIMARY KEY, a integer, b text, c jsonb)")
        connection.execute(b"CREATE TABLE t3 (id serial PRIMARY KEY, a integer REFERENCES t2)")
        installation = Installation(api, connection)
        connection.execute(b"INSERT INTO system_roles (id, name) VALUES (%s, 'Upper')", (ROLES[0],))
        connection.execute(
            b"INSERT INTO system_roles (id, name, parent) VALUES (%s, 'Lower', %s)",
            (ROLES[1], ROLES[0]),
        )
        random = Random(0)
        for _ in range(30):
            installation.change_rights(random)
        assert installation.attempt(
            "INSERT INTO system_relations (many_collection, many_field, one_collection, one_field) "
            "VALUES ('t1', 'a', 't0', 'many0')"
        )
        assert installation.attempt(
            "INSERT INTO system_fields (collection, field, special) VALUES ('t0', 'many0', '{o2m}')"
        )
        yield installation


def fresh(installation: Installation) -> Snapshot:
    """Return a snapshot that has nothing of those before."""
    return Snapshots(installation.client.app.store.database.fetch).current()


@pytest.mark.release
@pytest.mark.parametrize("seed", range(12))
def test_what_outlives_changes_is_what_is_made_anew(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    made = count_made(monkeypatch)
    asked = [
        (caller, ReadRequest(table, query))
        for caller, table, query in product((None, *ROLES), (*TABLES, *OTHERS), QUERIES)
    ]
    present = installation.snapshots.current()
    fresh_ones = present_ones = 0
    for _ in range(15):
        if random.randrange(3):
            for _ in range(random.choice((1, 1, 3))):
                installation.attempt(written(random, random.choice(CHANGES)))
        else:
            installation.change_rights(random)
        present = installation.snapshots.refresh(present)
        whole = fresh(installation)
        assert present.version == whole.version
        # Not all, so that some are left for several changes.
        for caller, request in random.sample(asked, 100):
            before = len(made)
            kept = installation.statement(present, caller, request)
            between = len(made)
            assert kept == installation.statement(whole, caller, request), (caller, request)
            present_ones += between - before
            fresh_ones += len(made) - between
    # Otherwise all would be made anew, and nothing compared.
    assert present_ones < fresh_ones * 0.9


def count_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that holds the texts of the statements that are printed from now on."""
    made: list[str] = []
    finish = finish_statement

    def counting(*arguments: Any, **options: Any) -> Any:
        statement = finish(*arguments, **options)
        made.append(statement.text)
        return statement

    monkeypatch.setattr(prepare, "finish_statement", counting)
    return made
