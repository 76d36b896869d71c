"""Indexes of columns: built in the transaction on small tables, after the commit on large ones."""

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
from cms.fragment import Fragment
from cms.query.sql.arrays import array
from cms.schema import ddl
from cms.schema.model import Collection, Field, Kind
from cms.schema.types.field_type import IndexKind, Search

log = logging.getLogger("cms.store")

LARGE_BYTES = 16 * 2**20
"""Size of a table from which a plain CREATE INDEX delays writers noticeably.

It is that of about 100,000 rows, and the delay half a second.
"""

LOCK_RETRY_SECONDS = 0.1
"""Seconds before a build tries again to get the lock."""


@dataclass(frozen=True, slots=True)
class DeferredIndex:
    """An index that is built after the commit of its transaction, without blocking writers.

    With `steps` it is over a path into a JSON column.
    """

    table: str
    column: str
    kind: IndexKind = IndexKind.VALUES
    steps: tuple[str, ...] = ()

    def __call__(self, database: Database) -> None:
        """Build the index; raises `Refused` SERVICE_UNAVAILABLE if that fails.

        All other changes of the call are committed then, as the refusal says.
        """
        try:
            with _index_build_lock(database, self.table):
                self._build(database)
        except (Refused, Stale) as error:
            log.warning("index on %s.%s failed: %s", self.table, self.column, error)
            reason = (
                f"The change is made, but the index of {self.table}.{self.column} "
                f"could not be built: {error}"
            )
            raise unavailable("database", reason) from error

    def _build(self, database: Database) -> None:
        try:
            # CREATE INDEX CONCURRENTLY runs outside any transaction.
            with database.autocommit_connection() as connection:
                connection.execute_ddl(self._index())
                # PostgreSQL has statistics of an expression only where an index is over it.
                if self._is_of_expression:
                    connection.execute_ddl(ddl.analyze(self.table))
                # Other processes may have loaded the structure before the index was there.
                connection.execute(statement("advance_structure"))
        except (Refused, Stale):
            self._drop_invalid(database)
            raise

    def _index(self) -> Fragment:
        if self.steps:
            path = array(self.steps)
            return ddl.path_index(self.table, self.column, path, concurrently=True)
        return ddl.index(self.table, self.column, self.kind, concurrently=True)

    @property
    def _is_of_expression(self) -> bool:
        return self.kind is IndexKind.TRIGRAMS or bool(self.steps)

    def _drop_invalid(self, database: Database) -> None:
        """Drop the index of a failed build, which costs every write and serves no read."""
        parameters = self.table, self.column, str(self._is_of_expression)
        with database.autocommit_connection() as connection:
            for (index,) in connection.execute(statement("invalid_indexes"), parameters):
                connection.execute_ddl(ddl.drop_index(index))


@contextmanager
def _index_build_lock(database: Database, table: str) -> Iterator[None]:
    """Let builds on a table take turns on all machines: two of them would wait for each other.

    The lock is that of a transaction, so that it holds behind a pooler as well, and is tried again
    and again. A concurrent build waits for older snapshots: a statement that waits for the lock has
    one, and a transaction that does nothing can do without.
    """
    with database.autocommit_connection() as session:
        while True:
            with session.read_committed():
                if session.execute(statement("lock_index_build"), (table,))[0][0]:
                    session.rest()
                    yield
                    return
            time.sleep(LOCK_RETRY_SECONDS)


def add_index(
    transaction: Transaction, table: str, column: str, kind: IndexKind = IndexKind.VALUES
) -> None:
    """Add an index, inside the transaction unless the table is large."""
    deferred = DeferredIndex(table, column, kind)
    # Several changes of one transaction may each need the index.
    if deferred in transaction.after_commit:
        return
    if transaction.execute(statement("is_large"), (table, LARGE_BYTES))[0][0]:
        transaction.after_commit.append(deferred)
    else:
        transaction.execute_ddl(ddl.index(table, column, kind))
        if kind is IndexKind.TRIGRAMS:
            # Without statistics PostgreSQL takes each word for a frequent one, and scans the table.
            transaction.execute_ddl(ddl.analyze(table))


def update_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Create the indexes that a collection needs for its manual order and its searches."""
    field = collection.fields.get(collection.sort_field or "")
    if field and collection.kind is Kind.TABLE and _lacks_index(transaction, field):
        add_index(transaction, collection.name, field.name, field.type.index_kind)
    update_search_indexes(transaction, collection, extensions)


def _lacks_index(transaction: Transaction, field: Field) -> bool:
    column = field.column
    if column is None or column.is_indexed or column.is_unique or column.is_primary_key:
        return False
    return not is_index_pending(transaction, field.collection, field.name)


def update_search_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Create the indexes for searches in a collection, or drop them if it is not searchable.

    All searched fields get one: a search looks for a word in any of them, and so a single field
    without an index makes it scan the table.
    """
    if collection.kind is not Kind.TABLE:
        return
    searched: dict[str, Field] = {}
    if collection.meta and collection.meta.get("searchable"):
        for field in collection.columns:
            # No index helps with a value that is searched in its text form.
            if field.is_searchable and not field.type.is_text_form:
                searched[field.name] = field
    rows = transaction.read(statement("search_indexes"), (collection.name,))
    # Names of indexes by their columns.
    present: dict[str, str] = dict(rows)
    # An index that serves no search any more would only slow down writes.
    for column in present.keys() - searched.keys():
        transaction.execute_ddl(ddl.drop_index(present[column]))
    for field in searched.values():
        if field.type.search is not Search.CONTAINED:
            if field.column and not field.column.is_indexed:
                add_index(transaction, collection.name, field.name)
        # Without the extension searches still work, but read the whole table.
        elif field.name not in present and "pg_trgm" in extensions:
            add_index(transaction, collection.name, field.name, IndexKind.TRIGRAMS)


def drop_search_index(transaction: Transaction, field: Field) -> None:
    """Drop the index for searches for parts of words in a field, where there is one."""
    for column, index in transaction.read(statement("search_indexes"), (field.collection,)):
        if column == field.name:
            transaction.execute_ddl(ddl.drop_index(index))


def drop_path_indexes(transaction: Transaction, field: Field) -> None:
    """Drop the indexes of paths into a JSON field, which no other type has."""
    for row in transaction.read(statement("value_indexes"), (field.collection,)):
        _, column, steps, index, *_ = row
        if column == field.name and steps is not None:
            transaction.execute_ddl(ddl.drop_index(index))


def pending_indexes(transaction: Transaction) -> set[tuple[str, str]]:
    """Return the columns, by table and name, whose indexes are built after the commit.

    They will be there before the answer is sent, which therefore shows them.
    """
    pending = set()
    for step in transaction.after_commit:
        if isinstance(step, DeferredIndex) and step.kind is not IndexKind.TRIGRAMS:
            pending.add((step.table, step.column))
    return pending


def is_index_pending(transaction: Transaction, table: str, column: str) -> bool:
    """Tell whether the index of a column is built after the commit: see `pending_indexes`."""
    return (table, column) in pending_indexes(transaction)


def with_index(field: Field) -> Field:
    """Return a field as it will be when its column has an index."""
    assert field.column
    return replace(field, column=replace(field.column, is_indexed=True))
