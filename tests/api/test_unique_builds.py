"""A field of a large table is made unique in the background, and tells how far that is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from threading import Thread

import psycopg
import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.jobs.housekeeping import delete_finished
from cms.structure import indexes
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    BUILDS_FAIL,
    CONSTRAINED,
    CONSTRAINTS_LEFT,
    FIELD,
    INDEXED,
    INVALID,
    JOBS,
    MAKE_UNIQUE,
    NOT_UNIQUE,
    UNIQUE_INDEXES,
    WORKER,
    ask,
    assert_unique,
    make_unique,
    schema,
    work,
)
from tests.waiting import eventually

pytestmark = pytest.mark.release

GIVE_UP_UNIQUE = {"schema": {"is_unique": False}}
WAITING = {"state": "waiting", "progress": 0.0}


def state(client: Client, path: str = FIELD) -> str:
    record = schema(client, path)
    assert record["is_unique"] == ("unique_build" not in record)
    if record["is_unique"]:
        return "ready"
    return str(record["unique_build"]["state"])


def wait_for_state(client: Client, name: str, path: str = FIELD) -> None:
    eventually(lambda: state(client, path) == name)


@pytest.mark.usefixtures("worker")
def test_the_answer_comes_at_once_and_a_worker_makes_the_field_unique(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    asked = make_unique(large)
    assert (asked["is_unique"], asked["unique_build"]) == (False, WAITING)
    assert large.post("/items/things", {"a": "x"}).status == 200
    work(config, job_database)
    record = schema(large)
    assert (record["is_unique"], record["is_indexed"]) == (True, True)
    assert "unique_build" not in record
    assert_unique(dsn, "a")
    answer = large.post("/items/things", {"a": "x"})
    assert (answer.status, answer.codes) == (400, ["RECORD_NOT_UNIQUE"])
    assert (answer.errors[0]["field"], answer.errors[0]["value"]) == ("a", "x")
    # As any other, the constraint goes with the setting.
    assert large.patch(FIELD, GIVE_UP_UNIQUE).data["schema"]["is_unique"] is False
    assert_unique(dsn)


def test_without_a_worker_the_process_itself_makes_it_unique(large: Client, dsn: str) -> None:
    assert "unique_build" in make_unique(large)
    eventually(lambda: run_sql(dsn, JOBS) == [])
    assert state(large) == "ready"
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_values_that_are_there_twice_are_reported_until_they_are_gone(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    items = large.post("/items/things", [{"a": "x"}, {"a": "x"}, {"a": "z"}, {}, {}]).data
    make_unique(large)
    work(config, job_database)
    record = schema(large)
    assert (record["is_unique"], record["unique_build"]) == (False, NOT_UNIQUE)
    # The query of the documentation finds them.
    groups = large.get("/items/things?groupBy=a&aggregate[count]=a&sort=-count.a").data
    assert groups[0] == {"a": "x", "count": {"a": 2}}
    # It is not tried again by itself, and refuses no writes.
    assert run_sql(dsn, JOBS) == [("failed",)]
    # Nor forgotten, however old it is.
    run_sql(dsn, "UPDATE procrastinate_events SET at = at - interval '1 month'")
    delete_finished(job_database)
    assert schema(large)["unique_build"] == NOT_UNIQUE
    assert run_sql(dsn, UNIQUE_INDEXES) == [(0,)]
    assert large.post("/items/things", {"a": "x"}).status == 200
    assert large.patch("/items/things", {"keys": [items[0]["id"]], "data": {"a": "y"}}).status < 300
    large.patch("/items/things", {"query": {"filter": {"a": {"_eq": "x"}}}, "data": {"a": None}})
    assert make_unique(large)["unique_build"] == WAITING
    work(config, job_database)
    assert state(large) == "ready"
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_values_that_come_during_the_build_are_found_by_it(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    large.post("/items/things", {"a": "x"})
    # Its write began before the index was there, and so does not look at it.
    with psycopg.connect(dsn) as writer:
        writer.execute("INSERT INTO things (a) VALUES ('y')")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        wait_for_state(large, "building")
        writer.execute("INSERT INTO things (a) VALUES ('x')")
        writer.commit()
    builder.join()
    assert schema(large)["unique_build"] == NOT_UNIQUE
    assert run_sql(dsn, UNIQUE_INDEXES) == [(0,)]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("method", "body"), [("PATCH", GIVE_UP_UNIQUE), ("DELETE", None)])
def test_giving_it_up_ends_a_build_that_runs(
    large: Client, config: Config, job_database: Database, dsn: str, method: str, body: object
) -> None:
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        wait_for_state(large, "building")
        assert large.send(method, FIELD, body).status in (200, 204)
        builder.join(60)
        assert not builder.is_alive()
    assert_unique(dsn)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "change",
    [
        ("PATCH", FIELD, {"type": "text"}),
        ("PATCH", "/fields/things/b", {"schema": {"is_unique": True, "comment": "x"}}),
        ("POST", "/fields/things", {"field": "new", "type": "integer"}),
    ],
)
def test_a_change_of_the_table_interrupts_a_build_which_begins_anew(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    change: tuple[str, str, object],
) -> None:
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        wait_for_state(large, "building")
        assert large.send(*change).status == 200
        wait_for_state(large, "building")
        reader.rollback()
    builder.join()
    work(config, job_database)
    assert state(large) == "ready"
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []
    assert run_sql(dsn, INVALID) == [(0,)]


@pytest.mark.usefixtures("worker")
def test_a_collection_is_deleted_while_a_field_becomes_unique(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        wait_for_state(large, "building")
        assert large.delete("/collections/things").status == 204
        builder.join(60)
        assert not builder.is_alive()
    assert_unique(dsn)


@pytest.mark.usefixtures("worker")
def test_a_field_that_is_renamed_there_and_back_during_the_build_becomes_unique(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    ask(large, "/fields/things/b")
    with psycopg.connect(dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        eventually(lambda: "building" in states(large))
        for before, after in (("a", "c"), ("b", "d"), ("c", "a"), ("d", "b")):
            path = f"/fields/things/{before}"
            assert large.patch(path, {"field": after}).status == 200
            eventually(lambda: "building" in states(large))
        reader.rollback()
    builder.join()
    assert_unique(dsn, "a")
    assert schema(large, "/fields/things/b")["is_indexed"] is True


def states(client: Client) -> list[str]:
    """Return the states of all builds of the collection."""
    found = []
    for field in client.get("/fields/things").data:
        for key in ("unique_build", "index_build"):
            if key in field["schema"]:
                found.append(field["schema"][key]["state"])
    return found


@pytest.mark.usefixtures("worker")
def test_a_builder_that_is_killed_before_the_constraint_leaves_it_to_the_next(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_unique(large)
    run_sql(dsn, 'CREATE UNIQUE INDEX ON "things" ("a")')
    large.post("/utils/cache/clear")
    # It is unique from now on, whatever is left to do.
    assert state(large) == "ready"
    monkeypatch.setattr(indexes.DeferredIndex, "build", None)
    work(config, job_database)
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_what_a_killed_build_has_left_is_built_again(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    run_sql(dsn, "CREATE UNIQUE INDEX broken ON things (a)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    large.post("/utils/cache/clear")
    assert state(large) == "waiting"
    work(config, job_database)
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_two_workers_make_it_unique_once(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    make_unique(large)
    with ThreadPoolExecutor(2) as workers:
        for done in [workers.submit(work, config, job_database) for _ in range(2)]:
            done.result()
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_a_new_field_becomes_unique_in_the_background(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    large.post("/items/things", [{}, {}])
    new = {"field": "c", "type": "integer", **MAKE_UNIQUE}
    record = large.post("/fields/things", new).data["schema"]
    assert (record["is_unique"], record["unique_build"]) == (False, WAITING)
    work(config, job_database)
    assert_unique(dsn, "c")
    # With a default, all rows have the same value.
    new = {"field": "d", "type": "integer", "schema": {"is_unique": True, "default_value": 1}}
    answer = large.post("/fields/things", new)
    assert (answer.status, answer.codes) == (400, ["RECORD_NOT_UNIQUE"])


@pytest.mark.usefixtures("worker")
def test_a_record_that_is_sent_back_withdraws_nothing(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    record = large.get(FIELD).data
    assert large.patch(FIELD, {**record, "meta": {"note": "x"}}).data["schema"] == record["schema"]
    work(config, job_database)
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_a_snapshot_holds_what_was_asked_for(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    before = large.get("/schema/snapshot").data
    target = deepcopy(before)
    for record in target["fields"]:
        if record["field"] == "a":
            record["schema"].update(is_unique=True, is_indexed=True)
    diff = large.post("/schema/diff", target).data
    assert large.post("/schema/apply", diff).status == 204
    assert state(large) == "waiting"
    assert large.get("/schema/snapshot").data == target
    assert large.post("/schema/diff", target).status == 204
    back = large.post("/schema/diff", before).data
    assert large.post("/schema/apply", back).status == 204
    work(config, job_database)
    assert_unique(dsn)


def test_a_type_without_an_order_is_refused_at_once(large: Client, dsn: str) -> None:
    large.post("/fields/things", {"field": "j", "type": "json"})
    answer = large.patch("/fields/things/j", MAKE_UNIQUE)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    run_sql(dsn, WORKER)
    make_unique(large)
    answer = large.patch(FIELD, {"type": "json"})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert large.patch(FIELD, {"type": "json", **GIVE_UP_UNIQUE}).status == 200
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []


def test_a_build_that_fails_says_so_and_leaves_nothing(large: Client, dsn: str) -> None:
    run_sql(dsn, BUILDS_FAIL.replace("CREATE INDEX", "CREATE UNIQUE INDEX"))
    make_unique(large)
    wait_for_state(large, "failed")
    assert "code" not in schema(large)["unique_build"]
    assert run_sql(dsn, INVALID) == [(0,)]


@pytest.mark.usefixtures("worker")
def test_a_small_table_is_made_unique_at_once(
    large: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unique(large)
    run_sql(dsn, "CREATE UNIQUE INDEX broken ON things (a)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    large.post("/utils/cache/clear")
    # It has become small, and is asked again.
    monkeypatch.setattr(indexes, "LARGE_BYTES", 16 * 2**20)
    assert make_unique(large)["is_unique"] is True
    assert [name for (name,) in run_sql(dsn, CONSTRAINED)] == ["a"]
    assert run_sql(dsn, UNIQUE_INDEXES) == [(1,)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []


@pytest.mark.usefixtures("worker")
def test_what_is_asked_for_again_during_a_build_that_fails_is_built_again(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [item["id"] for item in large.post("/items/things", [{"a": "x"}, {"a": "x"}]).data]
    make_unique(large)
    build = indexes.DeferredIndex.build
    changes = [{"a": "y"}]

    def fail_and_change(index: indexes.DeferredIndex, database: Database) -> str | None:
        try:
            return build(index, database)
        finally:
            while changes:
                assert large.patch(f"/items/things/{ids[0]}", changes.pop()).status == 200
                assert make_unique(large)["unique_build"] == WAITING

    monkeypatch.setattr(indexes.DeferredIndex, "build", fail_and_change)
    work(config, job_database)
    # For the second request there is a job of its own.
    work(config, job_database)
    assert state(large) == "ready"
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
def test_a_record_of_before_may_be_sent_back_when_the_field_is_unique(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    record = large.get(FIELD).data
    work(config, job_database)
    answer = large.patch(FIELD, {**record, "meta": {"note": "x"}})
    assert answer.status == 200, answer
    assert_unique(dsn, "a")


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("large_bytes", [-1, 16 * 2**20])
def test_a_field_that_is_made_unique_and_indexed_has_one_index(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    large_bytes: int,
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", large_bytes)
    both = {"schema": {"is_unique": True, "is_indexed": True}}
    assert large.patch(FIELD, both).status == 200
    work(config, job_database)
    assert_unique(dsn, "a")
    assert run_sql(dsn, INDEXED) == [("a",)]


@pytest.mark.usefixtures("worker")
def test_an_index_of_others_that_makes_no_constraint_is_left_alone(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    run_sql(dsn, "CREATE UNIQUE INDEX of_patterns ON things (a varchar_pattern_ops)")
    work(config, job_database)
    assert [name for (name,) in run_sql(dsn, CONSTRAINED)] == ["a"]
    assert run_sql(dsn, UNIQUE_INDEXES) == [(2,)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == run_sql(dsn, JOBS) == []
