"""What all operations of one batch have together: the time of one statement, and the bytes of one answer."""

from __future__ import annotations

import time
from datetime import timedelta

from cms.errors import answer_too_large, unavailable

_TIMEOUT_STEPS = 20
"""In how many steps PostgreSQL is told of the time that passes."""


class Allowance:
    """Time and bytes that are used up; begins when it is made."""

    def __init__(self, duration: timedelta, max_bytes: int) -> None:
        self._duration = duration.total_seconds()
        self._end = time.monotonic() + self._duration
        self._last_timeout = self._duration
        self._max_bytes = max_bytes
        self.bytes_left = max_bytes

    def next_timeout(self) -> int | None:
        """Return the milliseconds that a statement may now take; None where that has hardly changed since last asked.

        Raises `Refused` SERVICE_UNAVAILABLE when the time is over.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise unavailable("database", "The batch took longer than DB_STATEMENT_TIMEOUT")
        if self._last_timeout - left < self._duration / _TIMEOUT_STEPS:
            return None
        self._last_timeout = left
        return int(left * 1000) + 1

    def take(self, size: int) -> None:
        """Use up bytes; raises `Refused` INVALID_QUERY when there are not so many."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise answer_too_large(self._max_bytes)
