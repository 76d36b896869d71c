"""Answers that clients have not taken: those of all clients together are bounded."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from cms.web.client_limits import MAX_UNSENT_IN_ALL

if TYPE_CHECKING:
    from cms.web.connection import ClientConnection

_REVIEW_BYTES = MAX_UNSENT_IN_ALL // 8


class UnsentAnswers:
    """The unsent answers of all connections of one worker; all of it runs in the event loop."""

    def __init__(self, connections: Collection[ClientConnection]) -> None:
        self._connections = connections
        self._written = 0  # since the last review

    def count(self, size: int) -> None:
        """Count bytes that were written; review the connections after every so many."""
        self._written += size
        if self._written >= _REVIEW_BYTES:
            self._written = 0
            self._review()

    def _review(self) -> None:
        """Where too much is unsent, cut off the answers whose clients are waited for longest."""
        unsent = [each for each in self._connections if each.output.unsent_bytes]
        total = sum(connection.output.unsent_bytes for connection in unsent)
        if total <= MAX_UNSENT_IN_ALL:
            return
        for connection in sorted(unsent, key=lambda each: each.output.unsent_since):
            total -= connection.output.unsent_bytes
            connection.cut_off()
            # Somewhat below the limit, or the next answer would start this again.
            if total < MAX_UNSENT_IN_ALL - _REVIEW_BYTES:
                return
