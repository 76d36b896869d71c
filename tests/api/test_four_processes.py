"""Four processes over one database: what one changes, the next request of every other honours (design, section 3)."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import pytest

from cms.app import create_app
from cms.config import Config
from cms.query.ast import Query, Window
from cms.store import snapshot
from tests.client import Answer, Client

PROCESSES = 4
ROUNDS = 200

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Process:
    """A process with an application of its own, asked over a pipe."""

    pipe: Connection

    def send(self, method: str, path: str, body: object = None) -> Answer:
        self.pipe.send((method, path, body))
        found: Answer = self.pipe.recv()
        return found

    def get(self, path: str) -> Answer:
        return self.send("GET", path)


def serve(pipe: Connection, config: Config, token: str) -> None:
    client = Client(create_app(config)).bearing(token)
    while (asked := pipe.recv()) is not None:
        pipe.send(client.send(*asked))


@contextmanager
def running(config: Config, token: str) -> Iterator[list[Process]]:
    context = mp.get_context("spawn")
    pairs = [context.Pipe() for _ in range(PROCESSES)]
    children = [context.Process(target=serve, args=(far, config, token)) for _, far in pairs]
    for child in children:
        child.start()
    try:
        yield [Process(near) for near, _ in pairs]
    finally:
        for near, _ in pairs:
            near.send(None)
        for child in children:
            child.join(30)


@pytest.fixture
def processes(config: Config, admin_token: str) -> Iterator[list[Process]]:
    with running(config, admin_token) as found:
        yield found


def make(process: Process, name: str) -> None:
    fields = [{"field": "kept", "type": "string"}, {"field": "old", "type": "string"}]
    assert process.send("POST", "/collections", {"collection": name, "schema": {}, "fields": fields}).status == 200
    assert process.send("POST", f"/items/{name}", {"kept": "k", "old": "o"}).status == 200


def items(processes: list[Process], path: str) -> list[Any]:
    return [process.get(path).data for process in processes]


def test_fields_that_come_and_go_are_seen_by_the_next_request_of_every_process(processes: list[Process]) -> None:
    make(processes[0], "things")
    before = {"id": 1, "kept": "k", "old": "o"}
    assert items(processes, "/items/things") == [[before]] * PROCESSES
    for number in range(ROUNDS // 2):
        changer = processes[number % PROCESSES]
        assert changer.send("POST", "/fields/things", {"field": "new", "type": "integer"}).status == 200
        assert items(processes, "/items/things") == [[{**before, "new": None}]] * PROCESSES
        assert changer.send("DELETE", "/fields/things/new").status == 204
        assert items(processes, "/items/things") == [[before]] * PROCESSES
        assert {process.get("/items/things?fields=new").status for process in processes} == {400}


def test_a_dropped_table_is_gone_and_a_new_one_there_for_every_process(processes: list[Process]) -> None:
    for number in range(ROUNDS // 4):
        changer = processes[number % PROCESSES]
        make(changer, "things")
        assert items(processes, "/items/things?fields=old") == [[{"old": "o"}]] * PROCESSES
        assert changer.send("DELETE", "/collections/things").status == 204
        assert {process.get("/items/things").status for process in processes} == {404}


def test_a_right_that_is_revoked_is_gone_for_every_process(processes: list[Process], dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(ROUNDS):
            connection.execute("UPDATE system_roles SET admin_access = FALSE")
            assert {process.get("/items/system_roles").status for process in processes} == {403}
            connection.execute("UPDATE system_roles SET admin_access = TRUE")
            assert {process.get("/items/system_roles").status for process in processes} == {200}


def test_a_cache_never_holds_more_than_its_bound() -> None:
    cache: snapshot.Bounded[Query, int] = snapshot.Bounded(10)
    for number in range(1_000):
        assert cache.get(Query(window=Window(number)), lambda: number) == number  # noqa: B023
    assert len(cache) == 10


def test_different_queries_fill_the_caches_of_a_process_up_to_their_bound_only(
    config: Config, admin_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PLANS_KEPT", 20)
    app = create_app(replace(config))
    client = Client(app).bearing(admin_token)
    for number in range(100):
        assert (
            client.get(f"/items/system_roles?filter[name]={number}&fields=a{number}&alias[a{number}]=name").status
            == 200
        )
    current = app.store.snapshots.current()
    client.close()
    assert len(current.said) == len(current.plans) == 20
