"""The other worker class (WEB_WORKER=gthread): gunicorn's own, which lets go of the address before
it ends.
"""

from __future__ import annotations

from typing import Any

from gunicorn.http.errors import ConfigurationProblem, InvalidRequestLine
from gunicorn.workers.gthread import ThreadWorker

from cms.web.starting import StoppableWorker


class ThreadedWorker(StoppableWorker, ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves requests in threads; at its end a new connection is refused or answered, and none is
    left waiting.

    gunicorn's own worker keeps its listening sockets open while it waits for requests under way, so
    that the kernel goes on to take connections that nobody serves.
    """

    sockets: list[Any]

    def is_parent_alive(self) -> bool:
        """Tell whether the arbiter lives; without one this worker ends as if it had been asked to."""
        if not super().is_parent_alive():
            self.alive = False
        return bool(self.alive)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what is no request; a path outside SCRIPT_NAME is the client's fault, and no 500."""
        if isinstance(exc, ConfigurationProblem):
            exc = InvalidRequestLine(str(exc))
        super().handle_error(req, client, addr, exc)

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

        The last look at their number keeps the interpreter's lock, which another thread could hold
        for milliseconds.
        """
        waiting = True
        while waiting:
            before = self.nr_conns
            self.accept(listener)
            waiting = self.nr_conns > before or listener.get_backlog() > 0
