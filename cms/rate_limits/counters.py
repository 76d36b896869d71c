"""The counters of requests: in memory of this machine, in Redis, or one as a fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cms.rate_limits.windows import Limit, Usage

RETRY_SECONDS = 5.0
"""How long Redis is not asked again after it has not answered."""


class CountersLost(Exception):
    """The counters cannot be reached; the text says why."""


class Counters(Protocol):
    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits; may raise `CountersLost`."""

    def close(self) -> None:
        """Close connections; a later request opens them again."""
