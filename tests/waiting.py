"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T | None],
    *,
    seconds: float = 60,
    otherwise: Callable[[], object] = lambda: "it did not happen",
) -> T:
    """Wait until a condition holds, and return its value.

    The test fails if it takes longer than that, and prints the value of `otherwise`.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"within {seconds} seconds: {otherwise()}"
        time.sleep(0.01)
    return value
