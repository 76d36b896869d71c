"""How long to wait before what ended by itself is started again."""

from __future__ import annotations

MAX_PAUSE_SECONDS = 60.0
HEALTHY_SECONDS = 60.0
"""What has run for so long did not end for the reason that ended the one before it."""


class Backoff:
    """Pauses between the starts of one thing: each doubles the one before, and they begin anew once
    it ran well.
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._next = first

    def after(self, seconds: float) -> float:
        """Return the pause after a run of so many seconds."""
        pause = self._first if seconds >= HEALTHY_SECONDS else self._next
        self._next = min(pause * 2, MAX_PAUSE_SECONDS)
        return pause
