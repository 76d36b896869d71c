"""Indexes of columns, built while others write, and tables on which only this will do."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as attribute

from cms.database.connections import Database, Fetch, Transaction, single_value, single_values
from cms.database.error_mapping import Deadlock, Stale, UnexpectedError
from cms.database.server_refusals import Canceled, LockTimeout
from cms.database.statements import statement
from cms.errors import Refused, invalid_query, unavailable
from cms.fragment import Fragment
from cms.query.sql.arguments import array
from cms.schema import ddl
from cms.schema.model import Field
from cms.schema.types.field_type import IndexKind

LARGE_BYTES = 16 * 2**20
"""Size of a table from which a plain CREATE INDEX delays writers noticeably.

It is that of about 100,000 rows, and the delay half a second.
"""

LOCK_TIME = "2s"
"""How long a build waits for those who use its table at its end, and others wait behind it."""

LOCK_PAUSE_SECONDS = 10.0
"""Seconds before it tries again."""

LOCK_RETRY_SECONDS = 0.1
"""Seconds before a build tries again to get the lock."""


@dataclass(frozen=True, slots=True)
class DeferredIndex:
    """An index that is built outside any transaction, without blocking writers.

    With `steps` it is over a path into a JSON column. `is_unique` is for one that makes the column
    unique. The collation of a nondeterministic column takes different texts for equal ones.
    """

    table: str
    column: str
    kind: IndexKind = IndexKind.VALUES
    steps: tuple[str, ...] = ()
    is_unique: bool = False
    # Not compared: a column that is renamed meanwhile has the same index.
    is_nondeterministic: bool = attribute(default=False, compare=False)

    def check_buildable(self, database: Database) -> None:
        """Raise `Refused` INVALID_QUERY for an index of a partitioned table."""
        rows = database.fetch_primary(statement("is_partitioned"), (self.table,))
        if not single_value(rows):
            return
        command, values = self._index().numbered()
        reason = (
            f'"{self.table}" is partitioned, and PostgreSQL builds no index of such a table while '
            "others write: create it in SQL, the index of each partition first"
        )
        if not values:
            reason += f" ({command})"
        raise invalid_query(reason)

    def create(self, transaction: Transaction) -> None:
        """Create the index while nobody else writes to the table."""
        transaction.execute_ddl(self._index())
        if self._is_of_expression:
            # Without statistics PostgreSQL takes each word for a frequent one, and scans the table.
            transaction.execute_ddl(ddl.analyze(self.table))

    def build(self, database: Database) -> str | None:
        """Build the index; the caller holds `index_build_lock`.

        Returns its name, because its column may be renamed meanwhile; None if the same index is
        there already. Nothing is left of a build that failed.
        """
        name = _new_name(self.table, self.column)
        try:
            # CREATE INDEX CONCURRENTLY runs outside any transaction.
            with database.autocommit_connection() as connection:
                connection.execute_ddl(self._index(name))
                # Another process may have made the same: if the session has ended that held the
                # lock for this one, or another program. Builds of a table take turns in PostgreSQL.
                is_repeated = connection.execute(statement("is_repeated"), (self.table, name))
                if single_value(is_repeated):
                    connection.execute_ddl(ddl.drop_index(name, concurrently=True))
                # PostgreSQL has statistics of an expression only where an index is over it.
                elif self._is_of_expression:
                    connection.execute_ddl(ddl.analyze(self.table))
                # Other processes may have loaded the structure before the index was there.
                connection.execute(statement("advance_structure"))
        except (Refused, Stale, UnexpectedError):
            drop_invalid(database, self.table, self.column, index=name)
            raise
        return None if single_value(is_repeated) else name

    def _index(self, built_as: str | None = None) -> Fragment:
        if self.is_unique:
            assert built_as is not None
            return ddl.unique_index(self.table, self.column, built_as=built_as)
        if self.steps:
            path = array(self.steps)
            return ddl.path_index(self.table, self.column, path, built_as=built_as)
        column = ddl.searched_text(self.column, is_nondeterministic=self.is_nondeterministic)
        return ddl.index(self.table, column, self.kind, built_as=built_as)

    @property
    def _is_of_expression(self) -> bool:
        return self.kind is IndexKind.TRIGRAMS or bool(self.steps)


def drop_invalid(database: Database, table: str, column: str, *, index: str | None = None) -> None:
    """Drop what failed builds have left of a column, or `index`, while others use the table.

    Such an index serves no read. It costs every write, and refuses those of values that are there
    if it is a unique one.
    """
    with database.autocommit_connection() as connection:
        rows = connection.execute(statement("invalid_indexes"), (table, column, index))
        for name in single_values(rows):
            connection.execute_ddl(ddl.drop_index(name, concurrently=True))


def drop_invalid_beside_change(transaction: Transaction, table: str, column: str) -> None:
    """Do the same in a change of structure, which has locked the table."""
    transaction.execute(statement("look_anew_at_progress"))
    rows = transaction.execute(statement("invalid_indexes"), (table, column, None))
    for name in single_values(rows):
        transaction.execute_ddl(ddl.drop_index(name))


def _new_name(table: str, column: str) -> str:
    """Return a name for an index that no other one has; PostgreSQL takes 63 bytes of it."""
    beginning = f"{table}_{column}".encode()[:50].decode(errors="ignore")
    return f"{beginning}_{secrets.token_hex(4)}"


def drop_while_used(database: Database, table: str, names: Sequence[str]) -> None:
    """Drop indexes while others use their table."""
    with database.autocommit_connection() as connection:
        rows = connection.execute(statement("is_partitioned"), (table,))
        is_partitioned = bool(single_value(rows))
        for name in names:
            if is_partitioned:
                _drop_of_partitions(database, connection, name)
            else:
                connection.execute_ddl(ddl.drop_index(name, concurrently=True))
        connection.execute(statement("advance_structure"))


def _drop_of_partitions(database: Database, connection: Transaction, index: str) -> None:
    """Drop an index of a partitioned table, as soon as nobody uses that."""
    while True:
        try:
            with connection.read_committed():
                limit_lock_time(connection)
                connection.execute_ddl(ddl.drop_index(index))
        except (LockTimeout, Deadlock):
            let_others_pass(database)
        else:
            return


def failed_build(sentence: str, error: Refused | Stale) -> Refused:
    """Return the refusal of a command, whose build of an index has failed for a reason."""
    reason = str(error)
    if isinstance(error, Refused):
        # Not the whole message, which says once more that the database is not available.
        reason = str(error.problems[0].extensions.get("reason", error))
    # These sessions have no time limit.
    if isinstance(error, Canceled):
        reason = (
            "A change of the structure of its table, or somebody else, has interrupted the build. "
            "Call the command again"
        )
    return unavailable("database", f"{sentence}: {reason}")


@contextmanager
def index_build_lock(database: Database, table: str) -> Iterator[None]:
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
            database.background.sleep(LOCK_RETRY_SECONDS)


def limit_lock_time(transaction: Transaction) -> None:
    """Let a transaction wait a short time only for a lock, as others who use the table wait too."""
    transaction.execute(statement("limit_lock_time"), (LOCK_TIME,))


def let_others_pass(database: Database) -> None:
    """Pause after a `LockTimeout`."""
    database.background.sleep(LOCK_PAUSE_SECONDS)


def is_large(transaction: Transaction, table: str) -> bool:
    return bool(large_tables(transaction, [table], min_bytes=LARGE_BYTES))


def large_tables(transaction: Transaction, tables: Iterable[str], *, min_bytes: int) -> list[str]:
    """Return those tables that take more bytes, by name; partitioned ones are never large."""
    parameters = array(sorted(tables)), min_bytes
    return [str(name) for (name,) in transaction.read(statement("find_large_tables"), parameters)]


def drop_path_indexes(transaction: Transaction, field: Field) -> None:
    """Drop the indexes of paths into a JSON field, which no other type has."""
    for row in transaction.read(statement("value_indexes"), (field.collection,)):
        _, column, steps, index, *_ = row
        if column == field.name and steps is not None:
            transaction.execute_ddl(ddl.drop_index(index))


# Constraints of unique indexes


def has_unique_constraint(fetch: Fetch, table: str, column: str) -> bool:
    """Tell whether a constraint makes a column unique, whoever has made it."""
    return bool(single_value(fetch(statement("has_unique_constraint"), (table, column))))


def unattached_index(fetch: Fetch, table: str, column: str) -> str | None:
    """Return an index that could become a unique constraint of a column."""
    rows = fetch(statement("unattached_unique_index"), (table, column))
    return next(iter(single_values(rows)), None)


def attach_unique_index(transaction: Transaction, table: str, index: str) -> None:
    """Make a unique constraint of an index, with a name that no constraint of others has."""
    names = transaction.execute(statement("name_for_constraint"), (table, index))
    constraint = str(single_value(names))
    transaction.execute_ddl(ddl.attach_unique_index(table, index, constraint=constraint))
