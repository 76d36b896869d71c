"""How workers start; one that is still starting stops at once when asked to."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from queue import Empty
from types import FrameType
from typing import Any

from gunicorn.workers.base import Worker

from cms.processes.machine import available_processors, keep_on

STOP_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)


class StoppableWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """A worker that does not serve yet has nothing to finish."""

    arbiter: Any = None
    """The process that forked this worker, as it was then (see `remember_arbiter`)."""

    processor: int | None = None
    """The processor on which its threads are kept (see `choose_processor`)."""

    def init_process(self) -> None:
        """Serve in a session of its own.

        The kernel's autogroups divide the processors among sessions, of which each process of
        PostgreSQL is one. All workers in one of them would get the share of one statement, and some
        requests would wait twenty times as long as others.
        """
        os.setsid()
        if self.processor is not None:
            keep_on(self.processor)
        super().init_process()

    def init_signals(self) -> None:
        """Handle signals, also a request to stop that came since the fork.

        That signal went to the handler of the arbiter. Without this a server that is stopped while
        it starts would wait for the worker until it has to kill it.
        """
        super().init_signals()
        with suppress(Empty):
            while self.arbiter is not None:
                if self.arbiter.SIG_QUEUE.get_nowait() in STOP_SIGNALS:
                    sys.exit(0)

    def handle_exit(self, number: int, frame: FrameType | None) -> None:
        """Begin to stop; a worker that still loads the application stops at once."""
        super().handle_exit(number, frame)
        # gunicorn only notes the request, and looks at its note when the worker serves.
        if not self.booted:
            sys.exit(0)


def remember_arbiter(arbiter: Any, worker: StoppableWorker) -> None:
    """Tell a new worker which process forked it; gunicorn's `post_fork`."""
    worker.arbiter = arbiter


def choose_processor(arbiter: Any, worker: StoppableWorker) -> None:
    """Give a new worker a processor of its own, if there are as many workers as processors.

    gunicorn's `pre_fork`: the arbiter alone knows all workers.
    """
    available = available_processors()
    if arbiter.num_workers != len(available):
        return
    # A reload starts all workers anew beside the old ones. Workers of other classes have none.
    counts = Counter(getattr(other, "processor", None) for other in arbiter.WORKERS.values())
    worker.processor = min(available, key=counts.__getitem__)
