"""Builds of indexes in the background, for tests: a worker, and builds that fail."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg

from cms.config import Config
from cms.database.connections import Database
from cms.jobs.job_worker import drain
from cms.jobs.task import Task
from cms.structure.index_builds import INDEX_BUILD_TASK, run_index_build_job
from tests.client import Client

BUILDS_FAIL = """
    CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_query() LIKE 'CREATE INDEX CONCURRENTLY%' THEN
            RAISE 'refused' USING ERRCODE = 'program_limit_exceeded';
        END IF;
    END $$;
    CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION refuse()
"""
BUILDS_SUCCEED = "DROP EVENT TRIGGER refuse; DROP FUNCTION refuse"

JOBS = "SELECT status::text FROM procrastinate_jobs WHERE task_name = 'index_build' ORDER BY id"
INVALID = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
REQUESTS = "SELECT collection, field FROM system_index_requests ORDER BY 1, 2"
WORKER = "INSERT INTO procrastinate_workers DEFAULT VALUES"


def run(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def is_indexed(client: Client, collection: str, *fields: str) -> bool:
    """Tell whether the fields of a collection have an index each."""
    columns = {
        field["field"]: field["schema"] for field in client.get(f"/fields/{collection}").data
    }
    return all(columns[name]["is_indexed"] for name in fields)


def work(config: Config, database: Database) -> None:
    """Do the jobs that are due, in place of a worker."""
    drain(config, database, [Task(INDEX_BUILD_TASK, partial(run_index_build_job, database))])
