"""What a database needs now and then, whoever serves it."""

from __future__ import annotations

from cms.store.database import direct_transaction
from cms.store.statements import statement

MONTHS_AHEAD = 3


def keep_up(dsn: str) -> None:
    """Delete the sessions that have expired, and make the partitions of the coming months."""
    with direct_transaction(dsn) as transaction:
        transaction.execute(statement("end_expired_sessions"))
        transaction.execute(statement("make_partitions"), (MONTHS_AHEAD,))
