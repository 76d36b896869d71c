"""The lowest rate at which a client must send its body and take its answer."""

from __future__ import annotations

from cms.web.client_limits import MIN_BYTES_PER_WINDOW


class TransferRate:
    """The bytes that one client moves, measured in windows of some seconds."""

    __slots__ = ("_moved", "_window_began")

    def __init__(self) -> None:
        self._window_began = 0.0
        self._moved = 0

    def reset(self) -> None:
        """Note that nothing moves: the next measurement begins a new window."""
        self._window_began = 0.0

    def is_too_slow(self, moved: int, *, now: float, window_seconds: float) -> bool:
        """Tell whether a window has ended in which fewer than `MIN_BYTES_PER_WINDOW` have moved.

        `moved` counts all bytes so far, in either direction.
        """
        if self._window_began and now - self._window_began < window_seconds:
            return False
        is_too_slow = self._window_began > 0 and moved - self._moved < MIN_BYTES_PER_WINDOW
        self._window_began = now
        self._moved = moved
        return is_too_slow
