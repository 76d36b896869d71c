"""The health of the service: for anybody whether it can serve, for administrators every part."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from cms.health.check import ERROR, OK, WARN, Check, Report, report_of
from cms.health.parts import Part
from cms.kept import Kept

KEPT_SECONDS = 5.0
MAX_SECONDS = 3.0
"""How long an answer waits for all parts together."""


class Health:
    """Checks the database at each call, and the other parts at most every `KEPT_SECONDS`."""

    def __init__(self, database: Check, others: Iterable[Part]) -> None:
        self._database = database
        self._others = tuple(
            (part.name, part.which, Kept(partial(report_of, part.check), seconds=KEPT_SECONDS))
            for part in others
        )

    def database(self) -> Report:
        """Return `status` and the report of the database, which decides about it."""
        database = report_of(self._database)
        # Slowly, but requests are served.
        return {"status": ERROR if database["status"] == ERROR else OK, "database": database}

    def all_parts(self, state: Report) -> Report:
        """Return the reports of all parts; `state` is what `database` has returned.

        The status is `warn` where a part is not well: without it most requests can be served.
        """
        # All at once, each in a thread of its own.
        for _, _, kept in self._others:
            kept.begin()
        deadline = time.monotonic() + MAX_SECONDS
        answer = dict(state)
        reports = [state["database"]]
        for name, which, kept in self._others:
            report = _report_in_time(kept, deadline)
            reports.append(report)
            if which is None:
                answer[name] = report
            else:
                named: Report = answer.setdefault(name, {})  # type: ignore[assignment]
                named[which] = report
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


def _report_in_time(kept: Kept[Report], deadline: float) -> Report:
    try:
        return kept.get(max_seconds=max(deadline - time.monotonic(), 0.0))
    except TimeoutError:
        return {"status": ERROR, "reason": f"It has not answered within {MAX_SECONDS:g} seconds"}
