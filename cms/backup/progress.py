"""The watcher of a backup or a restoration."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Receives the progress of the work, in bytes, and sentences for the person who waits."""

    def begin(self, stage: str, total: int | None) -> None:
        """Begin a stage of about `total` bytes; None if that is not known."""

    def advance(self, count: int) -> None:
        """Count further bytes of the stage as done."""

    def report(self, sentence: str) -> None:
        """Show a sentence to the person who waits."""
