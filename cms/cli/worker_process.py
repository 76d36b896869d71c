"""The worker beside the web server: a process that is started again when it ends by itself."""

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
"""Longer than a stopping worker lets its jobs run."""
FIRST_PAUSE_SECONDS = 1.0


class WorkerProcess:
    """Keeps a worker running between `start` and `end`."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._has_ended = False
        # A signal handler may put into it at any moment, which an event does not allow.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.RLock()  # a signal may come while the main thread holds it
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_running, daemon=True)
        self._parent_pipe = os.pipe()

    def start(self) -> None:
        self._thread.start()

    def send_signal(self, number: int) -> None:
        """Pass on a signal that ends the worker, which is then not started again."""
        # First, so that no worker is started after the signal; then a pause ends at once.
        self._has_ended = True
        self._wake.put(None)
        with self._lock:
            if self._process is not None:
                self._process.send_signal(number)

    def end(self) -> None:
        """Stop the worker and wait for its end; jobs that take too long return to the queue."""
        self.send_signal(signal.SIGTERM)
        # Without `start` there is no thread to wait for.
        if self._thread.ident is not None:
            # The thread ends with its worker, and a worker that runs on is killed.
            self._thread.join(TIMEOUT_SECONDS)
            self.send_signal(signal.SIGKILL)
            self._thread.join()
        for descriptor in self._parent_pipe:
            os.close(descriptor)

    def _keep_running(self) -> None:
        pauses = Backoff(FIRST_PAUSE_SECONDS)
        while (process := self._start_unless_ended()) is not None:
            started = time.monotonic()
            status = process.wait()
            if self._has_ended:
                return
            pause = pauses.after(time.monotonic() - started)
            announce(
                f"The worker ended by itself (status {status}); "
                f"another one starts in {pause:.0f} s."
            )
            with suppress(Empty):
                self._wake.get(timeout=pause)

    def _start_unless_ended(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            self._process = None if self._has_ended else self._start()
            return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        # The worker stops when the other end of its pipe closes, which happens with this process
        # however it ends.
        return start_module(("cms", "worker", "--parent-pipe"), self._parent_pipe[0], dsn=self._dsn)


def start_module(arguments: Sequence[str], *descriptors: int, dsn: str) -> subprocess.Popen[bytes]:
    """Start a module of this program, over a database, in a session of its own.

    A terminal's Ctrl-C does not reach it. Its module path is that of this process: neither more nor
    fewer folders than `cms` itself was found in.
    """
    return subprocess.Popen(
        # -P: or Python would look for modules in the current folder first.
        [sys.executable, "-P", "-m", *arguments, *map(str, descriptors)],
        env=os.environ
        | {"DATABASE_URL": dsn, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
