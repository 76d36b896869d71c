"""The wiring of background work: every task on one screen."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from cms.config import Config
from cms.database.connections import Database
from cms.database.maintenance import run_maintenance
from cms.flows.queued_runs import MAX_ATTEMPTS, RunWorker, delete_old_runs, requeue_lost_runs
from cms.flows.run import Services
from cms.flows.schedules import run_due_schedules
from cms.jobs.housekeeping import delete_finished
from cms.jobs.job_worker import Ticker
from cms.jobs.task import Job, Task
from cms.mail.send import send
from cms.structure.index_builds import INDEX_BUILD_TASK, INDEX_BUILDS, run_index_build_job
from cms.structure.index_requests import FORMER_BUILD_TASKS, run_former_build_job


def own_tasks(services: Services) -> tuple[Task, ...]:
    """Return the tasks of the service itself; a job names its task."""
    config = services.config
    database = services.store.database

    def mail(job: Job) -> None:
        send(job, config, database)

    run_worker = RunWorker(services)

    def maintain(_job: Job) -> None:
        run_maintenance(
            config.database_url or "",
            retention=config.activity_retention,
            access_life=config.access_token_ttl,
        )
        delete_finished(database)
        delete_old_runs(database, config.flows_run_retention)

    return (
        # The pauses add up to eight hours: a mail server may be down for a night.
        Task("mail", mail, attempts=15),
        Task(
            "flow",
            run_worker.run,
            attempts=MAX_ATTEMPTS,
            wait=timedelta(seconds=10),
            max_wait=timedelta(hours=1),
            max_concurrent=config.flows_concurrency,
            poll=timedelta(seconds=0.25),
        ),
        Task(
            INDEX_BUILD_TASK,
            partial(run_index_build_job, database),
            attempts=10,
            max_concurrent=INDEX_BUILDS,
        ),
        # For jobs of the version before; indexes of whole words are not made any more.
        *(Task(name, partial(run_former_build_job, database)) for name in FORMER_BUILD_TASKS),
        Task("word_index_build", lambda _job: None),
        Task("maintain", maintain, attempts=5, wait=timedelta(minutes=5), cron="17 3 * * *"),
    )


def tickers_of(config: Config, database: Database) -> tuple[Ticker, ...]:
    """Return the functions that a worker calls again and again beside its jobs."""
    return (
        partial(run_due_schedules, database, config.flows_time_zone),
        partial(requeue_lost_runs, database),
    )
