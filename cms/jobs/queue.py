"""The service's tasks as the library of the queue takes them: with growing pauses, and payloads kept out of its log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.jobs import Job as QueuedJob
from procrastinate.retry import BaseRetryStrategy, RetryDecision

from cms import jsontext
from cms.config import Config
from cms.database.connections import pool_arguments
from cms.jobs.tasks import Job, JobError, Task

log = logging.getLogger(__name__)

_CONNECTIONS = 3


def queue_of(config: Config, tasks: Iterable[Task]) -> App:
    """Return the queue of the settings' database with these tasks; it connects when it is opened."""
    connector = PsycopgConnector(
        **pool_arguments(config), json_loads=_load_arguments, min_size=1, max_size=_CONNECTIONS
    )
    app = App(connector=connector)
    for task in tasks:
        _register(app, task)
    logging.getLogger("procrastinate.worker").addFilter(_is_unreported)
    return app


@dataclass(frozen=True, slots=True)
class SecretPayload:
    """A payload that does not show in a text: it may hold a secret, and the library writes arguments to its log."""

    payload: Any = field(repr=False)


def _load_arguments(arguments: str | bytes) -> object:
    return {
        name: SecretPayload(value) if name == "payload" else value
        for name, value in jsontext.loads_stored(arguments).items()  # type: ignore[attr-defined]
    }


def _register(app: App, task: Task) -> None:
    def run(
        context: JobContext, payload: SecretPayload | None = None, timestamp: int | None = None
    ) -> None:
        assert context.job.id is not None
        _run(
            task, Job(context.job.id, payload.payload if payload else {}, context.job.attempts + 1)
        )

    registered = app.task(
        name=task.name, queue=task.name, pass_context=True, retry=_RetryStrategy(task)
    )(run)
    if task.cron:
        app.periodic(cron=task.cron)(registered)  # type: ignore[arg-type]  # it passes the moment by name


def _run(task: Task, job: Job) -> None:
    began = time.perf_counter()
    try:
        task.run(job)
    except Exception as fault:
        _log_failure(task, job, fault)
        raise
    log.info(
        "job %d of %s is done",
        job.id,
        task.name,
        extra={"ms": round((time.perf_counter() - began) * 1000, 1)},
    )


def _log_failure(task: Task, job: Job, fault: Exception) -> None:
    """Log a failed attempt, with its trace when nobody has foreseen it."""
    pause = task.pause(fault, job.attempt)
    level = logging.ERROR if pause is None else logging.WARNING
    then = "it is given up" if pause is None else f"it runs again in {pause}"
    reason = str(fault) if isinstance(fault, JobError) else repr(fault)
    text = "job %d of %s failed at attempt %d, %s: %s"
    log.log(
        level,
        text,
        job.id,
        task.name,
        job.attempt,
        then,
        reason,
        exc_info=not isinstance(fault, JobError),
    )


class _RetryStrategy(BaseRetryStrategy):
    def __init__(self, task: Task) -> None:
        self._task = task

    def get_retry_decision(
        self, *, exception: BaseException, job: QueuedJob
    ) -> RetryDecision | None:
        pause = self._task.pause(exception, job.attempts + 1)
        return (
            None
            if pause is None
            else RetryDecision(retry_in={"seconds": round(pause.total_seconds())})
        )


def _is_unreported(record: logging.LogRecord) -> bool:
    """Leave out of the library's log what `_log_failure` has told already."""
    return getattr(record, "action", None) != "job_error"
