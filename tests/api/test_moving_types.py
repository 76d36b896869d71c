"""While a column's type changes to and fro, no answer is wrong for both types."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.store.snapshot import Snapshot, Snapshots
from tests.client import Answer, Client
from tests.statements import counted_in_transactions
from tests.things import field

pytestmark = pytest.mark.release

SECONDS = float(os.environ.get("CMS_MOVING_SECONDS", "3"))
TYPES = ("date", "json", "integer", "text")

COLLECTIONS = {
    "owners": [field("name", "string")],
    "things": [field("x", "date"), field("name", "string"), field("owner", "integer")],
}

Work = Callable[[Client], Answer]

CSV = b"x,name\n2026-01-01,a\n2026-01-02,b\n"
NESTED = {"name": "n", "things": [{"x": "2026-01-01"}]}


def upload(raw: bytes) -> Work:
    return lambda api: api.send(
        "POST", "/utils/import/things", raw=raw, **{"Content-Type": "text/csv"}
    )


def operations(value: object) -> dict[str, object]:
    return {
        "operations": [
            {"method": "create", "collection": "things", "data": {"x": value}},
            {"method": "update", "collection": "things", "key": 1, "data": {"x": value}},
        ]
    }


WORKS: dict[str, Work] = {
    "one": lambda api: api.post("/items/things", {"x": "2026-01-01"}),
    "a number": lambda api: api.post("/items/things", {"x": 5}),
    "an object": lambda api: api.post("/items/things", {"x": {"a": 1}}),
    "several": lambda api: api.post(
        "/items/things?fields=name", [{"x": "2026-01-01"}, {"name": "b"}]
    ),
    "a change": lambda api: api.patch("/items/things/1?fields=id", {"x": "2026-01-01"}),
    "a change of all": lambda api: api.patch(
        "/items/things?fields=id",
        {"query": {"filter": {"x": {"_eq": "2026-01-01"}}, "limit": 5}, "data": {"x": "7"}},
    ),
    "a batch": lambda api: api.post("/batch", operations("2026-01-01")),
    "an import": upload(CSV),
    "something nested": lambda api: api.post("/items/owners?fields=name", NESTED),
    "a list": lambda api: api.get("/items/things?fields=id&limit=1&filter[x][_gt]=2026-01-01"),
    "a list by number": lambda api: api.get("/items/things?fields=id&limit=1&filter[x][_lt]=5"),
    "a sorted list": lambda api: api.get(
        "/items/things?fields=name&limit=1&sort=x&filter[x][_contains]=1"
    ),
    "an export": lambda api: api.get(
        "/items/things?fields=name&limit=3&filter[x][_gte]=2026-01-01&export=csv"
    ),
}


def seen(answer: Answer) -> tuple[int, str]:
    """Return what was answered of a refusal, and of a success that it was one."""
    if answer.status >= 400:
        return answer.status, json.dumps(answer.errors, sort_keys=True)
    return 200, ""


@pytest.fixture
def clients(make_client: Callable[..., Client], admin_token: str) -> list[Client]:
    """The administrator's clients of two applications on one database."""
    processes = [make_client(database_pool_size=6).bearing(admin_token) for _ in range(2)]
    for name, fields in COLLECTIONS.items():
        assert (
            processes[0]
            .post("/collections", {"collection": name, "schema": {}, "fields": fields})
            .status
            == 200
        )
    relation = {"collection": "things", "field": "owner", "related_collection": "owners"}
    assert (
        processes[0].post("/relations", {**relation, "meta": {"one_field": "things"}}).status == 200
    )
    processes[0].post("/items/things", {"name": "first"})
    return processes


def make_type(dsn: str, name: str) -> None:
    """Give the column another type, as another process of the service does."""
    change(dsn, f"ALTER TABLE things ALTER x TYPE {name} USING NULL")


def change(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE system_version SET structure = structure + 1")
        connection.execute(sql.encode())


@contextmanager
def moving(dsn: str) -> Iterator[None]:
    ended = threading.Event()

    def move() -> None:
        while not ended.is_set():
            for name in TYPES:
                try:
                    make_type(dsn, name)
                except psycopg.errors.DeadlockDetected:
                    continue
                ended.wait(0.002)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(move)
        try:
            yield
        finally:
            ended.set()
            done.result()


def test_what_is_refused_meanwhile_is_true_of_one_of_the_types(
    clients: list[Client], dsn: str
) -> None:
    true: dict[str, set[tuple[int, str]]] = {name: {(200, "")} for name in WORKS}
    for kind in TYPES:
        make_type(dsn, kind)
        for name, work in WORKS.items():
            true[name].add(seen(work(clients[0])))
    answers: Counter[tuple[str, int, str]] = Counter()
    ends = time.monotonic() + SECONDS

    def read_on(name: str, api: Client) -> None:
        while time.monotonic() < ends:
            answers[(name, *seen(WORKS[name](api)))] += 1

    with moving(dsn), ThreadPoolExecutor(2 * len(WORKS)) as pool:
        for done in [pool.submit(read_on, name, api) for api in clients for name in WORKS]:
            done.result()
    assert not {key for key in answers if key[1] != 503 and key[1:] not in true[key[0]]}


Act = Callable[[], None]


def after_the_plan(monkeypatch: pytest.MonkeyPatch, act: Act) -> None:
    """Let something happen once, when the next call has its snapshot."""
    current = Snapshots.current
    pending = [act]

    def overtaken(self: Snapshots) -> Snapshot:
        counters = current(self)
        if pending:
            pending.pop()()
        return counters

    monkeypatch.setattr(Snapshots, "current", overtaken)


def after_the_look(monkeypatch: pytest.MonkeyPatch, act: Act) -> None:
    """Let something happen once, when the next transaction has seen
    that its snapshot is up to date.
    """
    execute = Transaction.execute
    pending = [act]

    def overtaken(self: Transaction, text: str, values: Any = (), **options: Any) -> Any:
        rows_read = execute(self, text, values, **options)
        if pending and text == statement("find_version"):
            pending.pop()()
        return rows_read

    monkeypatch.setattr(Transaction, "execute", overtaken)


IN_TRANSACTIONS = ("several", "a change of all", "a batch", "an import", "something nested")
"""What more than one statement does."""

MOMENTS = [(after_the_plan, name) for name in WORKS] + [
    (after_the_look, name) for name in IN_TRANSACTIONS
]
CODES = ("23514", "22P02", "42846", "P0001", "0A000", "54000", "45001", "CM403")
UNFORESEEN = "XX000"
REFUSALS = [
    *(("several", code) for code in CODES),
    *((name, UNFORESEEN) for name in ("several", "a batch", "an import", "something nested")),
]
CHANGES = list(itertools.pairwise((*TYPES, TYPES[0])))


@pytest.mark.parametrize(("overtake", "name"), MOMENTS)
def test_what_the_structure_overtakes_is_answered_as_it_was_or_is(
    clients: list[Client],
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    overtake: Callable[..., None],
    name: str,
) -> None:
    api = clients[0]
    work = WORKS[name]
    for before, after in CHANGES:
        make_type(dsn, after)
        true = [seen(work(api))]
        make_type(dsn, before)
        true.append(seen(work(api)))
        with monkeypatch.context() as patch:
            overtake(patch, partial(make_type, dsn, after))
            answer = seen(work(api))
        assert answer in true, (before, after)


def refuse_meanwhile(monkeypatch: pytest.MonkeyPatch, dsn: str, code: str) -> None:
    """Let a trigger refuse every row of the next transaction that writes, and
    be gone when the service looks again.
    """
    refresh = Snapshots.refresh

    def calmed(self: Snapshots, stale: Snapshot | None) -> Snapshot:
        change(dsn, "DROP TRIGGER IF EXISTS refuse ON things")
        return refresh(self, stale)

    function = f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$"
    trigger = f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS {function};
        CREATE TRIGGER refuse BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION refuse()"""
    after_the_look(monkeypatch, partial(change, dsn, trigger))
    monkeypatch.setattr(Snapshots, "refresh", calmed)


@pytest.mark.parametrize(("name", "code"), REFUSALS)
def test_whatever_the_database_refuses_by_a_structure_that_has_moved_on_is_not_reported(
    clients: list[Client], dsn: str, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    api = clients[0]
    work = WORKS[name]
    assert work(api).status == 200
    refuse_meanwhile(monkeypatch, dsn, code)
    answer = work(api)
    assert answer.status == 200, answer.text


def test_an_import_that_the_structure_overtakes_does_not_try_every_row(
    clients: list[Client], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = upload(b"x,name\n" + b"2026-01-01,a\n" * 1_000)
    assert work(clients[0]).status == 200
    refuse_meanwhile(monkeypatch, dsn, "23514")
    with counted_in_transactions(monkeypatch) as statements:
        assert work(clients[0]).data == {"created": 1_000, "updated": 0}
    assert len(statements) < 30


def test_a_refusal_comes_at_once_from_a_call_that_holds_the_structure_still(
    clients: list[Client], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the structure moves before and after: of a refusal under
    one that was held there is no doubt.
    """
    current = Snapshots.current

    def moved(self: Snapshots) -> Snapshot:
        counters = current(self)
        change(dsn, "SELECT 1")
        return counters

    monkeypatch.setattr(Snapshots, "current", moved)
    answer = clients[0].post("/items/things", [{"x": "no date"}, {"name": "b"}])
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
