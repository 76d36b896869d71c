"""Indexes of one column: at once on a table with few rows, after the commit and without blocking on a large one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cms.database.connections import Database, Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused, unavailable
from cms.schema import ddl
from cms.schema.ddl import IndexKind
from cms.schema.model import Collection, Field, Kind
from cms.schema.types import Family

log = logging.getLogger("cms.store")

LARGE_BYTES = 16 * 2**20
"""From here on a plain CREATE INDEX would hold up writers noticeably: about 100,000 rows, half a second."""

LOCK_RETRY_SECONDS = 0.1
"""How long a build waits before it asks again whether it is its turn."""


@dataclass(frozen=True, slots=True)
class DeferredIndex:
    """An index that is built when the transaction that wants it has committed."""

    table: str
    column: str
    kind: IndexKind = IndexKind.VALUES

    def __call__(self, database: Database) -> None:
        """Build it; raises `Refused` SERVICE_UNAVAILABLE when that fails, which leaves everything else done."""
        try:
            with _index_build_lock(database, self.table):
                self._build(database)
        except (Refused, Stale) as fault:
            log.warning("index on %s.%s failed: %s", self.table, self.column, fault)
            reason = f"The change is made, but the index of {self.table}.{self.column} could not be built: {fault}"
            raise unavailable("database", reason) from fault

    def _build(self, database: Database) -> None:
        try:
            with database.autocommit_connection() as connection:
                connection.execute_ddl(
                    ddl.index(self.table, self.column, self.kind, concurrently=True)
                )
                if self.kind is IndexKind.TRIGRAMS:
                    connection.execute_ddl(ddl.analyze(self.table))
                connection.execute(
                    statement("move_structure")
                )  # other processes have loaded it without
        except (Refused, Stale):
            self._clear(database)
            raise

    def _clear(self, database: Database) -> None:
        """A failed build leaves an index that costs every write and serves no read."""
        place = self.table, self.column, str(self.kind is IndexKind.TRIGRAMS)
        with database.autocommit_connection() as connection:
            for (index,) in connection.execute(statement("invalid_indexes"), place):
                connection.execute_ddl(ddl.drop_index(index))


@contextmanager
def _index_build_lock(database: Database, table: str) -> Iterator[None]:
    """Let one build or clearing on a table run at a time, over all machines: two of them would wait for each other.

    Asked for again and again, because a statement that waits has a snapshot, which a concurrent build waits for in
    its turn; held by a session, because an open transaction would have one too.
    """
    with database.autocommit_connection() as keeper:
        while not keeper.execute(statement("take_turn"), (table,))[0][0]:
            time.sleep(LOCK_RETRY_SECONDS)
        try:
            yield
        finally:
            keeper.execute(statement("end_turn"), (table,))


def add_index(
    transaction: Transaction, table: str, column: str, kind: IndexKind = IndexKind.VALUES
) -> None:
    """Add an index, inside the transaction unless the table is large."""
    if transaction.execute(statement("is_large"), (table, LARGE_BYTES))[0][0]:
        transaction.after_commit.append(DeferredIndex(table, column, kind))
    else:
        transaction.execute_ddl(ddl.index(table, column, kind))
        if kind is IndexKind.TRIGRAMS:
            # Until it has looked at the words PostgreSQL takes any of them for a frequent one, and walks the table.
            transaction.execute_ddl(ddl.analyze(table))


def update_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Make the indexes that a collection needs for its manual order and its searches."""
    sort = collection.fields.get(collection.sort_field or "")
    if (
        sort
        and collection.kind is Kind.TABLE
        and _is_bare(sort)
        and not is_index_pending(transaction, *_table_and_column(sort))
    ):
        add_index(transaction, *_table_and_column(sort), ddl.index_kind(sort.type_name))
    update_search_indexes(transaction, collection, extensions)


def _table_and_column(field: Field) -> tuple[str, str]:
    return field.collection, field.name


def _is_bare(field: Field) -> bool:
    column = field.column
    return column is not None and not (column.is_indexed or column.is_unique or column.primary_key)


def update_search_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Make the indexes that searches in a collection need, or drop them when it is not to be searchable.

    A word is looked for in all searched fields at once, so one without an index would have the whole table read.
    """
    if collection.kind is not Kind.TABLE:
        return
    wanted = {
        field.name: field
        for field in collection.columns
        if field.searched and not field.is_text_form
    }
    if not (collection.meta and collection.meta.get("searchable")):
        wanted = {}
    present: dict[str, str] = dict(
        transaction.execute(statement("search_indexes"), (collection.name,))
    )
    for column in present.keys() - wanted.keys():
        transaction.execute_ddl(ddl.drop_index(present[column]))
    for field in wanted.values():
        if field.type.family is not Family.TEXT:
            if field.column and not field.column.is_indexed:
                add_index(transaction, collection.name, field.name)
        elif field.name not in present and "pg_trgm" in extensions:
            add_index(transaction, collection.name, field.name, IndexKind.TRIGRAMS)


def pending_indexes(transaction: Transaction) -> set[tuple[str, str]]:
    """Return the columns whose indexes are built before the request is answered, though no catalogue shows them yet."""
    late = [step for step in transaction.after_commit if isinstance(step, DeferredIndex)]
    return {(step.table, step.column) for step in late if step.kind is not IndexKind.TRIGRAMS}


def is_index_pending(transaction: Transaction, table: str, column: str) -> bool:
    """Whether an index of a column is built before the request is answered."""
    return (table, column) in pending_indexes(transaction)


def with_index(field: Field) -> Field:
    """Return a field as it is once its column has an index."""
    assert field.column
    return replace(field, column=replace(field.column, is_indexed=True))
