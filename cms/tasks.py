"""The wiring of background work: every task on one screen."""

from __future__ import annotations

from datetime import timedelta

from cms.config import Config
from cms.jobs.tasks import Job, Task
from cms.jobs.upkeep import delete_finished
from cms.mail.send import send
from cms.store.database import Database
from cms.store.upkeep import keep_up


def tasks_of(config: Config, database: Database) -> tuple[Task, ...]:
    """Return what a worker can do; the name of a task is what its jobs are put in the queue under."""

    def mail(job: Job) -> None:
        send(job, config, database)

    def maintain(_job: Job) -> None:
        keep_up(config.database_url or "", retention=config.activity_retention, access_life=config.access_token_ttl)
        delete_finished(database)

    return (
        Task("mail", mail, attempts=15),
        Task("maintain", maintain, attempts=5, wait=timedelta(minutes=5), cron="17 3 * * *"),
    )
