"""The limits of a run and of the runs inside it: their time and their number."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import timedelta

MAX_INNER_RUNS = 1_000
"""Runs of other flows that one run may cause by its operations, at any depth."""

INNER_RUNS_SPENT = f"A run runs other flows {MAX_INNER_RUNS} times at most"


@dataclass(slots=True)
class RunLimits:
    """The limits of one run, which it shares with the runs inside it.

    `max_seconds` counts from now, without the `seconds_spent` before; it is infinite for a run that
    nobody waits for. `subject` begins the message about the exceeded time.
    """

    max_seconds: float = math.inf
    inner_runs_left: int = MAX_INNER_RUNS
    seconds_spent: float = 0.0
    subject: str = "The flow takes"
    _deadline: float = math.inf

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.max_seconds - self.seconds_spent

    @classmethod
    def for_caller(cls, max_duration: timedelta) -> RunLimits:
        """Return the limits of a run that a caller waits for."""
        return cls(max_duration.total_seconds())

    @classmethod
    def for_write(cls, max_duration: timedelta, seconds_spent: float) -> RunLimits:
        """Return the limits of a filter flow, less the time that others of its write have taken."""
        subject = "The filter flows of the write take"
        return cls(max_duration.total_seconds(), seconds_spent=seconds_spent, subject=subject)

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.seconds_left <= 0

    @property
    def reason(self) -> str:
        """The reason for the end of a run that has reached its deadline."""
        return f"{self.subject} longer than {self.max_seconds:g} seconds."
