"""The worker beside the web server: a process of its own that is started anew when it ends by
itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from cms.cli.backoff import Backoff
from cms.cli.session import announce

TIMEOUT_SECONDS = 12.0
"""More than a worker gives to jobs that run when it is asked to stop."""
FIRST_PAUSE_SECONDS = 1.0


class WorkerProcess:
    """Keeps one worker running between `start` and `end`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._ended = False
        self._wake: SimpleQueue[None] = (
            SimpleQueue()
        )  # unlike an event, a handler of signals may fill it at any moment
        self._lock = threading.RLock()  # a signal may come while the main thread holds it
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_running, daemon=True)
        self._lifeline = os.pipe()

    def start(self) -> None:
        self._thread.start()

    def send_signal(self, number: int) -> None:
        """Pass a signal that ends it on to the worker, which is then not started anew."""
        self._ended = True
        self._wake.put(None)
        with self._lock:
            if self._process is not None:
                self._process.send_signal(number)

    def end(self) -> None:
        """Stop the worker and wait until it is gone; jobs that take too long are given back to the
        queue.
        """
        self.send_signal(signal.SIGTERM)
        if self._thread.ident is not None:
            self._thread.join(TIMEOUT_SECONDS)
            self.send_signal(signal.SIGKILL)
            self._thread.join()
        for descriptor in self._lifeline:
            os.close(descriptor)

    def _keep_running(self) -> None:
        pauses = Backoff(FIRST_PAUSE_SECONDS)
        while (process := self._start_unless_ended()) is not None:
            began = time.monotonic()
            status = process.wait()
            if self._ended:
                return
            pause = pauses.after(time.monotonic() - began)
            announce(
                f"The worker ended by itself (status {status}); another one starts in {pause:.0f} s."
            )
            with suppress(Empty):
                self._wake.get(timeout=pause)

    def _start_unless_ended(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            self._process = None if self._ended else self._start()
            return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        # The worker ends when the other end of its line closes: with this process, however it ends.
        return start_module(("cms", "worker", "--line"), self._lifeline[0], dsn=self._dsn)


def start_module(arguments: Sequence[str], *descriptors: int, dsn: str) -> subprocess.Popen[bytes]:
    """Start a module of this program over a database, in a session of its own: a terminal's Ctrl-C
    does not come to it.

    Its module path is this process's: neither more nor fewer folders than `cms` itself was found
    in.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *arguments, *map(str, descriptors)],
        env=os.environ
        | {"DATABASE_URL": dsn, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
