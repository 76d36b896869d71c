"""A line of the report of `cms doctor`."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
WARNING = "warning"
WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report; `level` is OK, WARNING or WRONG."""

    level: str
    text: str
