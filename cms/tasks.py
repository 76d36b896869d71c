"""The wiring of background work: every task on one screen."""

from __future__ import annotations

from datetime import timedelta

from cms.config import Config
from cms.database.connections import Database
from cms.database.maintenance import run_maintenance
from cms.jobs.housekeeping import delete_finished
from cms.jobs.task import Job, Task
from cms.mail.send import send


def tasks_of(config: Config, database: Database) -> tuple[Task, ...]:
    """Return the tasks of a worker; a job names its task."""

    def mail(job: Job) -> None:
        send(job, config, database)

    def maintain(_job: Job) -> None:
        run_maintenance(
            config.database_url or "",
            retention=config.activity_retention,
            access_life=config.access_token_ttl,
        )
        delete_finished(database)

    return (
        # The pauses add up to eight hours: a mail server may be down for a night.
        Task("mail", mail, attempts=15),
        Task("maintain", maintain, attempts=5, wait=timedelta(minutes=5), cron="17 3 * * *"),
    )
