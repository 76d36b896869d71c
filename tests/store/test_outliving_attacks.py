"""What outlives a change must never be of older rights, nor of types that are gone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from cms.access.policy import Policy
from cms.database.statements import statement
from cms.hashing.passwords import digest
from cms.store import carrying_over
from cms.store.actors import cached_actor
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot
from tests.client import Client
from tests.store.test_outliving_statements import ROLE, TABLES, TOKEN, permit


@pytest.fixture
def member(api: Client, connection: psycopg.Connection[Any]) -> Client:
    connection.execute(TABLES.encode())
    connection.execute(b"INSERT INTO system_roles (id, name) VALUES (%s, 'Members')", (ROLE,))
    connection.execute(
        b"INSERT INTO system_users (email, role, token) VALUES ('member@example.com', %s, %s)",
        (ROLE, digest(TOKEN)),
    )
    permit(connection, "cats", None)
    return api.bearing(TOKEN)


def test_a_caller_who_comes_while_a_snapshot_is_replaced_has_no_older_rights(
    api: Client,
    member: Client,
    connection: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request has looked up its caller just before a change of structure was committed."""
    store = api.app.store
    assert member.get("/items/cats").status == 200
    # The right is taken away. The process notices, but the member does not ask yet.
    connection.execute(b"DELETE FROM system_permissions WHERE role = %s", (ROLE,))
    assert api.get("/items/books").status == 200
    identity = Identity(token=digest(TOKEN))
    rows = store.database.fetch(statement("find_actor"), identity.caller)
    carry_callers: Callable[..., None] = carrying_over._carry_callers
    late: list[object] = []

    def interrupted(before: Snapshot, current: Snapshot, changed: Any) -> None:
        # Here the other thread goes on, under the snapshot for which its rows are.
        if not late:
            late.append(cached_actor(before, identity, lambda text, values: rows))
        carry_callers(before, current, changed)

    monkeypatch.setattr(carrying_over, "_carry_callers", interrupted)
    connection.execute(b"ALTER TABLE books ADD more text")
    connection.execute(b"UPDATE system_version SET structure = structure + 1")
    assert api.get("/items/books").status == 200
    assert late
    assert member.get("/items/cats").status == 403


MOODS = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE pets (id serial PRIMARY KEY, mood mood, name text);
INSERT INTO pets (mood, name) VALUES ('glad', 'One');
"""
MOODS_AGAIN = """
BEGIN;
ALTER TYPE mood RENAME TO former_mood;
CREATE TYPE mood AS ENUM ('glad', 'sad');
ALTER TABLE pets ALTER mood TYPE mood USING mood::text::mood;
DROP TYPE former_mood;
COMMIT;
"""


def test_an_enum_that_is_made_again_is_still_compared(
    api: Client, connection: psycopg.Connection[Any]
) -> None:
    connection.execute(MOODS.encode())
    assert api.post("/utils/cache/clear").status < 300
    path = "/items/pets?filter[mood][_eq]=glad&fields=name"
    for _ in range(3):
        assert api.get(path).data == [{"name": "One"}]
    connection.execute(MOODS_AGAIN.encode())
    assert api.post("/utils/cache/clear").status < 300
    answer = api.get(path)
    assert (answer.status, answer.body) == (200, {"data": [{"name": "One"}]})


def test_an_enum_that_is_made_again_is_still_compared_where_a_connection_rested(
    api: Client, connection: psycopg.Connection[Any]
) -> None:
    """A connection that nobody used between two changes of structure."""
    connection.execute(MOODS.encode())
    assert api.post("/utils/cache/clear").status < 300
    path = "/items/pets?filter[mood][_eq]=glad&fields=name"
    database = api.app.store.database
    pool = database._open().read
    # Prepared on each connection.
    with pool.connection(), pool.connection():
        pass
    for _ in range(3):
        assert api.get(path).data == [{"name": "One"}]
    # This one rests.
    with pool.connection() as resting:
        assert resting.wire._names
        connection.execute(MOODS_AGAIN.replace("'sad'", "'sad', 'more'").encode())
        assert api.post("/utils/cache/clear").status < 300
        assert api.get(path).data == [{"name": "One"}]
        assert api.post("/fields/pets", {"field": "other", "type": "string"}).status == 200
        assert api.get(path).data == [{"name": "One"}]
        connection.execute(b"CREATE TABLE elsewhere (id serial PRIMARY KEY)")
        assert api.post("/utils/cache/clear").status < 300
        assert api.get(path).data == [{"name": "One"}]
    with pool.connection(), pool.connection():
        pass
    for _ in range(8):
        answer = api.get(path)
        assert (answer.status, answer.body) == (200, {"data": [{"name": "One"}]}), answer


def test_rights_of_roles_that_are_gone_do_not_stay(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    assert member.get("/items/cats").status == 200
    connection.execute(b"DELETE FROM system_users WHERE role = %s", (ROLE,))
    connection.execute(b"DELETE FROM system_permissions WHERE role = %s", (ROLE,))
    connection.execute(b"DELETE FROM system_roles WHERE id = %s", (ROLE,))
    for _ in range(20):
        connection.execute(
            b"UPDATE system_version SET structure = structure + 1, access = access + 1"
        )
        assert api.get("/items/books").status == 200
    gc.collect()
    policies = [thing for thing in gc.get_objects() if type(thing) is Policy]
    assert ROLE not in {policy.name for policy in policies}
