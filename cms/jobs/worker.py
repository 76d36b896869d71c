"""The worker: takes jobs from the queue and runs them, some at a time, until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from procrastinate import App
from procrastinate.exceptions import ConnectorException
from procrastinate.worker import Worker as Fetcher

from cms.config import Config
from cms.database.connections import Database
from cms.database.error_mapping import Stale, mapped_errors
from cms.errors import Refused
from cms.jobs.housekeeping import (
    HEARTBEAT_SECONDS,
    WORKER_TIMEOUT_SECONDS,
    requeue,
    requeue_stalled,
)
from cms.jobs.queue import queue_of
from cms.jobs.tasks import Task

log = logging.getLogger(__name__)

GRACE_SECONDS = 8.0
"""For jobs that run when the end is asked for: containers are killed 10 seconds after."""
POLL_SECONDS = 5.0
POLL_SECONDS_WITHOUT_NOTIFY = 1.0
"""Behind a pooler nobody tells of a new job."""
STALLED_CHECK_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0


def run_until_stopped(
    config: Config, database: Database, tasks: Iterable[Task], *, line: int | None = None
) -> bool:
    """Run jobs until SIGTERM or SIGINT, or until `line`, a pipe, is closed; tell whether all that had begun was done.

    When not, the jobs are back in the queue but their threads still run: the process is to be ended with `os._exit`.
    """
    loop = asyncio.new_event_loop()
    worker = Worker(config, database, tasks)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, worker.stop)
    if (
        signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    ):  # else `nohup` wants it to outlive its terminal
        loop.add_signal_handler(signal.SIGHUP, worker.stop)
    if line is not None:
        loop.add_reader(line, _until_closed(loop, line, worker))
    finished = loop.run_until_complete(worker.run())
    if finished:
        loop.close()
    return finished


def drain(config: Config, database: Database, tasks: Iterable[Task]) -> None:
    """Run the jobs that are due, once, and return when they have ended."""
    asyncio.run(Worker(config, database, tasks).run_due())


class Worker:
    """What runs jobs in one process: the library's fetcher, made anew when the database was away."""

    def __init__(self, config: Config, database: Database, tasks: Iterable[Task]) -> None:
        self._config, self._tasks = config, tuple(tasks)
        self._max_jobs = config.worker_concurrency
        self._is_listening = config.database_prepare
        self._database = database
        self._fetcher: Fetcher | None = None
        self._stop_requested = asyncio.Event()
        self._stop_at_once = asyncio.Event()

    def stop(self) -> None:
        """Ask for the end: jobs that run have some seconds; asked once more, they have none."""
        if self._stop_requested.is_set():
            self._stop_at_once.set()
            return
        self._stop_requested.set()
        if self._fetcher is not None:
            self._fetcher.stop()  # type: ignore[no-untyped-call]
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._stop_at_once.set)

    async def run(self) -> bool:
        """Work until `stop`; tell whether all that had begun was done."""
        # Two more threads than jobs, so that the queue's own upkeep never waits for a job.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(self._max_jobs + 2))
        upkeep = asyncio.create_task(self._requeue_stalled())
        working, hurried = (
            asyncio.create_task(self._run_jobs()),
            asyncio.create_task(self._stop_at_once.wait()),
        )
        await asyncio.wait({working, hurried}, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(upkeep)
        if not working.done():
            await self._requeue_running()
            return False
        await _cancel(hurried)
        await working
        return True

    async def run_due(self) -> None:
        await self._open_and_fetch(wait=False)

    async def _run_jobs(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stop_requested.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self._open_and_fetch(wait=True)
            except (ConnectorException, Refused, Stale) as fault:
                log.warning(
                    "the queue cannot be reached; the worker tries again in %d s: %s",
                    pause,
                    _reason(fault),
                )
            if asyncio.get_running_loop().time() - began > MAX_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await _wait_up_to(pause, self._stop_requested)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _open_and_fetch(self, *, wait: bool) -> None:
        # Before the fetcher forgets silent workers: the rows that it locks meanwhile would be passed over.
        await asyncio.to_thread(requeue_stalled, self._database)
        with mapped_errors():
            async with queue_of(self._config, self._tasks).open_async() as queue:
                if not self._stop_requested.is_set():
                    self._fetcher = self._make_fetcher(queue, wait=wait)
                    await self._fetcher.run()  # type: ignore[no-untyped-call]

    def _make_fetcher(self, queue: App, *, wait: bool) -> Fetcher:
        return Fetcher(
            queue,
            # Each task has a queue of its name, so that a job waits for a worker of the version that knows its task.
            queues=[task.name for task in self._tasks],
            concurrency=self._max_jobs,
            wait=wait,
            fetch_job_polling_interval=POLL_SECONDS
            if self._is_listening
            else POLL_SECONDS_WITHOUT_NOTIFY,
            listen_notify=self._is_listening and wait,
            delete_jobs="successful",
            install_signal_handlers=False,
            update_heartbeat_interval=HEARTBEAT_SECONDS,
            stalled_worker_timeout=WORKER_TIMEOUT_SECONDS,
        )

    async def _requeue_stalled(self) -> None:
        while True:
            await asyncio.sleep(STALLED_CHECK_SECONDS)
            try:
                await asyncio.to_thread(requeue_stalled, self._database)
            except (Refused, Stale) as fault:
                log.debug("stalled jobs were not looked for: %s", fault)  # the fetcher tells of it
            except Exception:
                log.exception("stalled jobs cannot be looked for")

    async def _requeue_running(self) -> None:
        """Give back what runs: its threads cannot be ended, but end with the process."""
        if self._fetcher is None or self._fetcher.worker_id is None:
            return
        try:
            await asyncio.to_thread(requeue, self._database, self._fetcher.worker_id)
        except (Refused, Stale) as fault:
            log.warning("jobs that run are left to the next worker: %s", fault)


async def _wait_up_to(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, but not longer."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _reason(fault: BaseException) -> str:
    return str(fault.__cause__ or fault)


def _until_closed(loop: asyncio.AbstractEventLoop, line: int, worker: Worker) -> Callable[[], None]:
    def closed() -> None:
        loop.remove_reader(line)
        worker.stop()

    return closed
