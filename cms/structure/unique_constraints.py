"""Unique constraints of columns that are there, and indexes that may become some."""

from __future__ import annotations

from cms.database.connections import Fetch, Transaction, single_value, single_values
from cms.database.statements import statement
from cms.schema import ddl


def has_unique_constraint(fetch: Fetch, table: str, column: str) -> bool:
    """Tell whether a constraint makes a column unique, whoever has made it."""
    return bool(single_value(fetch(statement("has_unique_constraint"), (table, column))))


def unattached_index(fetch: Fetch, table: str, column: str) -> str | None:
    """Return an index that could become a unique constraint of a column."""
    rows = fetch(statement("unattached_unique_index"), (table, column))
    return next(iter(single_values(rows)), None)


def attach_unique_index(transaction: Transaction, table: str, index: str) -> None:
    """Make a unique constraint of an index."""
    names = transaction.execute(statement("name_for_constraint"), (table, index))
    constraint = str(single_value(names))
    transaction.execute_ddl(ddl.attach_unique_index(table, index, constraint=constraint))
