"""The queue of procrastinate with the service's tasks: growing pauses, payloads out of its log."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.connector import Notify
from procrastinate.jobs import Job as QueuedJob
from procrastinate.retry import BaseRetryStrategy, RetryDecision

from cms import jsontext
from cms.config import Config
from cms.database.session_setup import pool_arguments
from cms.database.statements import statement
from cms.jobs.task import Job, JobError, Task
from cms.tracing import job_span

log = logging.getLogger(__name__)

# One connection listens for notifications, two are for fetching and finishing jobs.
_CONNECTIONS = 3


def queue_of(config: Config, tasks: Iterable[Task]) -> App:
    """Return the queue in the settings' database with these tasks; it connects when opened."""
    connector = QueueConnector(
        **pool_arguments(config), json_loads=_load_arguments, min_size=1, max_size=_CONNECTIONS
    )
    app = App(connector=connector)
    for task in tasks:
        _register(app, task)
    # addFilter ignores a filter that is there already, so that a second queue adds none.
    logging.getLogger("procrastinate.worker").addFilter(_is_unreported)
    return app


class QueueConnector(PsycopgConnector):
    """Listens to the channels of its schema: workers of other installations are not woken."""

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        row = cast(dict[str, Any], await self.execute_query_one_async(statement("find_schema")))
        schema = row["current_schema"]
        own = [channel_of_schema(channel, schema) for channel in channels]
        await super().listen_notify(on_notification, own)


def channel_of_schema(channel: str, schema: str) -> str:
    """Return the name of a channel as sql/queue/notifications_of_one_schema.sql makes it."""
    digest = hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()
    return f"{channel}@{digest[:8]}"


@dataclass(frozen=True, slots=True)
class SecretPayload:
    """A payload that its text leaves out.

    It may hold a secret, and procrastinate writes the arguments of jobs to its log.
    """

    payload: Any = field(repr=False)


def _load_arguments(arguments: str | bytes) -> object:
    values = cast(dict[str, object], jsontext.loads_stored(arguments))
    if "payload" in values:
        values["payload"] = SecretPayload(values["payload"])
    return values


def _register(app: App, task: Task) -> None:
    def run(
        context: JobContext, payload: SecretPayload | None = None, timestamp: int | None = None
    ) -> None:
        assert context.job.id is not None
        values = {}
        if payload:
            values = payload.payload
        # The library counts the attempts before this one.
        _run(task, Job(context.job.id, values, context.job.attempts + 1))

    # A queue of the same name, so that workers can fetch just the tasks that they know.
    registered = app.task(
        name=task.name, queue=task.name, pass_context=True, retry=_RetryStrategy(task)
    )(run)
    if task.cron:
        # The library passes `timestamp` by name, which its types do not say.
        app.periodic(cron=task.cron)(registered)  # type: ignore[arg-type]


def _run(task: Task, job: Job) -> None:
    began = time.perf_counter()
    try:
        with job_span(task.name, number=job.id, attempt=job.attempt):
            task.run(job)
    except Exception as error:
        _log_failure(task, job, error)
        raise
    milliseconds = round((time.perf_counter() - began) * 1000, 1)
    log.info("job %d of %s is done", job.id, task.name, extra={"ms": milliseconds})


def _log_failure(task: Task, job: Job, error: Exception) -> None:
    """Log a failed attempt, with a traceback unless it is a `JobError`."""
    pause = task.pause(error, job.attempt)
    if pause is None:
        level = logging.ERROR
        outcome = "it is given up"
    else:
        level = logging.WARNING
        outcome = f"it runs again in {pause}"
    is_expected = isinstance(error, JobError)
    reason = repr(error)
    if is_expected:
        reason = str(error)
    text = "job %d of %s failed at attempt %d, %s: %s"
    values = (job.id, task.name, job.attempt, outcome, reason)
    log.log(level, text, *values, exc_info=not is_expected)


class _RetryStrategy(BaseRetryStrategy):
    """Tells the library what `Task.pause` has decided."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def get_retry_decision(
        self, *, exception: BaseException, job: QueuedJob
    ) -> RetryDecision | None:
        pause = self._task.pause(exception, job.attempts + 1)
        if pause is None:
            return None
        return RetryDecision(retry_in={"seconds": round(pause.total_seconds())})


def _is_unreported(record: logging.LogRecord) -> bool:
    """Leave the failures that `_log_failure` has logged out of the library's log."""
    return getattr(record, "action", None) != "job_error"
