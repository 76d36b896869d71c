"""The least pace at which a client must send its body and take its answer."""

from __future__ import annotations

from cms.web.client_limits import PACE_BYTES


class Pace:
    """How far one client has come, looked at in windows of `pace_seconds`."""

    __slots__ = ("_moved", "_window_began")

    def __init__(self) -> None:
        self._window_began = 0.0
        self._moved = 0

    def end(self) -> None:
        """Note that nothing moves: the next look begins a new window."""
        self._window_began = 0.0

    def is_too_slow(self, moved: int, *, now: float, pace_seconds: float) -> bool:
        """Tell whether a window has ended in which fewer than `PACE_BYTES` have moved.

        `moved` counts all bytes so far, in either direction.
        """
        if self._window_began and now - self._window_began < pace_seconds:
            return False
        is_too_slow = self._window_began > 0 and moved - self._moved < PACE_BYTES
        self._window_began = now
        self._moved = moved
        return is_too_slow
