"""Indexes of columns, built while others write, and tables on which only this will do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as attribute

from cms.database.connections import Database, Transaction, single_value, single_values
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
        command, values = self._index(concurrently=False).numbered()
        reason = (
            f'"{self.table}" is partitioned, and PostgreSQL builds no index of such a table while '
            "others write: create it in SQL, the index of each partition first"
        )
        if not values:
            reason += f" ({command})"
        raise invalid_query(reason)

    def create(self, transaction: Transaction) -> None:
        """Create the index while nobody else writes to the table."""
        transaction.execute_ddl(self._index(concurrently=False))
        if self._is_of_expression:
            # Without statistics PostgreSQL takes each word for a frequent one, and scans the table.
            transaction.execute_ddl(ddl.analyze(self.table))

    def build(self, database: Database) -> str | None:
        """Build the index; the caller holds `index_build_lock`.

        Returns its oid, because its column may be renamed meanwhile; None if the same index is
        there already.
        """
        others: set[str] | None = None
        try:
            # CREATE INDEX CONCURRENTLY runs outside any transaction.
            with database.autocommit_connection() as connection:
                others = self._oids_of_table(connection)
                connection.execute_ddl(self._index(concurrently=True))
                oid = self._keep_new(connection, others)
                # PostgreSQL has statistics of an expression only where an index is over it.
                if self._is_of_expression:
                    connection.execute_ddl(ddl.analyze(self.table))
                # Other processes may have loaded the structure before the index was there.
                connection.execute(statement("advance_structure"))
        except (Refused, Stale, UnexpectedError):
            if others is not None:
                self._drop_remains(database, others)
            raise
        return oid

    def _keep_new(self, connection: Transaction, others: Set[str]) -> str | None:
        """Return the oid of the new index, or drop it if another process has made the same one.

        It has, if the session has ended that held the lock for this process, or another program.
        Builds of a table take turns in PostgreSQL, too: the last one has the highest oid.
        """
        parameters = self.table, array(sorted(others))
        for oid, name, is_repeated in connection.execute(statement("find_new_index"), parameters):
            if not is_repeated:
                return str(oid)
            connection.execute_ddl(ddl.drop_index(name, concurrently=True))
        return None

    def _drop_remains(self, database: Database, others: Set[str]) -> None:
        """Drop what this build has left, whatever the name of its column is by now."""

        def remains(connection: Transaction) -> list[str]:
            rows = connection.execute(statement("list_invalid_indexes"), (self.table,))
            return [name for oid, name in rows if oid not in others]

        _drop_beside_others(database, self.table, remains)

    def _oids_of_table(self, connection: Transaction) -> set[str]:
        rows = connection.execute(statement("list_indexes_of_table"), (self.table,))
        return set(single_values(rows))

    def _index(self, *, concurrently: bool) -> Fragment:
        if self.is_unique:
            return ddl.unique_index(self.table, self.column)
        if self.steps:
            path = array(self.steps)
            return ddl.path_index(self.table, self.column, path, concurrently=concurrently)
        column = ddl.searched_text(self.column, is_nondeterministic=self.is_nondeterministic)
        return ddl.index(self.table, column, self.kind, concurrently=concurrently)

    @property
    def _is_of_expression(self) -> bool:
        return self.kind is IndexKind.TRIGRAMS or bool(self.steps)

    def drop_invalid(self, database: Database) -> None:
        """Drop the index of a failed build, which serves no read.

        It costs every write, and refuses those of values that are there if it is a unique one.
        """
        _drop_beside_others(database, self.table, self._invalid)

    def _invalid(self, connection: Transaction) -> list[str]:
        is_of_expression = str(self._is_of_expression)
        parameters = self.table, self.column, is_of_expression, str(self.is_unique)
        return single_values(connection.execute(statement("invalid_indexes"), parameters))


def _drop_beside_others(
    database: Database, table: str, find: Callable[[Transaction], list[str]]
) -> None:
    """Drop indexes of a table as soon as nobody uses it."""
    with database.autocommit_connection() as connection:
        while find(connection):
            try:
                _lock_and_drop(connection, table, find)
            except (LockTimeout, Deadlock):
                let_others_pass(database)


def _lock_and_drop(
    connection: Transaction, table: str, find: Callable[[Transaction], list[str]]
) -> None:
    with connection.read_committed():
        limit_lock_time(connection)
        # Under the lock, because a change of the column's type may have made one valid.
        connection.execute_ddl(ddl.lock(table))
        for index in find(connection):
            connection.execute_ddl(ddl.drop_index(index))


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


def drop_invalid_indexes(transaction: Transaction, field: Field) -> None:
    """Drop the indexes of a field whose builds were broken off; the transaction locks the table."""
    transaction.execute(statement("look_anew_at_progress"))
    for is_of_expression in (True, False):
        for is_unique in (True, False):
            parameters = field.collection, field.name, str(is_of_expression), str(is_unique)
            rows = transaction.execute(statement("invalid_indexes"), parameters)
            for index in single_values(rows):
                transaction.execute_ddl(ddl.drop_index(index))


def drop_path_indexes(transaction: Transaction, field: Field) -> None:
    """Drop the indexes of paths into a JSON field, which no other type has."""
    for row in transaction.read(statement("value_indexes"), (field.collection,)):
        _, column, steps, index, *_ = row
        if column == field.name and steps is not None:
            transaction.execute_ddl(ddl.drop_index(index))
