"""Windows of time in which so many requests pass: their arithmetic, without a clock or memory.

A window begins with the first request that passes after the end of the last one. Within a window
nothing is refilled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Limit(NamedTuple):
    """How many requests pass in a window of so many seconds."""

    amount: int
    seconds: int


# A plain tuple: every request of every client makes several, and a named one takes ten times as
# long to make and to take apart.
Window = tuple[int, float]
"""A window: the requests that were counted in it, and its end in seconds of a clock.

One refused request is counted as well: the first, so that it can be told from later ones.
"""

NEVER: Window = (0, 0.0)
"""The window of somebody who has sent no request yet."""


class Usage(NamedTuple):
    """What a request has left of the tightest window: the one with the fewest requests left.

    If several have equally few, it is the one that ends last. `seconds_left` is the time to its
    end. `is_first_refusal` is true for the first request that a window refuses.
    """

    passed: bool
    limit: int
    remaining: int
    seconds_left: float
    is_first_refusal: bool = False

    @property
    def retry_after(self) -> int:
        """The whole seconds after which a request passes again."""
        return max(1, math.ceil(self.seconds_left))


def acquire(
    windows: Sequence[Window], limits: Sequence[Limit], now: float
) -> tuple[tuple[Window, ...], Usage]:
    """Count a request at the time `now`, and return the changed windows and what is left.

    There is a window for each limit. A request passes if every window has room; one that does not
    pass takes no room from any, and begins none.
    """
    changed: list[Window] = []
    fewest_left = math.inf
    amount = 0
    end_of_fewest = 0.0
    # One loop without a value for each step: every request of every client comes by here.
    for (requests, end), limit in zip(windows, limits, strict=True):
        # An end that is further away than the window is long was written by another clock.
        latest_end = now + limit.seconds
        if not now < end <= latest_end:
            requests = 0
            end = latest_end
        left = limit.amount - requests
        if left < fewest_left or (left == fewest_left and end > end_of_fewest):
            fewest_left = left
            amount = limit.amount
            end_of_fewest = end
        changed.append((requests + 1, end))
    if fewest_left <= 0:
        return _refuse(windows, limits, now)
    return tuple(changed), Usage(True, amount, int(fewest_left) - 1, end_of_fewest - now)


def _current(window: Window, limit: Limit, now: float) -> Window:
    _, end = window
    if now < end <= now + limit.seconds:
        return window
    return 0, now + limit.seconds


def _tightest(windows: Sequence[Window], limits: Sequence[Limit]) -> int:
    """Return the index of the window with the fewest requests left, and of the latest end."""
    tightest = 0
    fewest = math.inf
    latest_end = 0.0
    for index, ((requests, end), limit) in enumerate(zip(windows, limits, strict=True)):
        remaining = max(0, limit.amount - requests)
        if remaining < fewest or (remaining == fewest and end > latest_end):
            tightest = index
            fewest = remaining
            latest_end = end
    return tightest


def _refuse(
    stored: Sequence[Window], limits: Sequence[Limit], now: float
) -> tuple[tuple[Window, ...], Usage]:
    """Return the windows; those that refuse for the first time count one request more."""
    current = [_current(window, limit, now) for window, limit in zip(stored, limits, strict=True)]
    tightest = _tightest(current, limits)
    seconds_left = current[tightest][1] - now
    is_first = False
    changed = []
    for before, (requests, end), limit in zip(stored, current, limits, strict=True):
        if requests == limit.amount:
            is_first = True
            changed.append((requests + 1, end))
        else:
            changed.append(before)
    return tuple(changed), Usage(False, limits[tightest].amount, 0, seconds_left, is_first)


def tighter(usage: Usage, other: Usage) -> Usage:
    """Return of two usages the one that leaves less: a refusal first, then fewer requests."""
    if usage.passed != other.passed:
        return other if usage.passed else usage
    if usage.remaining != other.remaining:
        return min(usage, other, key=lambda each: each.remaining)
    return max(usage, other, key=lambda each: each.seconds_left)
