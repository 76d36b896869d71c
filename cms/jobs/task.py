"""Background jobs: what a task is, and how a job for it gets into the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cms import jsontext
from cms.database.connections import Fetch
from cms.database.statements import statement


class JobError(Exception):
    """A job failed and is tried again; the text says why, without a secret."""


class PermanentError(JobError):
    """A job failed, and trying again would not help."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as its task gets it; `attempt` counts from 1."""

    id: int
    payload: Mapping[str, Any]
    attempt: int


@dataclass(frozen=True, slots=True)
class Task:
    """A kind of job.

    `run` works in a thread of its own. It may run more than once for a job whose worker was killed.
    Whatever it raises is logged, and the job is tried again until it was tried `attempts` times:
    after `wait`, then after twice that, and so on up to `max_wait`. At the times of `cron`, in UTC,
    one job with an empty payload is queued, however many machines run. `max_concurrent` is how many
    jobs of the task a worker runs at a time, beside those of other tasks; without it the task
    shares `WORKER_CONCURRENCY` with others. Workers are notified of new jobs, but look for those of
    a task with `poll` that often (sql/queue).
    """

    name: str
    run: Callable[[Job], None]
    attempts: int = 10
    wait: timedelta = timedelta(seconds=30)
    max_wait: timedelta = timedelta(hours=1)
    cron: str | None = None
    max_concurrent: int | None = None
    poll: timedelta | None = None

    def pause(self, error: BaseException, attempt: int) -> timedelta | None:
        """Return how long to wait after a failed attempt, or None when it was the last one."""
        if isinstance(error, PermanentError) or attempt >= self.attempts:
            return None
        # Bounded, because a timedelta overflows long before `attempts` does.
        doublings = min(attempt - 1, 30)
        return min(self.wait * (1 << doublings), self.max_wait)


def defer(fetch: Fetch, task: str, payload: Mapping[str, object]) -> None:
    """Put a job in the queue by `fetch` of a transaction; workers see it once that commits."""
    defer_all(fetch, task, [payload])


def defer_all(fetch: Fetch, task: str, payloads: Sequence[Mapping[str, object]]) -> None:
    """Put a job for each payload (values that `jsontext.dumps` takes) in the queue, all at once."""
    # By a statement of the caller's transaction: procrastinate has connections of its own.
    texts = [jsontext.dumps(payload).decode() for payload in payloads]
    fetch(statement("defer_jobs"), (task, texts))
