"""The error that ends a backup or a restoration."""

from __future__ import annotations


class BackupError(Exception):
    """A backup or a restoration cannot be done; the text says why and what to do."""


class DamagedArchive(BackupError):
    """The bytes of an archive are not those that were written: some are missing or others."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The archive is damaged: {reason}. Nothing has been changed.")
