"""`cms worker`: background jobs in a process of their own."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from cms.cli.auto_restart import watched_database
from cms.cli.session import report_ready, require_database
from cms.config import Config
from cms.database.connections import Database
from cms.jobs.job_worker import run_until_stopped
from cms.logs import start_logging
from cms.structure.index_builds import INDEX_BUILDS
from cms.tasks import tasks_of, tickers_of
from cms.tracing import start_tracing, stop_tracing


def run_worker(config: Config, *, parent_pipe: int | None = None) -> None:
    """Run background jobs until SIGTERM or SIGINT.

    `cms serve` holds the other end of `parent_pipe`: the worker also stops when that closes.
    """
    require_database(config)
    start_logging(config)
    with watched_database(config) as dsn:
        # Each job runs in a thread and may need a connection; others return stalled jobs and
        # find what is due.
        max_jobs = config.worker_concurrency + config.flows_concurrency + 2 * INDEX_BUILDS
        worker_config = replace(config, database_url=dsn, database_pool_size=max_jobs + 2)
        database = Database(worker_config)
        database.metrics.open()
        start_tracing(os.environ)
        has_finished = run_until_stopped(
            worker_config,
            database,
            tasks_of(worker_config, database),
            tickers=tickers_of(worker_config, database),
            parent_pipe=parent_pipe,
            on_start=partial(_announce, parent_pipe),
        )
        if has_finished:
            database.close()
    stop_tracing()
    if not has_finished:
        # Python would wait for the threads of jobs that were returned to the queue.
        os._exit(0)


def _announce(parent_pipe: int | None) -> None:
    # Beside the web server the message of `cms serve` is enough.
    if parent_pipe is None:
        report_ready("The worker waits for jobs")
