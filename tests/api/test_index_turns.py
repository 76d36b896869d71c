"""Several that build the same index make it once, also where the lock is lost by which they take
turns.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.schema.model import Catalogue
from cms.store.snapshot import load_snapshot
from cms.structure import index_builds
from cms.structure.indexes import index_build_lock
from cms.structure.value_indexes import IndexTarget, make_index
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    IndexBuilder,
    ask,
    assert_indexed,
    assert_unique,
    before_each_build,
    make_unique,
)
from tests.waiting import eventually

pytestmark = pytest.mark.release

SEARCHED = "SELECT count(*) FROM pg_indexes WHERE tablename = 'things' AND indexdef LIKE '%trgm%'"
END_LOCKS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND datname = current_database()
"""
TRIES = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory%'"


@pytest.fixture
def overtaken(
    builder: IndexBuilder, config: Config, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> IndexBuilder:
    """A worker that loses its lock as it begins to build, and another process builds all first."""
    losses: list[None] = []

    def lose_lock() -> None:
        if losses:
            return
        losses.append(None)
        run_sql(dsn, END_LOCKS)
        other = Database(config)
        for (job,) in run_sql(dsn, "SELECT id FROM procrastinate_jobs WHERE task_name = 'build'"):
            index_builds.build(other, job)
        other.close()

    before_each_build(monkeypatch, lose_lock)
    return builder


def load_catalogue(database: Database) -> Catalogue:
    with database.transaction() as transaction:
        return load_snapshot(transaction).catalogue


def work_twice(builder: IndexBuilder, dsn: str) -> None:
    """Have a worker do a job that fails, as the lock is lost, and do it again."""
    builder.work()
    run_sql(dsn, "UPDATE procrastinate_jobs SET scheduled_at = NULL WHERE attempts = 1")
    builder.work()


def test_a_text_has_one_index_for_searches_where_two_processes_have_built_it(
    large: Client, overtaken: IndexBuilder, dsn: str
) -> None:
    assert large.patch("/collections/things", {"meta": {"searchable": True}}).status == 200
    work_twice(overtaken, dsn)
    assert run_sql(dsn, SEARCHED) == [(2,)]
    assert_indexed(dsn)


def test_a_field_has_one_index_where_two_processes_have_built_it(
    large: Client, overtaken: IndexBuilder, dsn: str
) -> None:
    ask(large)
    work_twice(overtaken, dsn)
    assert_indexed(dsn, "a")


def test_a_field_becomes_unique_once_where_two_processes_have_built_its_index(
    large: Client, overtaken: IndexBuilder, dsn: str
) -> None:
    make_unique(large)
    work_twice(overtaken, dsn)
    assert_unique(dsn, "a")


def test_the_command_makes_no_index_that_came_while_it_waited_for_its_turn(
    large: Client, job_database: Database, dsn: str
) -> None:
    assert large.get("/fields/things").status == 200
    target = IndexTarget("things", "a")
    catalogue = load_catalogue(job_database)
    with ThreadPoolExecutor(1) as executor:
        with index_build_lock(job_database, "things"):
            made = executor.submit(make_index, job_database, catalogue, target)
            eventually(lambda: run_sql(dsn, TRIES) != [])
            run_sql(dsn, "CREATE INDEX ON things (a)")
        assert made.result() is False
    assert_indexed(dsn, "a")


def test_the_command_drops_what_a_killed_one_has_left(
    large: Client, job_database: Database, dsn: str
) -> None:
    assert large.get("/fields/things").status == 200
    run_sql(dsn, "CREATE INDEX broken ON things (a)")
    run_sql(dsn, "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'broken'::regclass")
    catalogue = load_catalogue(job_database)
    assert make_index(job_database, catalogue, IndexTarget("things", "a")) is True
    assert_indexed(dsn, "a")
