"""Reports of web workers to `cms serve`, on a line that is open while one of them lives."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress

from cms.gunicorn_process import WORKER

READ_BYTES = 4096


class WorkerReports:
    """Reads the line, and knows the workers that may be left when the web server was killed."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.is_closed = False
        self._incomplete = b""
        self._workers: set[int] = set()

    def read(self) -> list[str]:
        """Wait for bytes; return the messages that they complete, but not those of new workers."""
        chunk = self.line.recv(READ_BYTES)
        self.is_closed = not chunk
        *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
        messages = []
        for line in lines:
            message = line.decode()
            if message.startswith(WORKER):
                self._add_worker(int(message.removeprefix(WORKER)))
            else:
                messages.append(message)
        return messages

    def adopt(self) -> None:
        """Take note of workers that have ended, which this process adopts in a container."""
        for worker in self._workers:
            with suppress(ChildProcessError):
                os.waitpid(worker, os.WNOHANG)

    def kill(self) -> None:
        """End all workers that are left, and the processes that they have started."""
        for worker in self._workers:
            # Each has begun a session, and so leads a group.
            with suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGKILL)

    def _add_worker(self, worker: int) -> None:
        # The numbers of ended ones will be those of other processes.
        self._workers = {number for number in self._workers if _exists(number)} | {worker}


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
