"""The health of the service: for anybody whether it can serve, for administrators every part."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from cms.cached_value import CachedValue
from cms.health.checks import ERROR, OK, WARN, Check, Part, Report, report_of

CACHE_SECONDS = 5.0
MAX_SECONDS = 3.0
"""How long an answer waits for all parts together."""


class Health:
    """Checks the database at each call, and the other parts at most every `CACHE_SECONDS`."""

    def __init__(self, database: Check, others: Iterable[Part]) -> None:
        self._database = database
        self._others = [
            (part, CachedValue(partial(report_of, part.check), seconds=CACHE_SECONDS))
            for part in others
        ]

    def database(self) -> Report:
        """Return `status` and the report of the database, which decides about it."""
        database = report_of(self._database)
        # A slow database, whose status is `warn`, still serves requests.
        status = ERROR if database["status"] == ERROR else OK
        return {"status": status, "database": database}

    def all_parts(self, state: Report) -> Report:
        """Return the reports of all parts; `state` is what `database` has returned.

        The status is `warn` where a part is not well: without it most requests can be served.
        """
        # All at once, each in a thread of its own.
        for _, cached in self._others:
            cached.begin()
        deadline = time.monotonic() + MAX_SECONDS
        answer = dict(state)
        reports = [state["database"]]
        for part, cached in self._others:
            report = _report_in_time(cached, deadline)
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
