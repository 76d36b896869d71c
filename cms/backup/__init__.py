"""Backups: the database and the files of a service as one archive, and back again."""

from __future__ import annotations

from typing import Protocol


class BackupError(Exception):
    """A backup or a restoration cannot be done; the text says why and what to do."""


class DamagedArchive(BackupError):
    """The bytes of an archive are not those that were written: some are missing or others."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The archive is damaged: {reason}. Nothing has been changed.")


class Watcher(Protocol):
    """Receives the progress of the work, in bytes, and sentences for the person who waits."""

    def begin(self, stage: str, total: int | None) -> None:
        """Begin a stage of about `total` bytes; None if that is not known."""

    def advance(self, count: int) -> None:
        """Count further bytes of the stage as done."""

    def report(self, sentence: str) -> None:
        """Show a sentence to the person who waits."""
