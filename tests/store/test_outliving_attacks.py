"""What outlives a change must never be of older rights, nor of types that are gone."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import psycopg
import pytest

from cms.access.guard import view_of
from cms.access.policy import ADMIN, Actor, Policy
from cms.access.recorded_lookups import RecordingCatalogue
from cms.database.statements import statement
from cms.hashing.passwords import digest
from cms.query.sql.statement import Statement
from cms.schema.model import Catalogue, Collection
from cms.store import snapshot as snapshot_module
from cms.store.actors import unchecked_actor
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot
from tests.client import Client
from tests.store.test_outliving_statements import ROLE, TABLES, TOKEN, permit, policy_of_member

pytestmark = pytest.mark.release


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
    with_callers = snapshot_module._with_callers
    late: list[object] = []

    def interrupted(before: Snapshot, current: Snapshot) -> Snapshot:
        # Here the other thread goes on, under the snapshot for which its rows are.
        if not late:
            late.append(unchecked_actor(before, identity, lambda text, values: rows))
        return with_callers(before, current)

    monkeypatch.setattr(snapshot_module, "_with_callers", interrupted)
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


def test_a_role_that_is_made_again_under_its_id_has_its_new_rights_alone(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    permit(connection, "books", None)
    paths = ("/items/cats", "/items/books")
    assert [member.get(path).status for path in paths] == [200, 200]
    for collection in ("books", "cats", "books"):
        with connection.transaction():
            connection.execute(b"UPDATE system_users SET role = NULL WHERE role = %s", (ROLE,))
            connection.execute(b"DELETE FROM system_permissions WHERE role = %s", (ROLE,))
            connection.execute(b"DELETE FROM system_roles WHERE id = %s", (ROLE,))
            connection.execute(
                b"INSERT INTO system_roles (id, name) VALUES (%s, 'Others')", (ROLE,)
            )
            connection.execute(
                b"UPDATE system_users SET role = %s WHERE email = 'member@example.com'", (ROLE,)
            )
            permit(connection, collection, None)
        expected = [200 if path.endswith(collection) else 403 for path in paths]
        assert [member.get(path).status for path in paths] == expected
        assert api.post("/fields/authors", {"field": f"n{collection}", "type": "string"}).status


def test_a_field_that_is_renamed_and_back_is_read_and_written_under_its_name_of_the_time(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    permit(connection, "cats", {"name": {"_eq": "One"}})
    key = member.get("/items/cats").data[0]["id"]
    path = f"/items/cats/{key}"
    for old, new in (("name", "title"), ("title", "name"), ("name", "title"), ("title", "name")):
        # The rule names the field as well, and is changed with it.
        assert [row[old] for row in member.get("/items/cats").data] == ["One"]
        assert api.patch(path, {old: "One"}).data[old] == "One"
        assert api.patch(f"/fields/cats/{old}", {"field": new}).status == 200
        # A payload that names no field of the collection is refused.
        assert api.patch(path, {old: "One"}).status == 400
        assert api.patch(path, {new: "One"}).data[new] == "One"


def test_a_policy_shows_each_of_two_structures_its_own_view(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    """A request that began before a change goes on with the policy that later ones use."""
    snapshots = api.app.store.snapshots
    assert member.get("/items/cats").status == 200
    before = snapshots.current()
    connection.execute(b"ALTER TABLE cats ADD more text")
    connection.execute(b"UPDATE system_version SET structure = structure + 1")
    assert member.get("/items/cats").status == 200
    after = snapshots.current()
    policy = policy_of_member(member)
    for _ in range(3):
        for snapshot, has_more in ((before, False), (after, True)):
            view = view_of("cats", catalogue=snapshot.catalogue, policy=policy)
            assert view
            assert view.includes("more") is has_more
            assert view.collection is snapshot.catalogue.collections["cats"]


def test_a_share_belongs_to_one_structure(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    assert member.get("/items/cats").status == 200
    snapshot = api.app.store.snapshots.current()
    snapshot.share_actors["token"] = Actor(ADMIN)
    snapshot.share_policies["share:1"] = ADMIN
    connection.execute(b"ALTER TABLE books ADD more text")
    connection.execute(b"UPDATE system_version SET structure = structure + 1")
    later = api.app.store.snapshots.refresh(snapshot)
    assert later.actors is snapshot.actors
    assert (len(later.share_actors), len(later.share_policies)) == (0, 0)


@pytest.mark.release
def test_a_process_does_not_grow_with_changes(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    def alive() -> Counter[str]:
        gc.collect()
        counted = (Catalogue, RecordingCatalogue, Collection, Policy, Statement, Snapshot)
        return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing) in counted)

    def change(number: int) -> None:
        connection.execute(f"ALTER TABLE cats RENAME n{number} TO n{number + 1}".encode())
        connection.execute(b"UPDATE system_version SET structure = structure + 1")
        if number % 5 == 0:
            permit(connection, "books", {"size": {"_eq": number % 20}})
        for client in (api, member):
            assert client.get("/items/cats?fields=*").status == 200
            client.get("/items/books")
        key = api.post("/items/cats", {f"n{number + 1}": "x"}).data["id"]
        assert api.delete(f"/items/cats/{key}").status == 204

    connection.execute(b"ALTER TABLE cats ADD n0 text")
    for number in range(20):
        change(number)
    before = alive()
    for number in range(20, 220):
        change(number)
    after = alive()
    # Statements of columns that are gone leave the cache.
    assert all(after[name] <= before[name] + 10 for name in after), (before, after)
