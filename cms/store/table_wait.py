"""How a change of structure waits for a table that others use, while nobody waits for the change.

A statement that waits for a table holds up all who use it later, reads too. So it waits a moment
only; then its transaction is rolled back, and the change is made anew when the others have ended.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cms.database.connections import Database, Transaction, single_value
from cms.database.server_refusals import LockTimeout
from cms.database.statements import statement
from cms.errors import unavailable

LOCK_SECONDS = 0.2
"""How long a statement waits for a lock, and others behind it."""

_LOOK_SECONDS = LOCK_SECONDS / 4
"""How long a statement may take before PostgreSQL is asked what it waits for."""

PAUSE_SECONDS = 0.5
"""The time between two attempts, or two looks at whether a table is still used."""


class _AwaitedTable(NamedTuple):
    """A table that a statement waits for, and the processes of PostgreSQL that use it."""

    name: str
    users: list[int]
    is_vacuumed: bool
    """Whether an autovacuum uses it, which gives way to those who wait for `deadlock_timeout`."""


class TableWait:
    """The waiting of one change of structure, for as long as a statement may take."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seconds = database.statement_timeout.total_seconds()
        self._seconds_left = self._seconds
        self._awaited: _AwaitedTable | None = None
        self._has_ended_vacuum = False

    def limited(self, transaction: Transaction) -> Transaction:
        """Return a transaction whose statements wait for locks a moment only."""
        # Once: an autovacuum against the wraparound of transaction ids gives way to nobody.
        ends_vacuum = self._may_end_vacuum
        self._has_ended_vacuum |= ends_vacuum
        rows = transaction.execute(statement("limit_lock_wait"), (LOCK_SECONDS, ends_vacuum))
        ((_, process),) = rows
        return replace(transaction, while_changing=partial(self._look, transaction, process))

    def _look(self, transaction: Transaction, process: int) -> None:
        """Note the table that the running statement of DDL waits for."""
        if transaction.connection.wire.is_answered(seconds=_LOOK_SECONDS):
            return
        # A connection of no pool, as changes of structure may have all of those.
        with self._database.autocommit_connection() as session:
            for row in session.execute(statement("find_awaited_table"), (process,)):
                self._awaited = _AwaitedTable(*row)

    def let_others_pass(self, timeout: LockTimeout) -> None:
        """Wait, without any lock, until the users of the table have ended.

        Raises `Refused` SERVICE_UNAVAILABLE when the time is over.
        """
        # What an attempt does before it needs the table does not count.
        while self._seconds_left > 0:
            time.sleep(PAUSE_SECONDS)
            self._seconds_left -= PAUSE_SECONDS
            if not self._is_used():
                return
        if self._awaited is None:
            raise timeout
        reason = f'Others have used the table "{self._awaited.name}" for {self._seconds:g} s'
        raise unavailable("database", reason, is_undone=True) from timeout

    @property
    def _may_end_vacuum(self) -> bool:
        is_vacuumed = self._awaited is not None and self._awaited.is_vacuumed
        return is_vacuumed and not self._has_ended_vacuum

    def _is_used(self) -> bool:
        if self._awaited is None or self._may_end_vacuum:
            return False
        parameters = (self._awaited.name, self._awaited.users)
        rows = self._database.fetch_primary(statement("is_table_used"), parameters)
        return bool(single_value(rows))
