"""A script as it goes to a child process, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MAX_LINES = 200
"""Lines of console output; what follows is left out."""

MAX_LINE_LENGTH = 4000
MAX_RESULT_LENGTH = 2**22
"""Characters of a result as JSON."""

MAX_ANSWER_LENGTH = MAX_RESULT_LENGTH + 100
"""The same with what tells results from errors."""


class ScriptJob(NamedTuple):
    """JavaScript that exports a function, the JSON of what it gets, and its limit in seconds."""

    code: str
    data: str
    max_seconds: float


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """The result of a script, or the value that it has thrown; and its console output."""

    result: object = None
    error: object = None
    has_failed: bool = False
    lines: tuple[str, ...] = ()
