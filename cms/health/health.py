"""The health of the service: for anybody whether it can serve, for administrators every part."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from cms.caches import CachedValue
from cms.health.check import ERROR, OK, WARN, Check, Report, report_of
from cms.health.checked_parts import Part

CACHE_SECONDS = 5.0
MAX_SECONDS = 3.0
"""How long an answer waits for all parts together."""


class _CachedPart(NamedTuple):
    """A part as `Part` names it, with its last report."""

    name: str
    which: str | None
    report: CachedValue[Report]


class Health:
    """Checks the database at each call, and the other parts at most every `CACHE_SECONDS`."""

    def __init__(self, database: Check, others: Iterable[Part]) -> None:
        self._database = database
        parts: list[_CachedPart] = []
        for part in others:
            report = CachedValue(partial(report_of, part.check), seconds=CACHE_SECONDS)
            parts.append(_CachedPart(part.name, part.which, report))
        self._others = tuple(parts)

    def database(self) -> Report:
        """Return `status` and the report of the database, which decides about it."""
        database = report_of(self._database)
        status = ERROR
        # A slow database, whose status is `warn`, still serves requests.
        if database["status"] != ERROR:
            status = OK
        return {"status": status, "database": database}

    def all_parts(self, state: Report) -> Report:
        """Return the reports of all parts; `state` is what `database` has returned.

        The status is `warn` where a part is not well: without it most requests can be served.
        """
        # All at once, each in a thread of its own.
        for part in self._others:
            part.report.begin()
        deadline = time.monotonic() + MAX_SECONDS
        answer = dict(state)
        reports = [state["database"]]
        for part in self._others:
            report = _report_in_time(part.report, deadline)
            reports.append(report)
            if part.which is None:
                answer[part.name] = report
            else:
                named: Report = answer.setdefault(part.name, {})  # type: ignore[assignment]
                named[part.which] = report
        if any(report["status"] != OK for report in reports):  # type: ignore[index]
            answer["status"] = WARN
        return answer


def public_health(state: Report) -> Report:
    """Return the part of a report that anybody may see."""
    public: Report = {"status": state["status"]}
    database = state["database"]
    # The reason is no secret: the error of any other request holds it as well.
    if state["status"] == ERROR and isinstance(database, dict):
        public["reason"] = database["reason"]
    return public


def _report_in_time(cached: CachedValue[Report], deadline: float) -> Report:
    try:
        return cached.get(max_seconds=max(deadline - time.monotonic(), 0.0))
    except TimeoutError:
        return {"status": ERROR, "reason": f"It has not answered within {MAX_SECONDS:g} seconds"}
