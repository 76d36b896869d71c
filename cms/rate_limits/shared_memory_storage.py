"""A storage of the library `limits` in memory that the workers of one machine share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from limits.storage import Storage

from cms.rate_limits.shared_table import KEY_BYTES, SharedTable, Windows
from cms.rate_limits.windows import NEVER, Limit, Usage, Window, acquire

T = TypeVar("T")


class SharedMemoryStorage(Storage):
    """Counts exactly, whatever process or thread of the web server a request comes to.

    Beside the methods of the library, each of which counts in one window, `acquire` counts a
    request in several windows at once.
    """

    STORAGE_SCHEME = None

    def __init__(self, table: SharedTable, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._table = table
        # The clock of the machine, which its processes share and nobody sets.
        self._clock = clock

    @property
    def base_exceptions(self) -> type[Exception]:
        return OSError

    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits, of which there are one or two."""

        def count(windows: Windows) -> tuple[Windows, Usage]:
            now = self._clock()
            if len(limits) == 2:
                both, usage = acquire(windows, limits, now)
                return (both[0], both[1]), usage
            only, usage = acquire(windows[:1], limits, now)
            return (only[0], windows[1]), usage

        return self._table.change(key, count)

    def close(self) -> None:
        """Do nothing: the table is that of the process, and may have other users."""

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count so many requests in the window of a key, and return its count."""

        def add(window: Window) -> tuple[Window, int]:
            now = self._clock()
            requests, end = window if now < window[1] else (0, now + expiry)
            changed = max(0, requests + amount)
            return (changed, end), changed

        return self._change_window(key, add)

    def get(self, key: str) -> int:
        """Return the count of the window of a key."""

        def count(window: Window) -> tuple[Window, int]:
            requests, end = window
            return window, requests if self._clock() < end else 0

        return self._change_window(key, count)

    def get_expiry(self, key: str) -> float:
        """Return when the window of a key ends, in seconds since the epoch."""

        def seconds_left(window: Window) -> tuple[Window, float]:
            _, end = window
            return window, max(0.0, end - self._clock())

        return time.time() + self._change_window(key, seconds_left)

    def check(self) -> bool:
        """Return True: this storage cannot fail."""
        return True

    def reset(self) -> None:
        """Forget all counters, whoever's they are."""
        self._table.clear()

    def clear(self, key: str) -> None:
        """Forget the counter of a key."""
        self._change_window(key, lambda window: (NEVER, None))

    def _change_window(self, key: str, change: Callable[[Window], tuple[Window, T]]) -> T:
        def change_first(windows: Windows) -> tuple[Windows, T]:
            window, result = change(windows[0])
            return (window, windows[1]), result

        digest = hashlib.blake2b(key.encode(), digest_size=KEY_BYTES).digest()
        return self._table.change(digest, change_first)
