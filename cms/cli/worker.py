"""`cms worker`: background jobs, in a process of their own."""

from __future__ import annotations

import os
from dataclasses import replace

from cms.cli.session import require_database, say, watched_database
from cms.config import Config
from cms.database.connections import Database
from cms.http.logs import start_logging
from cms.jobs.worker import run_until_stopped
from cms.tasks import tasks_of


def run_worker(config: Config, *, line: int | None = None) -> None:
    """Run background jobs until SIGTERM, SIGINT, or the end of `line`, a pipe whose other end `cms
    serve` holds.
    """
    require_database(config)
    with watched_database(config) as dsn:
        # Its jobs run in threads, each of which may need a connection; one more gives back stalled
        # jobs.
        ours = replace(config, database_url=dsn, database_pool_size=config.worker_concurrency + 1)
        start_logging(ours)
        database = Database(ours)
        if line is None:
            say("The worker waits for jobs (Ctrl-C stops it).")
        finished = run_until_stopped(ours, database, tasks_of(ours, database), line=line)
        if finished:
            database.close()
    if not finished:
        os._exit(0)  # the threads of jobs that were given back would be waited for
