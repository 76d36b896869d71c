"""Indexes for searches in large tables are built in the background, and the collection tells
how far they are.
"""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import Any

import psycopg
import pytest

from cms.cli.worker import tasks_of
from cms.database.connections import Database
from cms.jobs.job_worker import drain
from cms.structure import index_builds, indexes
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    BUILDS_FAIL,
    BUILDS_SUCCEED,
    INVALID,
    JOBS,
    WRITE,
    IndexBuilder,
    before_each_build,
)
from tests.waiting import eventually

pytestmark = pytest.mark.release

READY = {"state": "ready", "progress": 1.0}


@pytest.fixture
def large(api: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The administrator's client, with a collection "things" that counts as large."""
    fields = [{"field": name, "type": kind} for name, kind in (("a", "text"), ("n", "integer"))]
    body = {"collection": "things", "schema": {}, "fields": fields}
    assert api.post("/collections", body).status == 200
    api.post("/items/things", [{"a": "Crème"}, {"n": 7}])
    monkeypatch.setattr(indexes, "LARGE_BYTES", -1)
    return api


def state(client: Client) -> Any:
    return client.get("/collections/things").data["meta"]["search_index"]


def wait_until(client: Client, name: str) -> Any:
    eventually(lambda: state(client)["state"] == name)
    return state(client)


def make_searchable(client: Client) -> Any:
    answer = client.patch("/collections/things", {"meta": {"searchable": True}})
    assert answer.status == 200
    return answer.data["meta"]["search_index"]


def assert_searched_by_index(client: Client, dsn: str) -> None:
    assert state(client) == READY
    assert run_sql(dsn, JOBS) == []
    assert run_sql(dsn, INVALID) == [(0,)]
    indexed = (
        "SELECT count(*) FROM pg_indexes WHERE tablename = 'things' AND indexdef LIKE '%trgm%'"
    )
    assert run_sql(dsn, indexed) == [(1,)]
    assert client.get("/fields/things/n").data["schema"]["is_indexed"]
    assert [item["id"] for item in client.get("/items/things?search=creme").data] == [1]
    plan = client.get("/utils/explain?path=/items/things?search=creme&fields=id").text
    assert "system_fold(" in plan


def test_a_worker_builds_the_indexes_after_the_answer(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    assert make_searchable(large) == {
        "state": "waiting",
        "progress": pytest.approx(1 / 3, abs=0.01),
    }
    assert state(large)["state"] == "waiting"
    assert [item["id"] for item in large.get("/items/things?search=creme").data] == [1]
    builder.work()
    assert_searched_by_index(large, dsn)
    listed = {item["collection"]: item["meta"] for item in large.get("/collections").data}
    assert listed["things"]["search_index"] == READY
    assert "search_index" not in listed["system_users"]


def test_a_job_of_the_version_before_is_done_as_well(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    make_searchable(large)
    run_sql(
        dsn,
        """
        DELETE FROM procrastinate_jobs;
        INSERT INTO system_index_requests VALUES ('things', 'a');
        INSERT INTO system_constraint_requests VALUES ('things', 'n', 'unique');
        INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES
            ('index_build', 'index_build', '{"payload": {"collection": "things"}}')
        """,
    )
    # The first run puts a job for each build in the queue.
    for _ in range(2):
        drain(builder.config, builder.database, tasks_of(builder.config, builder.database))
    assert_searched_by_index(large, dsn)
    columns = {field["field"]: field["schema"] for field in large.get("/fields/things").data}
    assert columns["a"]["is_indexed"]
    assert columns["n"]["is_unique"]
    assert run_sql(dsn, "SELECT FROM procrastinate_jobs WHERE task_name <> 'maintain'") == []


def test_without_a_worker_the_process_itself_builds_them(large: Client, dsn: str) -> None:
    assert make_searchable(large)["state"] in ("waiting", "building")
    wait_until(large, "ready")
    # The job is ended behind the last index.
    eventually(lambda: run_sql(dsn, JOBS) == [])
    assert_searched_by_index(large, dsn)


def test_while_a_build_runs_the_collection_shows_its_state(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    make_searchable(large)
    # The write stands for hours of work.
    with builder.delayed_by_write():
        building = wait_until(large, "building")
        assert 0.3 < building["progress"] < 1
        assert large.patch("/items/things/1", {"a": "Crème brûlée"}).status == 200
    assert_searched_by_index(large, dsn)


def test_what_a_killed_build_has_left_is_built_again(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    make_searchable(large)
    run_sql(dsn, "CREATE INDEX broken ON things USING gin (system_fold(a) gin_trgm_ops)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    builder.work()
    assert_searched_by_index(large, dsn)


def test_a_build_that_the_server_goes_on_with_is_waited_for(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    is_building = index_builds._is_building

    def looked(database: Database, table: str) -> bool:
        looks.append(table)
        return is_building(database, table)

    monkeypatch.setattr(index_builds, "BUILD_POLL_SECONDS", 0.02)
    monkeypatch.setattr(index_builds, "_is_building", looked)
    make_searchable(large)
    index = "CREATE INDEX CONCURRENTLY ON things USING gin (system_fold(a) gin_trgm_ops)"
    with psycopg.connect(dsn) as writer:
        writer.execute(WRITE)
        # As of a worker that was killed: nobody holds the lock of builds.
        orphan = Thread(target=run_sql, args=(dsn, index))
        orphan.start()
        wait_until(large, "building")
        worker = Thread(target=builder.work)
        worker.start()
        eventually(lambda: len(looks) > 1)
        writer.rollback()
    orphan.join()
    worker.join()
    assert_searched_by_index(large, dsn)


def test_a_failed_build_is_shown_and_leaves_only_the_change(large: Client, dsn: str) -> None:
    run_sql(dsn, BUILDS_FAIL)
    make_searchable(large)
    assert wait_until(large, "failed")["progress"] < 1
    assert large.get("/collections/things").data["meta"]["searchable"] is True
    assert run_sql(dsn, INVALID) == [(0,)]
    run_sql(dsn, BUILDS_SUCCEED)
    make_searchable(large)
    wait_until(large, "ready")


def test_what_was_dropped_meanwhile_needs_no_index(
    large: Client, builder: IndexBuilder, dsn: str
) -> None:
    make_searchable(large)
    assert large.delete("/collections/things").status == 204
    builder.work()
    assert run_sql(dsn, JOBS) == []


def test_what_is_no_longer_searched_as_its_build_begins_is_dropped(
    large: Client,
    builder: IndexBuilder,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_searchable(large)
    stop_searching = partial(large.patch, "/collections/things", {"meta": {"searchable": False}})
    before_each_build(monkeypatch, stop_searching)
    builder.work()
    left = "SELECT indexname FROM pg_indexes WHERE tablename = 'things'"
    assert run_sql(dsn, left) == [("things_pkey",)]


def test_a_record_with_its_state_can_be_sent_back(large: Client) -> None:
    make_searchable(large)
    wait_until(large, "ready")
    record = large.get("/collections/things").data
    assert large.patch("/collections/things", record).data == record
    stopped = large.patch("/collections/things", {"meta": {"searchable": False}}).data
    assert "search_index" not in stopped["meta"]
