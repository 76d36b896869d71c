"""Indexes of one column: at once on a table with few rows, after the commit and without blocking on a large one."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from cms.errors import Refused, unavailable
from cms.schema import ddl
from cms.store.database import Database, Transaction
from cms.store.statements import statement

log = logging.getLogger("cms.store")

LARGE_BYTES = 16 * 2**20
"""From here on a plain CREATE INDEX would hold up writers noticeably: about 100,000 rows, half a second."""


@dataclass(frozen=True, slots=True)
class LateIndex:
    """An index that is built when the transaction that wants it has committed."""

    table: str
    column: str

    def __call__(self, database: Database) -> None:
        """Build it; raises `Refused` SERVICE_UNAVAILABLE when that fails, which leaves everything else done."""
        try:
            with database.alone() as connection:
                connection.define(ddl.index_concurrently(self.table, self.column))
                connection.execute(statement("move_structure"))  # other processes have loaded it without
        except Refused as refused:
            log.warning("index on %s.%s failed: %s", self.table, self.column, refused)
            self._clear(database)
            reason = f"The change is made, but the index of {self.table}.{self.column} could not be built: {refused}"
            raise unavailable("database", reason) from refused

    def _clear(self, database: Database) -> None:
        """A failed build leaves an index that costs every write and serves no read."""
        with database.alone() as connection:
            for (index,) in connection.execute(statement("invalid_indexes"), (self.table, self.column)):
                connection.define(ddl.drop_index(index))


def add_index(transaction: Transaction, table: str, column: str) -> None:
    """Add an index, inside the transaction unless the table is large."""
    if transaction.execute(statement("is_large"), (table, LARGE_BYTES))[0][0]:
        transaction.afterwards.append(LateIndex(table, column))
    else:
        transaction.define(ddl.index(table, column))


def is_coming(transaction: Transaction, table: str, column: str) -> bool:
    """Whether an index is built before the request is answered, though the catalogue does not show it yet."""
    return LateIndex(table, column) in transaction.afterwards
