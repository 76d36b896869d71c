"""Starts the embedded server again when it ends by itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from cms.cli.backoff import Backoff
from cms.cli.session import DatabaseLost, announce
from cms.config import Config
from cms.embedded import EmbeddedError, EmbeddedServer, start

FIRST_PAUSE_SECONDS = 0.1
RESTART_ATTEMPTS = 3
"""More than one: a server that is killed while it starts may be able to start."""


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_ended.set()
        if self._failure is not None:
            raise DatabaseLost(
                f"The database server ended by itself and cannot be started again. {self._failure}"
            )

    def _keep_running(self) -> None:
        pauses = Backoff(FIRST_PAUSE_SECONDS)
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
