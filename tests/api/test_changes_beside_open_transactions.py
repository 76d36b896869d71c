"""Changes of structure wait for those who use a table, and nobody waits for the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from threading import Event

import psycopg
import pytest

from cms.database.server_refusals import LockTimeout
from cms.database.statements import statement
from cms.store import table_wait
from cms.store.table_wait import TableWait
from tests.client import Answer, Client
from tests.statements import counted

pytestmark = pytest.mark.release

Change = Callable[[Client], Answer]


@pytest.fixture(autouse=True)
def content(api: Client) -> None:
    api.post("/collections", {"collection": "parents", "schema": {}})
    fields = [{"field": "a", "type": "string"}, {"field": "parent", "type": "integer"}]
    api.post("/collections", {"collection": "things", "schema": {}, "fields": fields})
    api.post("/collections", {"collection": "others", "schema": {}, "fields": fields})
    relation = {"collection": "others", "field": "parent", "related_collection": "parents"}
    assert api.post("/relations", {**relation, "schema": {}}).status == 200
    api.post("/items/things", {"a": "x"})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once an attempt at a change has met others who use its table."""
    event = Event()
    let_others_pass = TableWait.let_others_pass

    def noted(wait: TableWait, timeout: LockTimeout) -> None:
        event.set()
        let_others_pass(wait, timeout)

    monkeypatch.setattr(TableWait, "let_others_pass", noted)
    monkeypatch.setattr(table_wait, "PAUSE_SECONDS", 0.05)
    return event


@contextmanager
def waiting_change(
    api: Client, dsn: str, table: str, change: Change, waits: Event
) -> Iterator[Future[Answer]]:
    """A change of structure that waits for an open transaction on a table."""
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as user:
        user.execute(f"INSERT INTO {table} DEFAULT VALUES")
        answer = pool.submit(change, api)
        assert waits.wait(60), answer
        yield answer
        user.commit()


def assert_unlocked(dsn: str) -> None:
    """The counters, and with them rights and structure, can be changed by others."""
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM system_version FOR UPDATE NOWAIT")


RELATION = {"collection": "things", "field": "parent", "related_collection": "parents"}
CASCADE = {"schema": {"on_delete": "CASCADE"}}


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("things", lambda api: api.post("/fields/things", {"field": "b", "type": "string"})),
        ("things", lambda api: api.patch("/fields/things/a", {"field": "b"})),
        ("things", lambda api: api.patch("/fields/things/a", {"type": "text"})),
        ("things", lambda api: api.patch("/fields/things/a", {"schema": {"is_unique": True}})),
        ("things", lambda api: api.delete("/fields/things/a")),
        ("things", lambda api: api.delete("/collections/things")),
        ("things", lambda api: api.post("/relations", {**RELATION, "schema": {}})),
        ("parents", lambda api: api.post("/relations", {**RELATION, "schema": {}})),
        ("parents", lambda api: api.patch("/relations/others/parent", CASCADE)),
        ("parents", lambda api: api.delete("/fields/others/parent")),
        ("parents", lambda api: api.delete("/collections/others")),
        ("others", lambda api: api.delete("/collections/parents")),
    ],
)
def test_a_change_waits_for_an_open_transaction_without_a_lock(
    api: Client, dsn: str, table: str, change: Change, waits: Event
) -> None:
    with waiting_change(api, dsn, table, change, waits) as answer:
        assert_unlocked(dsn)
        assert not answer.done()
    assert answer.result().status in (200, 204), answer.result()


def test_all_others_go_on_while_a_change_waits(api: Client, dsn: str, waits: Event) -> None:
    change = partial(Client.post, path="/fields/things", body={"field": "b", "type": "string"})
    with waiting_change(api, dsn, "things", change, waits) as answer:
        assert api.get("/items/things").status == 200
        assert api.post("/items/things", {"a": "y"}).status == 200
        assert api.post("/fields/others", {"field": "b", "type": "string"}).status == 200
        permission = {"collection": "others", "action": "read", "fields": ["*"]}
        assert api.post("/permissions", {"role": None, **permission}).status == 200
        assert not answer.done()
    assert answer.result().status == 200, answer.result()
    assert {item["b"] for item in api.get("/items/things?fields=b").data} == {None}


def test_a_change_that_has_waited_too_long_names_the_table(
    make_client: Callable[..., Client],
    admin_token: str,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Long enough for the look at what it waits for.
    monkeypatch.setattr(table_wait, "LOCK_SECONDS", 0.7)
    client = make_client(db_statement_timeout=timedelta(seconds=1)).bearing(admin_token)
    with psycopg.connect(dsn) as user:
        user.execute("INSERT INTO parents DEFAULT VALUES")
        answer = client.delete("/collections/others")
    (error,) = answer.errors
    assert error["code"] == "SERVICE_UNAVAILABLE"
    assert 'the table "parents" for 1 s' in error["message"]
    assert answer.headers["retry-after"]
    assert client.get("/collections/others").status == 200


def test_an_applied_snapshot_waits_without_a_lock(api: Client, dsn: str, waits: Event) -> None:
    snapshot = api.get("/schema/snapshot").data
    assert api.delete("/fields/things/a").status == 204
    diff = api.post("/schema/diff", snapshot).data
    change = partial(Client.post, path="/schema/apply", body=diff)
    with waiting_change(api, dsn, "things", change, waits) as answer:
        assert_unlocked(dsn)
    assert answer.result().status == 204, answer.result()


def test_a_change_ends_an_autovacuum_of_its_table(api: Client, dsn: str) -> None:
    """PostgreSQL ends one for a statement that has waited for `deadlock_timeout`."""
    with psycopg.connect(dsn, cursor_factory=psycopg.RawCursor) as session:
        limit = statement("limit_lock_wait")
        session.execute(limit, (0.2, True))
        assert session.execute("SHOW lock_timeout").fetchone() == ("1200ms",)
        session.execute(limit, (0.2, False))
        assert session.execute("SHOW lock_timeout").fetchone() == ("200ms",)


@pytest.mark.parametrize(
    ("change", "ddl"),
    [
        (lambda api: api.patch("/fields/things/a", {"field": "b"}), "RENAME COLUMN"),
        (lambda api: api.delete("/fields/things/a"), "DROP COLUMN"),
    ],
)
def test_a_history_is_rewritten_before_its_table_is_locked(
    api: Client, dsn: str, monkeypatch: pytest.MonkeyPatch, change: Change, ddl: str
) -> None:
    """Others use the table while a long one is; what they write meanwhile is rewritten after it."""
    with counted(monkeypatch) as seen:
        assert change(api).status in (200, 204)
    steps = [ddl if ddl in text else text for text in seen]
    rewriting = statement("change_field_in_revisions")
    locked = steps.index(ddl)
    assert rewriting in steps[:locked]
    assert rewriting in steps[locked:]
    with psycopg.connect(dsn) as other:
        (names,) = other.execute(
            "SELECT array_agg(DISTINCT name) FROM system_revisions, jsonb_object_keys(data::jsonb)"
            " AS name WHERE collection = 'things'"
        ).fetchone() or ((),)
    assert "a" not in names
    assert ("b" in names) == (ddl == "RENAME COLUMN")
