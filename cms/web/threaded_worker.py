"""The other worker class (WEB_WORKER=gthread): gunicorn's own, with a clean stop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from gunicorn.http.errors import ConfigurationProblem, InvalidRequestLine
from gunicorn.workers.gthread import ThreadWorker

from cms.web.worker_startup import StoppableWorker


class ThreadedWorker(StoppableWorker, ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves requests in threads; when it stops, new connections are refused or answered.

    gunicorn's worker keeps its listening sockets open while requests are under way, so that the
    kernel goes on to take connections that nobody serves.
    """

    sockets: list[Any]

    def get_thread_pool(self) -> ThreadPoolExecutor:
        """Return a pool whose threads all run already.

        It starts a thread when it first needs one, and gunicorn's loop would end, with all its
        requests, where the system refuses that thread.
        """
        pool: ThreadPoolExecutor = super().get_thread_pool()
        all_started = Barrier(self.cfg.threads)
        try:
            for _ in range(self.cfg.threads):
                pool.submit(all_started.wait)
        except (RuntimeError, MemoryError):
            all_started.abort()
            raise
        return pool

    def is_parent_alive(self) -> bool:
        """Tell whether the arbiter lives; without it this worker stops."""
        if not super().is_parent_alive():
            self.alive = False
        return bool(self.alive)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer a malformed request; a path outside SCRIPT_NAME counts as one."""
        if isinstance(exc, ConfigurationProblem):
            exc = InvalidRequestLine(str(exc))
        super().handle_error(req, client, addr, exc)

    def set_accept_enabled(self, enabled: bool) -> None:  # noqa: FBT001  # gunicorn calls it so
        """Begin to accept connections, or pause; when the worker stops, release the address."""
        super().set_accept_enabled(enabled)
        if enabled or self.alive:
            return
        listeners = list(self.sockets)
        self.sockets.clear()
        for listener in listeners:
            self._accept_waiting(listener)
            listener.close()

    def _accept_waiting(self, listener: Any) -> None:
        """Accept connections that the kernel has taken: closing the listener would reset them.

        The last look at their number keeps the interpreter's lock, so that no other thread delays
        the close by milliseconds.
        """
        waiting = True
        while waiting:
            earlier_count = self.nr_conns
            self.accept(listener)
            waiting = self.nr_conns > earlier_count or listener.get_backlog() > 0
