"""How long to wait before a process that ended by itself is started again."""

from __future__ import annotations

MAX_PAUSE_SECONDS = 60.0
HEALTHY_SECONDS = 60.0
"""A process that ran for so long did not end for the same reason as the one before it."""


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
