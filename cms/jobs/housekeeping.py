"""Maintenance of the queue: stalled jobs run again, finished ones are deleted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from cms.database.connections import Database, Transaction
from cms.database.statements import statement

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
WORKER_TIMEOUT_SECONDS = 30.0
"""A worker without a heartbeat for so long counts as dead."""
MAX_ATTEMPTS = 20
"""A job that lost its worker so often is given up: it may be what kills them."""
RETENTION_DAYS = 7
MAX_DELETED = 10_000
"""Jobs that one statement deletes."""
FETCHERS = 3
"""The rows of one worker in `procrastinate_workers`: it has a fetcher for each group of tasks."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """Counts of the queue: jobs that could run now, jobs that failed for good, live workers."""

    due: int
    failed: int
    workers: int


class QueueDepth(NamedTuple):
    """The jobs that could run now, and the seconds since the first of them could."""

    jobs: int
    oldest_seconds: float


def requeue_stalled(database: Database) -> None:
    """Put jobs whose worker is gone back in the queue."""
    with database.transaction() as transaction:
        # Every worker looks for stalled jobs, but only one at a time. An advisory lock that is
        # tried and not waited for: the worker that gets it does the work for all.
        if not transaction.execute(statement("lock_stalled_jobs"))[0][0]:
            return
        rows = transaction.execute(
            statement("retry_stalled_jobs"), (str(WORKER_TIMEOUT_SECONDS), str(MAX_ATTEMPTS))
        )
    # Logged after the commit: until then another error could undo it.
    for job, task, runs_again, _ in rows:
        if runs_again:
            log.warning("job %d of %s lost its worker and runs again", job, task)
        else:
            log.error("job %d of %s lost its worker too often and is given up", job, task)


def requeue(database: Database, worker: int) -> None:
    """Put the jobs that a worker has not finished back in the queue."""
    with database.transaction() as transaction:
        rows = transaction.execute(statement("retry_jobs_of_worker"), (str(worker),))
    for job, task, _ in rows:
        log.warning("job %d of %s was not done in time and runs again on another worker", job, task)


def leave_to_others(database: Database, job: int | None, worker: int | None) -> None:
    """Let a job of a worker that lives count as stalled, unless it has ended."""
    with database.transaction() as transaction:
        transaction.execute(statement("leave_job"), (str(job), str(worker)))


def delete_finished(database: Database) -> None:
    """Delete the jobs that ended a week ago; the worker deletes jobs that succeed at once."""
    arguments = (str(RETENTION_DAYS), str(MAX_DELETED))
    deleted = MAX_DELETED
    # Triggers take most of a deletion: one statement for a hundred thousand would be cancelled.
    while deleted == MAX_DELETED:
        with database.transaction() as transaction:
            deleted = len(transaction.execute(statement("delete_finished_jobs"), arguments))


def queue_state(transaction: Transaction) -> QueueState:
    rows = transaction.execute(statement("count_jobs"), (WORKER_TIMEOUT_SECONDS, FETCHERS))
    return QueueState(*rows[0])


def queue_depth(database: Database) -> QueueDepth:
    return QueueDepth(*database.fetch(statement("find_queue_depth"))[0])
