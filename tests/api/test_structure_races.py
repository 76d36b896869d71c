"""Structure changes are whole or not at all, one at a time, and seen by
every process with its next request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

from cms.store.snapshot import Snapshot, Snapshots
from cms.structure import indexes
from tests.client import Answer, Client
from tests.waiting import eventually

pytestmark = pytest.mark.release

Processes = list[Client]


@pytest.fixture
def processes(make_client: Callable[..., Client], admin_token: str) -> Processes:
    """The administrator's clients of four applications on one database."""
    return [make_client().bearing(admin_token) for _ in range(4)]


def posts(clients: Processes, path: str, body: object) -> list[Answer]:
    return simultaneously(*(partial(client.post, path, body) for client in clients))


def simultaneously(*works: Callable[[], Answer]) -> list[Answer]:
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], Answer]) -> Answer:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def statuses(answers: list[Answer]) -> list[int]:
    return sorted(answer.status for answer in answers)


def test_of_those_who_make_the_same_collection_at_once_one_wins(processes: Processes) -> None:
    for name in ("one", "two", "three"):
        body: dict[str, object] = {
            "collection": name,
            "schema": {},
            "fields": [{"field": "a", "type": "string"}],
        }
        answers = posts(processes, "/collections", body)
        assert statuses(answers) == [200, 400, 400, 400], name
        assert {code for answer in answers if answer.status == 400 for code in answer.codes} == {
            "INVALID_PAYLOAD"
        }, answers
        assert processes[0].post(f"/items/{name}", {"a": "x"}).data == {"id": 1, "a": "x"}


def test_of_those_who_add_the_same_field_at_once_one_wins(processes: Processes) -> None:
    processes[0].post("/collections", {"collection": "a", "schema": {}})
    body = {"field": "x", "type": "integer"}
    answers = posts(processes, "/fields/a", body)
    assert statuses(answers) == [200, 400, 400, 400]


def test_different_changes_at_once_all_happen(processes: Processes) -> None:
    processes[0].post("/collections", {"collection": "a", "schema": {}})
    bodies = [{"field": f"f{n}", "type": "integer"} for n in range(4)]
    pairs = zip(processes, bodies, strict=True)
    answers = simultaneously(*(partial(client.post, "/fields/a", body) for client, body in pairs))
    assert statuses(answers) == [200] * 4
    for client in processes:
        assert len(client.get("/fields/a").data) == 5


def test_a_collection_dropped_while_items_are_written_leaves_no_fault(processes: Processes) -> None:
    one, two, three, four = processes
    for _ in range(5):
        one.post(
            "/collections",
            {"collection": "a", "schema": {}, "fields": [{"field": "x", "type": "integer"}]},
        )
        answers = simultaneously(
            lambda: one.delete("/collections/a"),
            lambda: two.post("/items/a", [{"x": n} for n in range(50)]),
            lambda: three.get("/items/a?fields=*.*"),
            lambda: four.post("/fields/a", {"field": "y", "type": "string"}),
        )
        assert answers[0].status == 204
        assert all(answer.status in (200, 404) for answer in answers[1:]), [
            answer.text for answer in answers
        ]


def test_a_definition_that_fails_half_way_changes_nothing(api: Client, dsn: str) -> None:
    api.post(
        "/collections",
        {"collection": "a", "schema": {}, "fields": [{"field": "x", "type": "string"}]},
    )
    api.post("/items/a", [{"x": "1"}, {"x": None}])
    before = everything(api)
    wrong_last = [
        {"field": "b", "type": "string"},
        {"field": "j", "type": "json", "schema": {"is_indexed": True}},
    ]
    for answer in (
        api.post("/collections", {"collection": "new", "schema": {}, "fields": wrong_last}),
        api.patch(
            "/fields/a/x",
            {
                "field": "renamed",
                "type": "integer",
                "schema": {"comment": "c", "is_nullable": False},
                "meta": {"sort": 1},
            },
        ),
        api.patch(
            "/fields/a",
            [
                {"field": "x", "schema": {"max_length": 5}},
                {"field": "id", "schema": {"is_unique": False}},
            ],
        ),
        api.patch(
            "/collections",
            [{"collection": "a", "meta": {"sort": 1}}, {"collection": "a2", "meta": {}}],
        ),
    ):
        assert answer.status in (400, 404), answer
        assert everything(api) == before
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('new')").fetchone() == (None,)


def everything(api: Client) -> list[Any]:
    return [api.get(path).data for path in ("/collections", "/fields", "/relations", "/items/a")]


def test_every_process_sees_a_change_with_its_next_request(processes: Processes) -> None:
    """Each process has the old structure in memory when the change is made elsewhere."""
    changer, *others = processes
    for number in range(10):
        name = f"c{number}"
        for client in others:
            assert client.get(f"/items/{name}").status == 404
        changer.post("/collections", {"collection": name, "schema": {}})
        for client in others:
            assert client.get(f"/items/{name}").data == []
        changer.post(
            f"/fields/{name}", {"field": "a", "type": "string", "schema": {"default_value": "x"}}
        )
        assert [client.post(f"/items/{name}", {}).data["a"] for client in others] == ["x"] * 3
        changer.patch(f"/fields/{name}/a", {"field": "b"})
        for client in others:
            assert client.get(f"/items/{name}?fields=b&limit=1").data == [{"b": "x"}]
            assert client.get(f"/items/{name}?fields=a").status == 400
        changer.delete(f"/collections/{name}")
        for client in others:
            assert client.post(f"/items/{name}", {}).status == 404
            assert client.get(f"/collections/{name}").status == 404


def test_a_stale_process_never_refuses_from_its_old_structure(processes: Processes) -> None:
    changer, stale, *_ = processes
    changer.post(
        "/collections",
        {"collection": "a", "schema": {}, "fields": [{"field": "x", "type": "integer"}]},
    )
    for path in ("/items/a", "/fields/a", "/collections", "/relations"):
        assert stale.get(path).status == 200
    assert stale.post("/items/a", {"new": 1}).status == 400
    changer.post(
        "/fields/a",
        {"field": "new", "type": "string", "schema": {"is_nullable": False, "default_value": ""}},
    )
    assert stale.post("/items/a", {"new": "1"}).data["new"] == "1"
    changer.patch("/fields/a/x", {"type": "string"})
    assert stale.patch("/items/a/1", {"x": "no number"}).data["x"] == "no number"
    changer.patch("/fields/a/x", {"field": "y"})
    assert stale.get("/items/a?filter[y][_contains]=number&sort=y").data[0]["y"] == "no number"
    changer.patch("/fields/a/new", {"meta": {"required": True}, "schema": {"default_value": None}})
    assert stale.post("/items/a", {}).codes == ["FAILED_VALIDATION"]
    changer.patch("/fields/a/new", {"meta": {"required": False}, "schema": {"is_nullable": True}})
    assert stale.post("/items/a", {}).status == 200
    changer.patch("/collections/a", {"meta": {"singleton": True}})
    assert stale.post("/items/a", {}).status == 404
    changer.patch("/collections/a", {"meta": {"singleton": False}})
    assert stale.post("/items/a", {}).status == 200
    changer.delete("/fields/a/y")
    assert stale.post("/fields/a", {"field": "y", "type": "integer"}).status == 200


@pytest.mark.parametrize("connections", [1, 8])
def test_a_changed_type_is_no_fault_for_those_who_had_prepared_their_statements(
    make_client: Callable[..., Client], admin_token: str, connections: int
) -> None:
    """PostgreSQL refuses a prepared statement whose columns have other types
    now, on each connection that has one.
    """
    changer, other = (
        make_client(database_pool_size=connections).bearing(admin_token) for _ in range(2)
    )
    changer.post(
        "/collections",
        {"collection": "a", "schema": {}, "fields": [{"field": "x", "type": "integer"}]},
    )
    other.post("/items/a", {"x": 1})
    for type_name in ("bigInteger", "integer", "decimal"):
        for work in (partial(other.get, "/items/a"), partial(other.patch, "/items/a/1", {"x": 1})):
            answers = simultaneously(*[work] * connections)
            assert statuses(answers) == [200] * connections, (type_name, answers)
        changer.patch("/fields/a/x", {"type": type_name})
        assert other.get("/items/a").data == [{"id": 1, "x": 1}]
        assert other.patch("/items/a/1", {"x": 1}).data == {"id": 1, "x": 1}
        answers = simultaneously(*[partial(other.get, "/items/a")] * connections)
        assert statuses(answers) == [200] * connections, (type_name, answers)


def test_an_index_of_a_large_table_holds_up_no_writer_and_is_seen_by_every_process(
    processes: Processes, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changer, other, *_ = processes
    changer.post(
        "/collections",
        {"collection": "a", "schema": {}, "fields": [{"field": "x", "type": "integer"}]},
    )
    monkeypatch.setattr(indexes, "LARGE_BYTES", -1)

    def seen_by_other() -> Any:
        return other.get("/fields/a/x").data["schema"]

    with psycopg.connect(dsn) as writer:
        # The build waits for writes that began before it.
        writer.execute("INSERT INTO a (x) VALUES (1)")
        assert changer.patch("/fields/a/x", {"schema": {"is_indexed": True}}).status == 200
        eventually(lambda: seen_by_other()["index_build"]["state"] == "building")
        assert other.post("/items/a", {"x": 2}).status == 200
        assert not seen_by_other()["is_indexed"]
        writer.commit()
    eventually(lambda: seen_by_other()["is_indexed"])


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
    "wait_event_type = 'Lock'"
)


def test_a_change_of_structure_that_is_given_up_for_a_deadlock_is_made_again(
    api: Client, dsn: str
) -> None:
    """The other side asks for what the service holds, and waits longer than the
    service before it looks for a cycle.
    """
    api.post("/collections", {"collection": "a", "schema": {}})
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as other,
        psycopg.connect(dsn, autocommit=True) as watch,
    ):
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("INSERT INTO a DEFAULT VALUES")
        answer = pool.submit(api.post, "/fields/a", {"field": "x", "type": "integer"})
        eventually(lambda: watch.execute(WAITING).fetchone() != (0,))
        other.execute("UPDATE system_version SET access = access + 1")
        other.commit()
        assert answer.result().status == 200, answer.result().text


@pytest.fixture
def restless(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process changes the structure each time that somebody has looked at it."""
    current = Snapshots.current

    def moved(snapshots: Snapshots) -> Snapshot:
        counters = current(snapshots)
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE system_version SET structure = structure + 1")
        return counters

    monkeypatch.setattr(Snapshots, "current", moved)


def test_a_write_comes_through_a_run_of_changes_of_structure(
    api: Client, request: pytest.FixtureRequest
) -> None:
    api.post(
        "/collections",
        {"collection": "a", "schema": {}, "fields": [{"field": "x", "type": "integer"}]},
    )
    request.getfixturevalue("restless")
    assert api.post("/items/a", {"x": 1}).data == {"id": 1, "x": 1}
    assert api.patch("/items/a/1", {"x": 2}).data == {"id": 1, "x": 2}


def test_the_structure_holds_still_until_a_write_that_was_overtaken_has_committed(
    api: Client, dsn: str, request: pytest.FixtureRequest
) -> None:
    api.post("/collections", {"collection": "a", "schema": {}})
    with psycopg.connect(dsn) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("LOCK TABLE a IN SHARE MODE")
        request.getfixturevalue("restless")
        answer = pool.submit(api.post, "/items/a", {})
        with psycopg.connect(dsn, autocommit=True) as watch:
            eventually(lambda: watch.execute(WAITING).fetchone() != (0,))
            with pytest.raises(psycopg.errors.LockNotAvailable):
                watch.execute("SELECT FROM system_version FOR NO KEY UPDATE NOWAIT")
        holder.commit()
        assert answer.result().status == 200, answer.result().text
