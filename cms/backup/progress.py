"""Who watches a backup or a restoration."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Receives the progress of the work, in bytes, and sentences for the person who waits."""

    def begin(self, stage: str, total: int | None) -> None:
        """A stage begins; it is about `total` bytes long, if that is known."""

    def advance(self, count: int) -> None:
        """So many more bytes of the stage are done."""

    def tell(self, sentence: str) -> None:
        """Something that a person should read."""
