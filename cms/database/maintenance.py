"""Regular maintenance: expired rows, and the monthly partitions of the history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from cms.database.connections import standalone_transaction
from cms.database.statements import statement

MONTHS_AHEAD = 3
"""How many months have their partitions before they begin."""

_UNITS = MappingProxyType({"d": "days", "w": "weeks", "mo": "months", "y": "years"})


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one run of the maintenance has done.

    `deleted_rows` are rows of the history that were in no monthly partition.
    """

    created_partitions: int
    deleted_sessions: int
    deleted_answers: int
    dropped_partitions: tuple[str, ...] = ()
    deleted_rows: int = 0


def run_maintenance(
    dsn: str, *, retention: str | None, access_life: timedelta
) -> MaintenanceReport:
    """Delete expired sessions and idempotent answers; create future partitions, drop old ones.

    `retention` is a number and one of d, w, mo, y; a month is dropped when all of it is older.
    Without a retention the history is kept. Sessions stay for `access_life` after their end: an
    access token may still name them. Several processes may run this at the same time.
    """
    with standalone_transaction(dsn) as transaction:
        sessions = transaction.execute(statement("end_expired_sessions"), (access_life,))[0][0]
        answers = transaction.execute(statement("end_expired_answers"))[0][0]
        created = transaction.execute(statement("make_partitions"), (MONTHS_AHEAD,))[0][0]
        if retention is None:
            return MaintenanceReport(created, sessions, answers)
        rows = transaction.execute(statement("prune_history"), (_interval(retention),))
        # Rows of months for which no partition was made in time are in the default partition.
        partitions, deleted_rows = rows[0]
        return MaintenanceReport(created, sessions, answers, tuple(partitions), deleted_rows)


def _interval(retention: str) -> str:
    """Return a retention as PostgreSQL reads intervals: "12mo" is "12 months"."""
    # The settings have checked the form: digits, and one of the units.
    digits = retention.rstrip("dwmoy")
    return f"{digits} {_UNITS[retention.removeprefix(digits)]}"
