"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait until a condition holds; the test fails if it takes longer than that."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} seconds"
        time.sleep(0.01)
