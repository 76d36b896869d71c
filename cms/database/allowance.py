"""The limits of a whole batch, and the time that one kind of work takes in a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from cms.errors import answer_too_large, unavailable

_TIMEOUT_STEPS = 20
"""The largest number of new timeouts that PostgreSQL gets: each takes a round trip."""


class Allowance:
    """Time and bytes that operations use up; the time begins with the instance."""

    def __init__(self, duration: timedelta, max_bytes: int) -> None:
        self._duration = duration.total_seconds()
        self._end = time.monotonic() + self._duration
        self._last_timeout = self._duration
        self._max_bytes = max_bytes
        self.bytes_left = max_bytes

    def next_timeout(self) -> int | None:
        """Return the milliseconds that a statement may take, None if they have hardly changed.

        Raises `Refused` SERVICE_UNAVAILABLE when the time is over.
        """
        seconds_left = self._end - time.monotonic()
        if seconds_left <= 0:
            raise unavailable("database", "The batch took longer than DB_STATEMENT_TIMEOUT")
        if self._last_timeout - seconds_left < self._duration / _TIMEOUT_STEPS:
            return None
        self._last_timeout = seconds_left
        # One more: to PostgreSQL a timeout of 0 means none at all.
        return int(seconds_left * 1000) + 1

    def take(self, size: int) -> None:
        """Use up bytes; raises `Refused` INVALID_QUERY when there are not enough."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise answer_too_large(self._max_bytes)


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
