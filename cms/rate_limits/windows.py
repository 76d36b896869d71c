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
    counted: list[Window] = []
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
        if left < 0:
            left = 0
        if left < fewest_left or (left == fewest_left and end > end_of_fewest):
            fewest_left = left
            amount = limit.amount
            end_of_fewest = end
        counted.append((requests + 1, end))
    if fewest_left > 0:
        return tuple(counted), Usage(True, amount, int(fewest_left) - 1, end_of_fewest - now)
    # Of a refused request, only windows keep a count that refuse for the first time.
    is_first = False
    kept = list(windows)
    for index, ((requests, end), limit) in enumerate(zip(counted, limits, strict=True)):
        if requests == limit.amount + 1:
            is_first = True
            kept[index] = (requests, end)
    return tuple(kept), Usage(False, amount, 0, end_of_fewest - now, is_first)


def tighter(usage: Usage, other: Usage) -> Usage:
    """Return of two usages the one that leaves less: a refusal first, then fewer requests."""
    if usage.passed != other.passed:
        return other if usage.passed else usage
    if usage.remaining != other.remaining:
        return min(usage, other, key=lambda each: each.remaining)
    return max(usage, other, key=lambda each: each.seconds_left)
