"""What counts requests: memory of this machine, Redis, or one in place of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cms.rate_limits.windows import Limit, Usage


class CountersLost(Exception):
    """The counters cannot be reached; the text says why."""


class Counters(Protocol):
    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits; may raise `CountersLost`."""

    def close(self) -> None:
        """Close connections; a later request opens them again."""
