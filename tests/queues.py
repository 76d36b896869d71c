"""A database with a queue, for tests of what runs in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cms.config import Config
from cms.database.connections import Database
from cms.jobs.job_worker import drain
from cms.jobs.task import Task, defer
from tests.databases import drop_database, run_sql


@dataclass(frozen=True)
class QueueDatabase:
    """One database, for all tests of a module: each begins with an empty queue."""

    config: Config
    database: Database
    dsn: str

    def put(self, task: str, payload: Mapping[str, object] | None = None) -> None:
        with self.database.transaction() as transaction:
            defer(transaction.execute, task, payload or {})

    def drain(self, *tasks: Task, **settings: object) -> None:
        """Run what is due, as a worker with these settings would."""
        drain(replace(self.config, **settings), self.database, tasks)  # type: ignore[arg-type]

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        return run_sql(self.dsn, sql)

    def jobs(self) -> list[tuple[Any, ...]]:
        """Return task, status and attempts of what is in the queue."""
        return self.execute(
            "SELECT task_name, status::text, attempts FROM procrastinate_jobs ORDER BY id"
        )

    def make_due(self) -> None:
        """Let no job wait any longer for its next attempt."""
        self.execute("UPDATE procrastinate_jobs SET scheduled_at = NULL")

    def empty(self) -> None:
        self.execute("DELETE FROM procrastinate_jobs; DELETE FROM procrastinate_workers")


@contextmanager
def queue_database(
    config: Config, make_database: Callable[..., str], template: str
) -> Iterator[QueueDatabase]:
    dsn = make_database(template)
    ours = replace(config, database_url=dsn, database_pool_size=3)
    database = Database(ours)
    try:
        yield QueueDatabase(ours, database, dsn)
    finally:
        database.close()
        drop_database(dsn)
