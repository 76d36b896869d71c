"""`cms worker`: background jobs in a process of their own."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from cms.cli.auto_restart import watched_database
from cms.cli.session import report_ready, require_database
from cms.config import Config
from cms.database.connections import Database
from cms.extensions import OWN, Extensions
from cms.flows.filter_flows import FlowPayloadFilter
from cms.flows.run import Services
from cms.jobs.job_worker import run_until_stopped
from cms.jobs.task import Task
from cms.logs import start_logging
from cms.store.store import Store
from cms.structure.index_builds import INDEX_BUILDS
from cms.tasks import tickers_of
from cms.tracing import start_tracing, stop_tracing


def run_worker(
    config: Config, extensions: Extensions = OWN, *, parent_pipe: int | None = None
) -> None:
    """Run background jobs until SIGTERM or SIGINT.

    `cms serve` holds the other end of `parent_pipe`: the worker also stops when that closes.
    """
    require_database(config)
    start_logging(config)
    with watched_database(config) as dsn:
        # Each job runs in a thread and may need a connection; others return stalled jobs and
        # find what is due.
        max_jobs = config.worker_concurrency + config.flows_concurrency + INDEX_BUILDS
        worker_config = replace(config, database_url=dsn, database_pool_size=max_jobs + 2)
        database = Database(worker_config)
        database.metrics.open()
        start_tracing(os.environ)
        has_finished = run_until_stopped(
            worker_config,
            database,
            tasks_of(worker_config, database, extensions),
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


def tasks_of(config: Config, database: Database, extensions: Extensions = OWN) -> list[Task]:
    """Return the tasks of a worker."""
    # A store of the worker's own: runs of flows read and write items as requests do.
    store = Store(config, database, hooks=extensions.store_hooks())
    services = Services(store, config, extensions.operations)
    store.payload_filter = FlowPayloadFilter(services)
    tasks: list[Task] = []
    for tasks_for in extensions.tasks:
        tasks += tasks_for(services)
    return tasks


def _announce(parent_pipe: int | None) -> None:
    # Beside the web server the message of `cms serve` is enough.
    if parent_pipe is None:
        report_ready("The worker waits for jobs")
