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
from cms.errors import Refused
from cms.jobs.queue import queue_of
from cms.jobs.tasks import Task
from cms.jobs.upkeep import HEARTBEAT_SECONDS, SILENT_SECONDS, give_back, give_back_stalled
from cms.store.border import Stale, border
from cms.store.database import Database

log = logging.getLogger(__name__)

GRACE_SECONDS = 8.0
"""For jobs that run when the end is asked for: containers are killed 10 seconds after."""
POLL_SECONDS = 5.0
POLL_SECONDS_UNTOLD = 1.0
"""Behind a pooler nobody tells of a new job."""
LOOK_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0


def work(config: Config, database: Database, tasks: Iterable[Task], *, line: int | None = None) -> bool:
    """Run jobs until SIGTERM or SIGINT, or until `line`, a pipe, is closed; tell whether all that had begun was done.

    When not, the jobs are back in the queue but their threads still run: the process is to be ended with `os._exit`.
    """
    loop = asyncio.new_event_loop()
    worker = Worker(config, database, tasks)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, worker.stop)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # else `nohup` wants it to outlive its terminal
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
        self._concurrency = config.worker_concurrency
        self._listens = config.database_prepare
        self._database = database
        self._fetcher: Fetcher | None = None
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()

    def stop(self) -> None:
        """Ask for the end: jobs that run have some seconds; asked once more, they have none."""
        if self._asked.is_set():
            self._hurried.set()
            return
        self._asked.set()
        if self._fetcher is not None:
            self._fetcher.stop()  # type: ignore[no-untyped-call]
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._hurried.set)

    async def run(self) -> bool:
        """Work until `stop`; tell whether all that had begun was done."""
        # Two more threads than jobs, so that the queue's own upkeep never waits for a job.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(self._concurrency + 2))
        upkeep = asyncio.create_task(self._look_after_stalled())
        working, hurried = asyncio.create_task(self._work()), asyncio.create_task(self._hurried.wait())
        await asyncio.wait({working, hurried}, return_when=asyncio.FIRST_COMPLETED)
        await _end(upkeep)
        if not working.done():
            await self._leave()
            return False
        await _end(hurried)
        await working
        return True

    async def run_due(self) -> None:
        await self._open_and_fetch(wait=False)

    async def _work(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._asked.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self._open_and_fetch(wait=True)
            except (ConnectorException, Refused, Stale) as fault:
                log.warning("the queue cannot be reached; the worker tries again in %d s: %s", pause, _reason(fault))
            if asyncio.get_running_loop().time() - began > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await _within(pause, self._asked)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _open_and_fetch(self, *, wait: bool) -> None:
        # Before the fetcher forgets silent workers: the rows that it locks meanwhile would be passed over.
        await asyncio.to_thread(give_back_stalled, self._database)
        with border():
            async with queue_of(self._config, self._tasks).open_async() as queue:
                if not self._asked.is_set():
                    self._fetcher = self._make_fetcher(queue, wait=wait)
                    await self._fetcher.run()  # type: ignore[no-untyped-call]

    def _make_fetcher(self, queue: App, *, wait: bool) -> Fetcher:
        return Fetcher(
            queue,
            # Each task has a queue of its name, so that a job waits for a worker of the version that knows its task.
            queues=[task.name for task in self._tasks],
            concurrency=self._concurrency,
            wait=wait,
            fetch_job_polling_interval=POLL_SECONDS if self._listens else POLL_SECONDS_UNTOLD,
            listen_notify=self._listens and wait,
            delete_jobs="successful",
            install_signal_handlers=False,
            update_heartbeat_interval=HEARTBEAT_SECONDS,
            stalled_worker_timeout=SILENT_SECONDS,
        )

    async def _look_after_stalled(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await asyncio.to_thread(give_back_stalled, self._database)
            except (Refused, Stale) as fault:
                log.debug("stalled jobs were not looked for: %s", fault)  # the fetcher tells of it
            except Exception:
                log.exception("stalled jobs cannot be looked for")

    async def _leave(self) -> None:
        """Give back what runs: its threads cannot be ended, but end with the process."""
        if self._fetcher is None or self._fetcher.worker_id is None:
            return
        try:
            await asyncio.to_thread(give_back, self._database, self._fetcher.worker_id)
        except (Refused, Stale) as fault:
            log.warning("jobs that run are left to the next worker: %s", fault)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, but not longer."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _reason(fault: BaseException) -> str:
    return str(fault.__cause__ or fault)


def _until_closed(loop: asyncio.AbstractEventLoop, line: int, worker: Worker) -> Callable[[], None]:
    def closed() -> None:
        loop.remove_reader(line)
        worker.stop()

    return closed
