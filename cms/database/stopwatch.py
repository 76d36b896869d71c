"""The time that one kind of work takes inside a transaction, in all its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Stopwatch:
    """Adds up the seconds of blocks; a block inside of another one counts once."""

    _ended_seconds: float = 0.0
    _began: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds until now."""
        if self._began is None:
            return self._ended_seconds
        return self._ended_seconds + time.monotonic() - self._began

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        if self._began is not None:
            yield
            return
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._ended_seconds = self.seconds
            self._began = None
