"""The standard input of a child process, from which it reads jobs."""

from __future__ import annotations

import select
import sys

IDLE_SECONDS = 60.0


def waits_for_job() -> bool:
    """Wait for the next job, or the end of the input; false where neither comes for a while."""
    readable, _, _ = select.select([sys.stdin], [], [], IDLE_SECONDS)
    return bool(readable)
