"""Foreign keys of large tables, whose stored rows are checked while others write."""

from __future__ import annotations

from dataclasses import dataclass

from cms.database.connections import Database, Fetch, single_values
from cms.database.statements import statement
from cms.schema import ddl


@dataclass(frozen=True, slots=True)
class DeferredForeignKey:
    """A foreign key that holds for new rows, and is checked for stored ones."""

    table: str
    column: str

    def check(self, database: Database) -> None:
        """Check the stored rows; raises `Conflict` if one points to no item."""
        for constraint in self.unchecked(database.fetch_primary):
            # Without a time limit, and outside any transaction, whose locks would stay.
            with database.autocommit_connection() as connection:
                connection.execute_ddl(ddl.validate_constraint(self.table, constraint))

    def unchecked(self, fetch: Fetch) -> list[str]:
        """Return the foreign keys of the column that are not checked."""
        rows = fetch(statement("unchecked_foreign_keys"), (self.table, self.column))
        return single_values(rows)
