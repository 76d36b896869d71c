"""The worker: takes jobs from the queue and runs them, some at a time, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from procrastinate import App
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.worker import Worker as LibraryWorker

from cms.config import Config
from cms.database.connections import Database
from cms.database.error_mapping import Stale, mapped_errors
from cms.database.server_refusals import reason_of
from cms.database.session_setup import has_session
from cms.errors import Refused
from cms.jobs.housekeeping import (
    HEARTBEAT_SECONDS,
    WORKER_TIMEOUT_SECONDS,
    leave_to_others,
    requeue,
    requeue_stalled,
)
from cms.jobs.queue import queue_of
from cms.jobs.task import Task

log = logging.getLogger(__name__)

GRACE_SECONDS = 8.0
"""The time that running jobs get to end in: containers are killed 10 seconds after a SIGTERM."""
POLL_SECONDS = 5.0
POLL_SECONDS_WITHOUT_NOTIFY = 1.0
"""Behind a pooler no notification tells of a new job, so the worker asks more often."""
STALLED_CHECK_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0


Ticker = Callable[[], float]
"""Does the due work, and returns how many seconds to wait until it is called again."""


def run_until_stopped(
    config: Config,
    database: Database,
    tasks: Iterable[Task],
    *,
    tickers: Iterable[Ticker] = (),
    parent_pipe: int | None = None,
    on_start: Callable[[], None],
) -> bool:
    """Run jobs until SIGTERM or SIGINT, or until `parent_pipe` is closed.

    `on_start` is called once signals are handled: from then on a stop is a clean one. Tickers are
    called meanwhile, each as often as it says. Returns whether all jobs that had begun
    have ended. If not, they are back in the queue while their threads still run: the caller must
    end the process with `os._exit`.
    """
    loop = asyncio.new_event_loop()
    worker = Worker(config, database, tasks, tickers)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, worker.stop)
    # `nohup` sets another handler, so that a process outlives its terminal. Then it stays.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        loop.add_signal_handler(signal.SIGHUP, worker.stop)
    if parent_pipe is not None:
        # The parent holds the other end: when it dies, however it dies, the pipe becomes readable.
        loop.add_reader(parent_pipe, _until_closed(loop, parent_pipe, worker))
    on_start()
    finished = loop.run_until_complete(worker.run())
    if finished:
        loop.close()
    return finished


def drain(config: Config, database: Database, tasks: Iterable[Task]) -> None:
    """Run the jobs that are due, once, and return when they have ended."""
    asyncio.run(Worker(config, database, tasks).run_due())


class Fetcher(LibraryWorker):
    """Fetches jobs and runs them, and leaves to others a job whose end cannot be written."""

    def __init__(self, queue: App, database: Database, **options: Any) -> None:
        super().__init__(queue, **options)
        self._database = database

    async def _persist_job_status(self, job: Job, *arguments: Any, **named_arguments: Any) -> None:
        try:
            await super()._persist_job_status(job, *arguments, **named_arguments)
        except ConnectorException as error:
            # Otherwise it would count as running as long as this worker lives.
            log.warning("the end of job %d cannot be written: %s", job.id, _reason(error))
            while not await self._is_left_to_others(job):
                await _wait_up_to(HEARTBEAT_SECONDS, self._stop_event)

    async def _is_left_to_others(self, job: Job) -> bool:
        """Leave a job to others; a worker that ends leaves all of its jobs."""
        try:
            await asyncio.to_thread(leave_to_others, self._database, job.id, self.worker_id)
        except (Refused, Stale) as error:
            log.warning("job %d cannot be left to another worker: %s", job.id, error)
        except Exception:
            log.exception("job %d cannot be left to another worker", job.id)
        else:
            return True
        return self._stop_event.is_set() or not self.wait


class _TaskGroup(NamedTuple):
    """Names of tasks, how many of their jobs a worker runs at a time, how often it looks for any.

    Without `poll_seconds` it is notified of new ones.
    """

    tasks: tuple[str, ...]
    max_jobs: int
    poll_seconds: float | None = None


def groups_of(tasks: Iterable[Task], max_jobs: int) -> list[_TaskGroup]:
    """Return a group for each task that limits its jobs itself, and one group for all others."""
    # A task with its own number gets a fetcher of its own, so that long jobs such as flows leave
    # room for mails.
    others: list[str] = []
    groups: list[_TaskGroup] = []
    for task in tasks:
        if task.max_concurrent is None:
            others.append(task.name)
        else:
            poll_seconds = None
            if task.poll:
                poll_seconds = task.poll.total_seconds()
            groups.append(_TaskGroup((task.name,), task.max_concurrent, poll_seconds))
    if others:
        groups.insert(0, _TaskGroup(tuple(others), max_jobs))
    return groups


class Worker:
    """Runs the jobs of one process with procrastinate's workers: one for each group of tasks.

    They are remade after a lost connection.
    """

    def __init__(
        self,
        config: Config,
        database: Database,
        tasks: Iterable[Task],
        tickers: Iterable[Ticker] = (),
    ) -> None:
        self._config = config
        self._tasks = tuple(tasks)
        self._tickers = tuple(tickers)
        self._groups = groups_of(self._tasks, config.worker_concurrency)
        # A pooler that allows no prepared statements does not pass on notifications either.
        self._is_listening = has_session(config)
        self._poll_seconds = POLL_SECONDS
        if not self._is_listening:
            self._poll_seconds = POLL_SECONDS_WITHOUT_NOTIFY
        self._database = database
        self._fetchers: tuple[Fetcher, ...] = ()
        self._stop_requested = asyncio.Event()
        self._stop_now = asyncio.Event()

    def stop(self) -> None:
        """Ask the worker to stop: running jobs get `GRACE_SECONDS`, or none at a second call."""
        if self._stop_requested.is_set():
            self._stop_now.set()
            return
        self._stop_requested.set()
        self._stop_fetchers()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._stop_now.set)

    async def run(self) -> bool:
        """Run jobs until `stop`; return whether all jobs that had begun have ended."""
        # More threads than jobs, so that the maintenance of the queue never waits for a job.
        max_jobs = sum(group.max_jobs for group in self._groups)
        threads = max_jobs + 2 + len(self._tickers)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
        maintenance = [asyncio.create_task(self._requeue_stalled())]
        for ticker in self._tickers:
            maintenance.append(asyncio.create_task(_call_again(ticker)))
        jobs = asyncio.create_task(self._run_jobs())
        stop_now = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait({jobs, stop_now}, return_when=asyncio.FIRST_COMPLETED)
        for task in maintenance:
            await _cancel(task)
        # A thread cannot be ended from outside: jobs that still run then are given to other
        # workers.
        if not jobs.done():
            await self._requeue_running()
            return False
        await _cancel(stop_now)
        await jobs
        return True

    async def run_due(self) -> None:
        """Run the jobs that are due and return."""
        await self._open_and_fetch(wait=False)

    async def _run_jobs(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stop_requested.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self._open_and_fetch(wait=True)
            except (ConnectorException, Refused, Stale) as error:
                log.warning(
                    "the queue cannot be reached; the worker tries again in %d s: %s",
                    pause,
                    _reason(error),
                )
            # A connection that lasted was a good one: the next loss starts with short pauses again.
            if asyncio.get_running_loop().time() - began > MAX_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await _wait_up_to(pause, self._stop_requested)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _open_and_fetch(self, *, wait: bool) -> None:
        # Before the fetchers start: they delete silent workers, and lock rows that this call would
        # then pass over.
        await asyncio.to_thread(requeue_stalled, self._database)
        with mapped_errors():
            async with queue_of(self._config, self._tasks).open_async() as queue:
                if self._stop_requested.is_set():
                    return
                make_fetcher = partial(self._make_fetcher, queue, wait=wait)
                self._fetchers = tuple(map(make_fetcher, self._groups))
                await self._fetch(wait=wait)

    async def _fetch(self, *, wait: bool) -> None:
        """Let all fetchers run until they have no more to do, or one of them has to stop."""
        running = [
            asyncio.create_task(fetcher.run())  # type: ignore[no-untyped-call]
            for fetcher in self._fetchers
        ]
        if wait:
            # A fetcher that ends has lost its connection, or was stopped: then all of them begin
            # again.
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            self._stop_fetchers()
        await asyncio.wait(running)
        for task in running:
            # Raises what has ended the fetcher, such as a lost connection.
            task.result()

    def _stop_fetchers(self) -> None:
        for fetcher in self._fetchers:
            fetcher.stop()  # type: ignore[no-untyped-call]

    def _make_fetcher(self, queue: App, group: _TaskGroup, *, wait: bool) -> Fetcher:
        return Fetcher(
            queue,
            self._database,
            # Each task has a queue of its name: a job waits for a worker whose version has its
            # task.
            queues=list(group.tasks),
            concurrency=group.max_jobs,
            wait=wait,
            fetch_job_polling_interval=group.poll_seconds or self._poll_seconds,
            listen_notify=self._is_listening and wait and group.poll_seconds is None,
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
            except (Refused, Stale) as error:
                # Not a warning: the fetcher meets the same problem, and `_run_jobs` logs that.
                log.debug("stalled jobs were not looked for: %s", error)
            except Exception:
                log.exception("stalled jobs cannot be looked for")

    async def _requeue_running(self) -> None:
        """Put running jobs back in the queue: their threads end only with the process."""
        for fetcher in self._fetchers:
            if fetcher.worker_id is None:
                continue
            try:
                await asyncio.to_thread(requeue, self._database, fetcher.worker_id)
            except (Refused, Stale) as error:
                log.warning("jobs that run are left to the next worker: %s", error)


async def _call_again(ticker: Ticker) -> None:
    """Call a ticker again and again."""
    while True:
        try:
            pause = await asyncio.to_thread(ticker)
        except (Refused, Stale) as error:
            log.debug("what is due was not looked for: %s", error)
            pause = FIRST_PAUSE_SECONDS
        except Exception:
            log.exception("what is due cannot be looked for")
            pause = MAX_PAUSE_SECONDS
        await asyncio.sleep(pause)


async def _wait_up_to(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, but not longer than some seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _reason(error: BaseException) -> str:
    return reason_of(error.__cause__ or error)


def _until_closed(
    loop: asyncio.AbstractEventLoop, parent_pipe: int, worker: Worker
) -> Callable[[], None]:
    def closed() -> None:
        loop.remove_reader(parent_pipe)
        worker.stop()

    return closed
