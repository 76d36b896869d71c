"""The counters of requests: those of all machines and, while these are lost, of this one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from cms.rate_limits.windows import Limit, Usage

log = logging.getLogger("cms")

RETRY_SECONDS = 5.0
"""How long Redis is not asked again after it has not answered."""


class RedisLost(Exception):
    """Redis does not answer; the text says why."""


class Counters(Protocol):
    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits; may raise `RedisLost`."""

    def close(self) -> None:
        """Close connections; a later request opens them again."""


class FallbackCounters:
    """Counts in Redis, or in the memory of this machine while Redis is lost."""

    def __init__(
        self,
        shared: Counters,
        local: Counters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared = shared
        self._local = local
        self._clock = clock
        self._lock = threading.Lock()
        self._is_lost = False
        self._retry_at = 0.0

    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits."""
        if self._may_try_redis():
            try:
                usage = self._shared.acquire(key, limits)
            except RedisLost as error:
                self._note_loss(error)
            else:
                self._note_answer()
                return usage
        return self._local.acquire(key, limits)

    def close(self) -> None:
        """Close connections; a later request opens them again."""
        self._shared.close()
        self._local.close()

    def _may_try_redis(self) -> bool:
        """Tell whether to ask Redis; while it is lost, one request in `RETRY_SECONDS` tries."""
        if not self._is_lost:
            return True
        with self._lock:
            now = self._clock()
            if now < self._retry_at:
                return False
            self._retry_at = now + RETRY_SECONDS
            return True

    def _note_loss(self, error: RedisLost) -> None:
        with self._lock:
            was_lost = self._is_lost
            self._is_lost = True
            self._retry_at = self._clock() + RETRY_SECONDS
        if not was_lost:
            log.warning("%s. This machine counts requests for itself.", error)

    def _note_answer(self) -> None:
        if not self._is_lost:
            return
        with self._lock:
            was_lost = self._is_lost
            self._is_lost = False
        if was_lost:
            log.warning("Redis answers again, and counts the requests of all machines.")
