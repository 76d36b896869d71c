"""Starts the embedded server, and the worker beside the web server, again when they end by
themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from cms.cli.session import DatabaseLost, announce
from cms.config import Config
from cms.embedded import EmbeddedError
from cms.embedded.lifetime import EmbeddedServer, start

SERVER_PAUSE_SECONDS = 0.1
RESTART_ATTEMPTS = 3
"""More than one: a server that is killed while it starts may be able to start."""

WORKER_STOP_SECONDS = 12.0
"""Longer than a stopping worker lets its jobs run."""
WORKER_PAUSE_SECONDS = 1.0

MAX_PAUSE_SECONDS = 60.0
HEALTHY_SECONDS = 60.0
"""A process that ran for so long did not end for the same reason as the one before it."""


@contextmanager
def watched_database(config: Config) -> Iterator[str]:
    """Yield the address of the database, for long runs: an embedded server that ends is restarted.

    When it cannot be, this process is sent SIGTERM, and the context ends with `DatabaseLost`.
    """
    if config.database_url:
        yield config.database_url
        return
    # In this order: the restarts end before the server is stopped.
    with (
        start(config.data_dir, binaries=config.postgres_bin, announce=announce) as embedded,
        AutoRestart(embedded),
    ):
        yield embedded.dsn


class AutoRestart:
    """Starts a server again whenever it ends, until the context ends.

    When the server cannot be started, this process is sent SIGTERM, and the context ends with
    `DatabaseLost`.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._has_ended = threading.Event()
        self._failure: EmbeddedError | None = None
        # A daemon, because it waits for the end of the server, which may outlive this process.
        self._thread = threading.Thread(target=self._keep_running, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        if self._failure is not None:
            raise DatabaseLost(
                f"The database server ended by itself and cannot be started again. {self._failure}"
            )

    def _keep_running(self) -> None:
        pauses = Backoff(SERVER_PAUSE_SECONDS)
        started = time.monotonic()
        while self._failure is None:
            # It returns at once as long as the server is down.
            self._server.await_end()
            # The server also ends when the context ends.
            if self._has_ended.is_set():
                return
            announce("The database server ended by itself; it is started again.")
            if self._has_ended.wait(pauses.after(time.monotonic() - started)):
                return
            started = time.monotonic()
            self._restart()

    def _restart(self) -> None:
        failure: EmbeddedError | None = None
        for _ in range(RESTART_ATTEMPTS):
            try:
                self._server.restart()
            except EmbeddedError as error:
                failure = error
            else:
                announce("The database server answers again.")
                return
        # Before the signal: the context then ends, and looks at it.
        self._failure = failure
        # The main thread waits for signals: an exception in this thread would not wake it.
        os.kill(os.getpid(), signal.SIGTERM)


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
            self._thread.join(WORKER_STOP_SECONDS)
            self.send_signal(signal.SIGKILL)
            self._thread.join()
        for descriptor in self._parent_pipe:
            os.close(descriptor)

    def _keep_running(self) -> None:
        pauses = Backoff(WORKER_PAUSE_SECONDS)
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


class Backoff:
    """Pauses between starts of a process: each doubles the last, until one run was long enough."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._next = first

    def after(self, seconds: float) -> float:
        """Return the pause after a run of so many seconds."""
        # After a long run the doubling begins anew.
        pause = self._first if seconds >= HEALTHY_SECONDS else self._next
        self._next = min(pause * 2, MAX_PAUSE_SECONDS)
        return pause
