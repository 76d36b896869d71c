"""Writes in two processes while all that they depend on changes: each is one of its own time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cms.hashing.passwords import digest
from tests.client import Answer, Client

TOKEN = "member-" * 6
ROLE = str(uuid4())
TABLES = f"""
CREATE TABLE goods (id serial PRIMARY KEY, name text, note text, size integer, meta jsonb);
CREATE TABLE parts (id serial PRIMARY KEY, goods integer);
CREATE FUNCTION louder() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN NEW.name = upper(NEW.name); RETURN NEW; END';
INSERT INTO system_roles (id, name) VALUES ('{ROLE}', 'Members');
INSERT INTO system_users (email, role, token)
VALUES ('member@example.com', '{ROLE}', '{digest(TOKEN)}');
INSERT INTO system_permissions (role, collection, action, fields)
SELECT '{ROLE}', 'goods', action, '["*"]'
FROM unnest(ARRAY['create', 'read', 'update', 'delete']) AS action;
"""
EVENT = {"type": "action", "scope": ["items.create"], "collections": ["goods"]}
FLOW = {"name": "after", "status": "inactive", "trigger": "event", "options": EVENT}
STATUSES = {200, 204, 403, 404}
"""What a write may be answered while something changes."""


@dataclass
class Shop:
    """What writes depend on, and the ways to change it."""

    admin: Client
    connection: psycopg.Connection[Any]
    flow: str
    accountability: str | None = "all"
    is_active: bool = False
    level: object = None
    preset: str | None = None
    clears: bool = False
    is_loud: bool = False
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 10_000)))

    def change(self, random: Random) -> None:
        ways: list[Callable[[Random], None]] = [
            self.change_history,
            self.change_flow,
            self.change_rule,
            self.change_preset,
            self.change_key,
            self.change_trigger,
            self.change_other,
        ]
        random.choice(ways)(random)

    def change_history(self, random: Random) -> None:
        self.accountability = random.choice([None, "activity", "all"])
        meta = {"meta": {"accountability": self.accountability}}
        assert self.admin.patch("/collections/goods", meta).status == 200

    def change_flow(self, random: Random) -> None:
        self.is_active = not self.is_active
        status = "active" if self.is_active else "inactive"
        assert self.admin.patch(f"/flows/{self.flow}", {"status": status}).status == 200

    def change_rule(self, random: Random) -> None:
        self.level = random.choice([None, 0, 1, True, False])
        rule = None if self.level is None else {"meta.level": {"_eq": self.level}}
        self._permission("update", "permissions", rule)
        self._permission("delete", "permissions", rule)

    def change_preset(self, random: Random) -> None:
        self.preset = random.choice([None, f"note {next(self.numbers)}"])
        self._permission("create", "presets", self.preset and {"note": self.preset})

    def change_key(self, random: Random) -> None:
        change = "DROP CONSTRAINT parts_key"
        if not self.clears:
            change = (
                "ADD CONSTRAINT parts_key FOREIGN KEY (goods) REFERENCES goods "
                "ON DELETE SET NULL NOT VALID"
            )
        self._structure(f"ALTER TABLE parts {change}")
        self.clears = not self.clears

    def change_trigger(self, random: Random) -> None:
        change = "DROP TRIGGER loud ON goods"
        if not self.is_loud:
            change = (
                "CREATE TRIGGER loud BEFORE INSERT ON goods FOR EACH ROW EXECUTE FUNCTION louder()"
            )
        self._structure(change)
        self.is_loud = not self.is_loud

    def change_other(self, random: Random) -> None:
        more = {"field": f"more{next(self.numbers)}", "type": "string"}
        assert self.admin.post("/fields/parts", more).status == 200

    def _permission(self, action: str, column: str, value: object) -> None:
        self.connection.execute(
            f"UPDATE system_permissions SET {column} = %s WHERE action = %s".encode(),
            (None if value is None else json.dumps(value), action),
        )

    def _structure(self, change: str) -> None:
        for _ in range(20):
            try:
                with self.connection.transaction():
                    self.connection.execute(b"UPDATE system_version SET structure = structure + 1")
                    self.connection.execute(change.encode())
            except psycopg.errors.DeadlockDetected:
                continue
            return
        raise AssertionError("always a deadlock")

    # What is expected of a write now

    def check(self, member: Client) -> None:
        """Write each way, and compare with what has been committed before."""
        level = self.level if self.level is not None else 5
        item = {"name": "x", "meta": {"level": level}}
        answer = member.post("/items/goods", item)
        row = answer.data
        key = row["id"]
        assert row["name"] == ("X" if self.is_loud else "x")
        assert row["note"] == self.preset
        entries = int(self.accountability is not None)
        revisions = int(self.accountability == "all")
        assert self.history(key) == (entries, revisions), (self, answer)
        assert self.runs(key) == int(self.is_active), (self, answer)
        assert member.patch(f"/items/goods/{key}", {"name": "y"}).data["name"] == "y"
        assert self.history(key) == (2 * entries, 2 * revisions)
        if self.level is not None:
            self.check_refusals(member)
        part = self.value("INSERT INTO parts (goods) VALUES (%s) RETURNING id", key)
        assert member.delete(f"/items/goods/{key}").status == 204
        assert self.history(key) == (3 * entries, 3 * revisions)
        # What the database changes along is recorded as well.
        assert self.value("SELECT goods FROM parts WHERE id = %s", part) == (
            None if self.clears else key
        )
        assert self.history(part, "parts") == (int(self.clears), int(self.clears)), self
        self.connection.execute(b"DELETE FROM parts WHERE id = %s", (part,))

    def check_refusals(self, member: Client) -> None:
        # What Python takes for equal is another value in JSON.
        assert isinstance(self.level, int)
        other = int(self.level) if isinstance(self.level, bool) else bool(self.level)
        for level in (other, 7, None):
            row = member.post("/items/goods", {"meta": {"level": level}}).data
            path = f"/items/goods/{row['id']}"
            assert member.patch(path, {"name": "y"}).status == 403, (self, level)
            assert member.delete(path).status == 403, (self, level)

    def history(self, key: object, collection: str = "goods") -> tuple[int, int]:
        counts = []
        for table in ("system_activity", "system_revisions"):
            text = f"SELECT count(*) FROM {table} WHERE item = %s AND collection = %s"
            counts.append(self.value(text, str(key), collection))
        return counts[0], counts[1]

    def runs(self, key: object) -> int:
        text = "SELECT count(*) FROM system_flow_runs WHERE input ->> 'key' = %s"
        return int(self.value(text, str(key)))

    def value(self, text: str, *values: object) -> Any:
        row = self.connection.execute(text.encode(), values).fetchone()
        assert row
        return row[0]


@pytest.fixture
def shop(api: Client, dsn: str) -> Iterator[Shop]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        assert api.post("/utils/cache/clear").status < 300
        yield Shop(api, connection, api.post("/flows", FLOW).data["id"])


@contextmanager
def busy(clients: list[Client]) -> Iterator[None]:
    """Write all the time meanwhile; fails for an answer that no write may have."""
    is_over = threading.Event()
    wrong: list[Answer] = []

    def write(client: Client, seed: int) -> None:
        random = Random(seed)
        keys: list[object] = []
        while not is_over.is_set():
            level = random.choice([0, 1, True, False, 7])
            answer = client.post("/items/goods", {"name": "n", "meta": {"level": level}})
            if answer.status == 200:
                keys.append(answer.data["id"])
            answers = [answer]
            if keys:
                path = f"/items/goods/{random.choice(keys)}"
                answers.append(client.patch(path, {"name": "m"}))
                answers.append(client.delete(path))
            wrong.extend(one for one in answers if one.status not in STATUSES)

    threads = []
    for seed, client in enumerate(clients):
        threads.append(threading.Thread(target=write, args=(client, seed)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:5]


@pytest.mark.release
@pytest.mark.parametrize("seed", range(2))
def test_writes_are_of_their_time_whatever_changes_meanwhile(
    shop: Shop, make_client: Callable[..., Client], seed: int
) -> None:
    random = Random(seed)
    members = [shop.admin.bearing(TOKEN), make_client().bearing(TOKEN)]
    with busy([*members, members[0]]):
        for _ in range(30):
            for _ in range(random.choice((1, 1, 2))):
                shop.change(random)
            for member in members:
                shop.check(member)
