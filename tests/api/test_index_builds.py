"""Indexes of fields in large tables are built in the background, and the field tells how far
they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from threading import Thread

import psycopg
import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.structure import index_builds, index_requests
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    ASK,
    BUILDS_FAIL,
    BUILDS_SUCCEED,
    FIELD,
    GIVE_UP,
    INVALID,
    JOBS,
    REQUESTED,
    WORKER,
    IndexBuilder,
    ask,
    assert_indexed,
    make_unique,
    state,
    wait_for_state,
    work,
)
from tests.waiting import eventually

pytestmark = pytest.mark.release

WAITING = {"state": "waiting", "progress": 0.0}
TAKEN = """
    SELECT 1 FROM pg_locks
    WHERE relation = 'procrastinate_jobs'::regclass AND mode = 'RowExclusiveLock' AND granted
"""


def test_a_worker_builds_the_index_after_the_answer(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    schema = ask(large)
    assert (schema["is_indexed"], schema["index_build"]) == (False, WAITING)
    listed = {field["field"]: field["schema"] for field in large.get("/fields/things").data}
    assert listed["a"]["index_build"] == WAITING
    assert "index_build" not in listed["b"]
    builder.work()
    assert state(large) == "ready"
    assert_indexed(dsn, "a")


def test_without_a_worker_the_process_itself_builds_it(large: Client, dsn: str) -> None:
    assert "index_build" in ask(large)
    wait_for_state(large, "ready")
    # The job is ended behind the last index.
    eventually(lambda: run_sql(dsn, JOBS) == [])
    assert_indexed(dsn, "a")


def build_then(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> None:
    """Have something happen between a build of a process and the end of its job."""

    def build_and_go_on(database: Database, job: int) -> None:
        index_builds.build(database, job)
        step()

    monkeypatch.setattr(index_requests, "build", build_and_go_on)


def wait_for_threads() -> None:
    """Wait until the builds of this process have ended."""
    name = "index-build-things"
    eventually(lambda: name not in [thread.name for thread in threading.enumerate()], seconds=10)


def test_a_process_ends_no_job_that_another_one_has_put_in_the_queue_behind_its_build(
    large: Client, config: Config, job_database: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_and_die() -> None:
        with job_database.transaction() as transaction:
            index_requests.add_index(transaction, "things", "b")
            # What the other process would do next: begin the build.
            transaction.after_commit.clear()

    build_then(monkeypatch, ask_and_die)
    ask(large)
    wait_for_threads()
    assert run_sql(dsn, REQUESTED) == [("things", "b")]
    assert run_sql(dsn, JOBS) == [("todo",)]
    work(config, job_database)
    assert_indexed(dsn, "a", "b")


def test_a_process_ends_no_job_that_a_worker_is_taking(
    large: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(dsn) as worker:
        take = b"UPDATE procrastinate_jobs SET status = 'doing' WHERE task_name = 'build'"
        build_then(monkeypatch, partial(worker.execute, take))
        ask(large)
        eventually(lambda: run_sql(dsn, TAKEN) != [])
        wait_for_state(large, "ready")
        worker.commit()
    wait_for_threads()
    assert run_sql(dsn, JOBS) == [("doing",)]


def test_a_change_is_made_where_the_system_has_no_thread_for_its_build(
    large: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Thread.start

    def refuse(thread: Thread) -> None:
        if thread.name.startswith("index-build"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as context:
        context.setattr(Thread, "start", refuse)
        assert ask(large)["index_build"] == WAITING
    assert run_sql(dsn, JOBS) == [("todo",)]
    ask(large)
    wait_for_state(large, "ready")
    wait_for_threads()
    assert_indexed(dsn, "a")


def test_every_change_that_needs_an_index_has_it_built(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    new = {"field": "c", "type": "integer", **ASK}
    assert large.post("/fields/things", new).data["schema"]["index_build"] == WAITING
    large.post("/fields/things", {"field": "up", "type": "integer"})
    relation = {"collection": "things", "field": "up", "related_collection": "things"}
    assert large.post("/relations", relation).status == 200
    assert large.patch("/collections/things", {"meta": {"sort_field": "b"}}).status == 200
    names = ("b", "c", "up")
    assert [state(large, f"/fields/things/{name}") for name in names] == ["waiting"] * 3
    builder.work()
    assert_indexed(dsn, *names)


def test_while_a_build_runs_others_write_and_the_field_shows_its_state(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    ask(large, "/fields/things/b")
    # The write stands for minutes of work.
    with builder.delayed_by_write():
        wait_for_state(large, "building")
        assert state(large, "/fields/things/b") == "waiting"
        assert large.post("/items/things", {"a": "y"}).status == 200
    assert_indexed(dsn, "a", "b")


def test_what_a_killed_build_has_left_is_built_again(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    run_sql(dsn, "CREATE INDEX broken ON things (a)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    large.post("/utils/cache/clear")
    assert state(large) == "waiting"
    builder.work()
    assert_indexed(dsn, "a")


def test_what_was_killed_behind_its_build_leaves_no_request(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    run_sql(dsn, "CREATE INDEX broken ON things (a)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    run_sql(dsn, "CREATE INDEX ON things (a)")
    large.post("/utils/cache/clear")
    assert state(large) == "ready"
    builder.work()
    assert_indexed(dsn, "a")


def test_an_index_that_is_given_up_is_not_built(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    assert "index_build" not in large.patch(FIELD, GIVE_UP).data["schema"]
    builder.work()
    assert_indexed(dsn)


def test_a_renamed_field_gets_its_index(large: Client, builder: IndexBuilder, dsn: str) -> None:
    ask(large)
    renamed = large.patch(FIELD, {"field": "c"}).data
    assert renamed["schema"]["index_build"] == WAITING
    builder.work()
    assert_indexed(dsn, "c")


def test_a_record_that_is_sent_back_asks_for_what_it_asked_for(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    record = large.get(FIELD).data
    assert large.patch(FIELD, {**record, "meta": {"note": "x"}}).data["schema"] == record["schema"]
    builder.work()
    assert_indexed(dsn, "a")


def test_two_requests_for_one_index_build_it_once(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    ask(large)
    workers = [Thread(target=builder.work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert_indexed(dsn, "a")


def test_a_failed_build_is_shown_and_leaves_only_the_change(large: Client, dsn: str) -> None:
    run_sql(dsn, BUILDS_FAIL)
    answer = large.patch(FIELD, {"schema": {"is_indexed": True, "comment": "done"}})
    assert (answer.status, answer.data["schema"]["comment"]) == (200, "done")
    wait_for_state(large, "failed")
    assert run_sql(dsn, INVALID) == [(0,)]
    run_sql(dsn, BUILDS_SUCCEED)
    ask(large)
    wait_for_state(large, "ready")


def test_a_type_that_no_index_takes_is_refused_at_once(large: Client, dsn: str) -> None:
    large.post("/fields/things", {"field": "j", "type": "json"})
    answer = large.patch("/fields/things/j", ASK)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert '"things.j" is of a type without an order' in answer.errors[0]["reason"]
    assert run_sql(dsn, JOBS) == run_sql(dsn, REQUESTED) == []


def test_a_change_to_such_a_type_is_refused_while_an_index_is_asked_for(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    answer = large.patch(FIELD, {"type": "json"})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert large.patch(FIELD, {"type": "json", **GIVE_UP}).status == 200
    builder.work()
    assert_indexed(dsn)


def test_one_build_that_fails_hinders_no_other(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    # Too long for an entry of a tree, and not to be compressed.
    run_sql(
        dsn,
        "ALTER TABLE things ALTER a TYPE text; INSERT INTO things (a)"
        " SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 500)",
    )
    ask(large)
    ask(large, "/fields/things/b")
    builder.work()
    assert (state(large), state(large, "/fields/things/b")) == ("waiting", "ready")
    assert run_sql(dsn, REQUESTED) == [("things", "a")]
    assert run_sql(dsn, INVALID) == [(0,)]
    # Nor does an index for searches stand for the one that has failed.
    assert large.patch("/collections/things", {"meta": {"searchable": True}}).status == 200
    builder.work()
    assert large.get("/collections/things").data["meta"]["search_index"]["state"] == "ready"
    assert run_sql(dsn, REQUESTED) == [("things", "a")]
    assert large.patch(FIELD, GIVE_UP).status == 200
    assert run_sql(dsn, REQUESTED) == []


def test_one_build_that_fails_for_an_unforeseen_reason_hinders_no_other(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    damaged = BUILDS_FAIL.replace("%'", '%("a")%\'').replace("program_limit_exceeded", "XX001")
    run_sql(dsn, damaged)
    ask(large)
    ask(large, "/fields/things/b")
    builder.work()
    assert (state(large), state(large, "/fields/things/b")) == ("waiting", "ready")
    assert run_sql(dsn, REQUESTED) == [("things", "a")]


def test_a_snapshot_holds_the_index_that_is_being_built(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    before = large.get("/schema/snapshot").data
    target = deepcopy(before)
    for record in target["fields"]:
        if record["field"] == "a":
            record["schema"]["is_indexed"] = True
    diff = large.post("/schema/diff", target).data
    assert large.post("/schema/apply", diff).status == 204
    assert state(large) == "waiting"
    assert large.get("/schema/snapshot").data == target
    assert large.post("/schema/diff", target).status == 204
    back = large.post("/schema/diff", before).data
    assert large.post("/schema/apply", back).status == 204
    builder.work()
    assert_indexed(dsn)


def test_the_history_has_the_index_that_was_asked_for(large: Client, builder: IndexBuilder) -> None:
    ask(large)
    params = {
        "filter[collection]": "system_fields",
        "sort": "-id",
        "fields": "item,delta",
        "limit": 1,
    }
    (revision,) = large.get("/revisions", **params).data
    assert revision == {"item": "things.a", "delta": {"schema": {"is_indexed": True}}}
    builder.work()
    # That it is built by now is no change that somebody made.
    large.patch(FIELD, {"schema": {"comment": "x"}})
    (revision,) = large.get("/revisions", **params).data
    assert revision["delta"] == {"schema": {"comment": "x"}}


def test_an_index_that_others_have_made_meanwhile_is_ready(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large)
    run_sql(dsn, "CREATE INDEX things_a_idx ON things (a)")
    builder.work()
    assert state(large) == "ready"
    assert run_sql(dsn, JOBS) == []


def test_a_job_ends_what_others_ask_for_that_is_there(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    ask(large, "/fields/things/b")
    ask(large)
    run_sql(dsn, "CREATE INDEX things_a_idx ON things (a)")
    builder.work()
    assert [state(large, f"/fields/things/{name}") for name in "ab"] == ["ready", "ready"]


def test_who_asks_again_takes_the_place_of_what_failed(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    large.post("/items/things", [{"a": "x"}, {"a": "x"}])
    for _ in range(3):
        make_unique(large)
        builder.work()
    failed = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed'"
    assert run_sql(dsn, failed) == [(1,)]


def test_who_asks_twice_has_it_built_once(large: Client, dsn: str) -> None:
    run_sql(dsn, WORKER)
    for icon in ("a", "b", "c"):
        meta = {"searchable": True, "icon": icon}
        assert large.patch("/collections/things", {"meta": meta}).status == 200
    waiting = "SELECT args #>> '{payload,field}', count(*) FROM procrastinate_jobs GROUP BY 1"
    assert set(run_sql(dsn, waiting)) <= {("a", 1), ("b", 1)}
    assert large.patch("/collections/things", {"meta": {"searchable": False}}).status == 200
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'"
    assert run_sql(dsn, left) == [(0,)]
