"""Foreign keys, which are added and dropped beside builds of indexes on their tables."""

from __future__ import annotations

from cms.database.connections import Transaction
from cms.schema import ddl
from cms.schema.model import ForeignKey
from cms.structure.index_builds import interrupt_builds


def add_foreign_key(transaction: Transaction, key: ForeignKey) -> None:
    """Add a foreign key; PostgreSQL chooses its name if it has none."""
    interrupt_builds(transaction, key.table, key.foreign_table)
    transaction.execute_ddl(ddl.add_foreign_key(key))


def drop_foreign_key(transaction: Transaction, key: ForeignKey) -> None:
    """Drop a foreign key."""
    interrupt_builds(transaction, key.table, key.foreign_table)
    transaction.execute_ddl(ddl.drop_constraint(key.table, key.name))
