"""What a run may take together with the runs inside it: time, and how many these are."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import timedelta

MAX_INNER_RUNS = 1_000
"""Runs of other flows that one run may cause by its operations, at any depth."""


@dataclass(slots=True)
class RunLimits:
    """The limits of one run, which it shares with the runs inside it.

    `max_seconds` counts from now; it is infinite for a run that nobody waits for.
    """

    max_seconds: float = math.inf
    inner_runs_left: int = MAX_INNER_RUNS
    _deadline: float = math.inf

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.max_seconds

    @classmethod
    def for_caller(cls, max_duration: timedelta) -> RunLimits:
        """Return the limits of a run that a caller, or a transaction, waits for."""
        return cls(max_duration.total_seconds())

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.seconds_left <= 0

    @property
    def reason(self) -> str:
        """Why a run is ended that has reached its deadline."""
        return f"The flow takes longer than {self.max_seconds:g} seconds."
