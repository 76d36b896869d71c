"""The embedded server under what runs for long: started again when it ends by itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import TracebackType

from cms.cli.backoff import Backoff
from cms.cli.session import DatabaseLost, announce
from cms.embedded import EmbeddedError, EmbeddedServer

FIRST_PAUSE_SECONDS = 0.1
RESTART_ATTEMPTS = 3
"""A server that is killed while it starts has not shown that it cannot start."""


class AutoRestart:
    """Starts a server again whenever it ends, until the end of the context.

    When it cannot be started, the process is sent SIGTERM, and the context ends with
    `DatabaseLost`.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._ended = threading.Event()
        self._fault: EmbeddedError | None = None
        self._thread = threading.Thread(target=self._keep_running, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._fault is not None:
            raise DatabaseLost(
                f"The database server ended by itself and cannot be started again. {self._fault}"
            )

    def _keep_running(self) -> None:
        pauses = Backoff(FIRST_PAUSE_SECONDS)
        began = time.monotonic()
        while self._fault is None:
            self._server.await_end()
            if self._ended.is_set():
                return
            announce("The database server ended by itself; it is started again.")
            if self._ended.wait(pauses.after(time.monotonic() - began)):
                return
            began = time.monotonic()
            self._restart()

    def _restart(self) -> None:
        fault: EmbeddedError | None = None
        for _ in range(RESTART_ATTEMPTS):
            try:
                self._server.restart()
            except EmbeddedError as error:
                fault = error
            else:
                announce("The database server answers again.")
                return
        self._fault = fault
        os.kill(os.getpid(), signal.SIGTERM)
