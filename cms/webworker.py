"""A worker of the web server: gunicorn's worker with threads, which lets go of the address before it ends."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from queue import Empty
from types import FrameType
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

ENDS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves requests in threads; at its end a new connection is refused or answered, and none is left waiting.

    gunicorn's own worker keeps its listening sockets open while it waits for requests under way, so that the kernel
    goes on to take connections that nobody serves.
    """

    sockets: list[Any]
    arbiter: Any = None
    """What has forked this worker, as it was then (see `follow_arbiter`)."""

    def init_signals(self) -> None:
        """Handle signals; a request to stop that came since the fork went to the arbiter's handler, and counts too.

        Else a server that is stopped while it starts waits for its worker until it has to kill it.
        """
        super().init_signals()
        with suppress(Empty):
            while self.arbiter is not None:
                if self.arbiter.SIG_QUEUE.get_nowait() in ENDS:
                    sys.exit(0)

    def handle_exit(self, number: int, frame: FrameType | None) -> None:
        """Begin to end; a worker that still loads the application serves nobody, and ends at once."""
        super().handle_exit(number, frame)
        if not self.booted:
            sys.exit(0)

    def is_parent_alive(self) -> bool:
        """Tell whether the arbiter lives; without one this worker ends as if it had been asked to."""
        if not super().is_parent_alive():
            self.alive = False
        return bool(self.alive)

    def set_accept_enabled(self, enabled: bool) -> None:  # noqa: FBT001  # gunicorn calls it so
        """Begin to accept connections, or pause; at the end let go of the address."""
        super().set_accept_enabled(enabled)
        if enabled or self.alive:
            return
        listeners = list(self.sockets)
        self.sockets.clear()
        for listener in listeners:
            self._accept_waiting(listener)
            listener.close()

    def _accept_waiting(self, listener: Any) -> None:
        """Accept the connections that the kernel has taken: closing the socket would cut them off.

        The last look at their number keeps the interpreter's lock, which another thread could hold for milliseconds.
        """
        waiting = True
        while waiting:
            before = self.nr_conns
            self.accept(listener)
            waiting = self.nr_conns > before or listener.get_backlog() > 0


def follow_arbiter(arbiter: Any, worker: Worker) -> None:
    """Tell a new worker who has forked it; gunicorn's `post_fork`."""
    worker.arbiter = arbiter
