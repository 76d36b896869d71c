"""Regular maintenance: expired rows, and the monthly partitions of the history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from cms.database.connections import standalone_transaction
from cms.database.statements import statement

MONTHS_AHEAD = 3

_UNITS = MappingProxyType({"d": "days", "w": "weeks", "mo": "months", "y": "years"})


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """How many partitions were made, which were dropped, and how many rows were deleted."""

    made: int
    sessions: int
    answers: int
    dropped: tuple[str, ...] = ()
    deleted: int = 0


def run_maintenance(
    dsn: str, *, retention: str | None, access_life: timedelta
) -> MaintenanceReport:
    """Delete expired sessions and idempotent answers; make future partitions and drop old ones.

    `retention` is a number and one of d, w, mo, y; a month is dropped once all of it is older.
    Without it the history is kept. Sessions stay for `access_life` after their end: an access token
    may still name them. Any number of processes may do this at once, and as often as they like.
    """
    with standalone_transaction(dsn) as transaction:
        sessions = transaction.execute(statement("end_expired_sessions"), (access_life,))[0][0]
        answers = transaction.execute(statement("end_expired_answers"))[0][0]
        made = transaction.execute(statement("make_partitions"), (MONTHS_AHEAD,))[0][0]
        if retention is None:
            return MaintenanceReport(made, sessions, answers)
        rows = transaction.execute(statement("prune_history"), (_interval(retention),))
        dropped, deleted = rows[0]
        return MaintenanceReport(made, sessions, answers, tuple(dropped), deleted)


def _interval(retention: str) -> str:
    digits = retention.rstrip("dwmoy")
    return f"{digits} {_UNITS[retention.removeprefix(digits)]}"
