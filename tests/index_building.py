"""Builds of indexes in the background, for tests: a worker, and builds that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.jobs.job_worker import drain
from cms.jobs.task import Task
from cms.structure.index_builds import INDEX_BUILD_TASK, INDEX_BUILDS, run_index_build_job
from cms.structure.indexes import DeferredIndex
from tests.client import Client
from tests.databases import run_sql
from tests.waiting import eventually

BUILDS_FAIL = """
    CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_query() LIKE 'CREATE INDEX CONCURRENTLY%' THEN
            RAISE 'refused' USING ERRCODE = 'program_limit_exceeded';
        END IF;
    END $$;
    CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION refuse()
"""
BUILDS_SUCCEED = "DROP EVENT TRIGGER refuse; DROP FUNCTION refuse"

JOBS = """
    SELECT status::text FROM procrastinate_jobs
    WHERE task_name = 'build' AND status <> 'cancelled'
    ORDER BY id
"""
WAITING_FOR_TABLE = "SELECT 1 FROM pg_locks WHERE relation = 'things'::regclass AND NOT granted"
DROP_WAITS = """
    SELECT 1 FROM pg_stat_activity
    WHERE query LIKE 'DROP INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'
"""
INVALID = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
REQUESTED = """
    SELECT DISTINCT args #>> '{payload,collection}', args #>> '{payload,field}'
    FROM procrastinate_jobs
    WHERE task_name = 'build' AND args #>> '{payload,kind}' = 'index'
    ORDER BY 1, 2
"""
WORKER = "INSERT INTO procrastinate_workers DEFAULT VALUES"
TAKE_SNAPSHOT = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1"
WRITE = b"INSERT INTO things (a) VALUES ('x')"


def indexed_words(*columns: str) -> str:
    """Return what an index of whole words is over, as former versions made them."""
    shape = r"regexp_split_to_array(regexp_replace(system_fold({}), '\w{{61,}}', ' ', 'g'), '\W+')"
    return f"USING gin ({', '.join(map(shape.format, columns))})"


def work(config: Config, database: Database) -> None:
    """Do the jobs that are due, in place of a worker."""
    run = partial(run_index_build_job, database)
    drain(config, database, [Task(INDEX_BUILD_TASK, run, max_concurrent=INDEX_BUILDS)])


class IndexBuilder(NamedTuple):
    """A worker that builds indexes, when a test has it do so."""

    config: Config
    database: Database
    dsn: str

    def work(self) -> None:
        work(self.config, self.database)

    @contextmanager
    def delayed_by_snapshot(self) -> Iterator[None]:
        """Work beside the block: the first build cannot end before it, and locks no others out."""
        with self._delayed_by(TAKE_SNAPSHOT):
            yield

    @contextmanager
    def delayed_by_write(self) -> Iterator[None]:
        """Work beside the block: the first build waits for a write that has begun before it."""
        with self._delayed_by(WRITE):
            yield

    @contextmanager
    def _delayed_by(self, statements: bytes) -> Iterator[None]:
        with ThreadPoolExecutor(1) as executor:
            with psycopg.connect(self.dsn) as other:
                other.execute(statements)
                work = executor.submit(self.work)
                yield
                other.rollback()
            work.result()


def before_each_build(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Have something happen when a build is about to begin."""
    build = DeferredIndex.build

    def change_and_build(index: DeferredIndex, database: Database) -> str | None:
        change()
        return build(index, database)

    monkeypatch.setattr(DeferredIndex, "build", change_and_build)


def behind_each_build(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Have something happen when PostgreSQL has built an index that its builder knows not yet."""
    build = DeferredIndex.build

    def build_and_change(index: DeferredIndex, database: Database) -> str | None:
        oid = build(index, database)
        change()
        return oid

    monkeypatch.setattr(DeferredIndex, "build", build_and_change)


def set_for_database(dsn: str, setting: str, value: str) -> None:
    """Give the sessions that begin from now on another value of a setting."""
    command = f"ALTER DATABASE %I SET {setting} = ''{value}''"
    run_sql(dsn, f"DO $$ BEGIN EXECUTE format('{command}', current_database()); END $$")


def is_indexed(client: Client, collection: str, *fields: str) -> bool:
    """Tell whether the fields of a collection have an index each."""
    columns = {
        field["field"]: field["schema"] for field in client.get(f"/fields/{collection}").data
    }
    return all(columns[name]["is_indexed"] for name in fields)


# The collection of the fixture `large` of tests/api

FIELD = "/fields/things/a"
ASK = {"schema": {"is_indexed": True}}
GIVE_UP = {"schema": {"is_indexed": False}}
INDEXED = """
    SELECT attname::text
    FROM pg_index
    JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
    WHERE indrelid = to_regclass('things') AND NOT indisprimary AND indisvalid
    ORDER BY 1
"""


def schema(client: Client, path: str = FIELD) -> Any:
    return client.get(path).data["schema"]


def state(client: Client, path: str = FIELD) -> str:
    """Return the state of the build; "ready" once the index is there."""
    record = schema(client, path)
    assert record["is_indexed"] == ("index_build" not in record)
    if record["is_indexed"]:
        return "ready"
    return str(record["index_build"]["state"])


def wait_for_state(client: Client, name: str, path: str = FIELD) -> None:
    eventually(lambda: state(client, path) == name)


def ask(client: Client, path: str = FIELD) -> Any:
    """Ask for an index of a field, and return the field's schema."""
    answer = client.patch(path, ASK)
    assert answer.status == 200, answer
    return answer.data["schema"]


def assert_indexed(dsn: str, *columns: str) -> None:
    """The columns have an index each, and nothing is left to do."""
    assert [name for (name,) in run_sql(dsn, INDEXED)] == list(columns)
    assert run_sql(dsn, INVALID) == [(0,)]
    assert run_sql(dsn, REQUESTED) == []
    assert run_sql(dsn, JOBS) == []


# Fields of it that become unique

MAKE_UNIQUE = {"schema": {"is_unique": True}}
NOT_UNIQUE = {"state": "failed", "progress": 0.0, "code": "RECORD_NOT_UNIQUE"}
CONSTRAINTS_LEFT = """
    SELECT DISTINCT args #>> '{payload,kind}'
    FROM procrastinate_jobs
    WHERE task_name = 'build' AND args #>> '{payload,kind}' IN ('unique', 'foreign_key')
"""
CONSTRAINED = """
    SELECT attname::text
    FROM pg_constraint
    JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
    WHERE conrelid = to_regclass('things') AND contype = 'u'
    ORDER BY 1
"""
UNIQUE_INDEXES = """
    SELECT count(*) FROM pg_index
    WHERE indrelid = to_regclass('things') AND indisunique AND NOT indisprimary
"""


def make_unique(client: Client, path: str = FIELD) -> Any:
    answer = client.patch(path, MAKE_UNIQUE)
    assert answer.status == 200, answer
    return answer.data["schema"]


def assert_unique(dsn: str, *columns: str) -> None:
    """Each column has one constraint, and nothing is left to do."""
    assert [name for (name,) in run_sql(dsn, CONSTRAINED)] == list(columns)
    assert run_sql(dsn, UNIQUE_INDEXES) == [(len(columns),)]
    assert run_sql(dsn, CONSTRAINTS_LEFT) == []
    assert run_sql(dsn, JOBS) == []
