"""Whole tables in and out of PostgreSQL, for backups: COPY in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cms.database.connections import Transaction, single_value
from cms.database.error_mapping import Deadlock, mapped_errors
from cms.database.own_schema import check_schema, schema_of
from cms.database.session_setup import (
    CONNECTION_ARGUMENTS,
    address_arguments,
    configure,
    options_of,
)
from cms.database.statement_meter import StatementMeter
from cms.database.statements import statement
from cms.database.wire import Connection, Epochs

_SETTINGS = {
    # Values as text must not depend on the server's settings: they are read by another one.
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    # A backup takes as long as it takes.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # An error rather than a backup without the rows that a policy hides.
    "row_security": "off",
}


class BulkError(Exception):
    """PostgreSQL refused to do something with whole tables; the text has no values of rows."""


class Missing(BulkError):
    """A statement names something that is not there, or not any more."""


class NotReady(BulkError):
    """A statement needs another object that is not ready yet, such as a view that is empty."""


class TableLocked(Exception):
    """Others hold a table for too long, or wait for a lock of this transaction."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


class TableInSchema(NamedTuple):
    """The name of a table with its schema.

    By its bare name alone PostgreSQL would find a table of its own catalogue first, or a temporary
    one.
    """

    schema: str
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


@contextmanager
def bulk_transaction(dsn: str, *, reads_only: bool) -> Iterator[Transaction]:
    """Open a connection for one transaction without limits of time.

    One that only reads is REPEATABLE READ: all of its statements see the same rows.
    """
    with _connection(dsn) as connection:
        if reads_only:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
        with connection.transaction():
            yield Transaction(connection, prepare=False)


@contextmanager
def keeping_contents(dsn: str) -> Iterator[None]:
    """Keep the service from removing contents of files while the block runs."""
    with _connection(dsn) as connection:
        Transaction(connection, prepare=False).execute(statement("keep_contents"))
        yield


@contextmanager
def _connection(dsn: str) -> Iterator[Connection]:
    options = options_of(_SETTINGS)
    with (
        mapped_errors(),
        Connection.connect(
            dsn,
            **CONNECTION_ARGUMENTS,
            **address_arguments(dsn, options),
            client_encoding="utf8",
        ) as connection,
    ):
        # Before any transaction, whose snapshot comes with its first statement.
        if (schema := schema_of(dsn)) is not None:
            check_schema(connection, schema, needs_tables=False)
        configure(connection, epochs=Epochs(), meter=StatementMeter())
        yield connection


def lock_for_reading(transaction: Transaction, tables: Sequence[TableInSchema]) -> None:
    """Keep others from changing tables; before any query, whose snapshot comes with it."""
    if tables:
        purpose = "The tables cannot be locked"
        _run(transaction, "LOCK TABLE {} IN ACCESS SHARE MODE", tables, purpose=purpose)


def copy_out(
    transaction: Transaction, table: TableInSchema, columns: Sequence[str]
) -> Iterator[bytes]:
    """Yield the rows of a table as PostgreSQL's text format has them, a line for each."""
    command = sql.SQL("COPY {} TO STDOUT").format(_with_columns(table, columns))
    with (
        plain_errors(f"The table {table.name} cannot be read"),
        transaction.connection.cursor() as cursor,
        cursor.copy(command) as copy,
    ):
        for data in copy:
            yield bytes(data)


def copy_in(
    transaction: Transaction, table: TableInSchema, columns: Sequence[str], pieces: Iterator[bytes]
) -> int:
    """Add rows in PostgreSQL's text format to a table, and return how many there were."""
    command = sql.SQL("COPY {} FROM STDIN").format(_with_columns(table, columns))
    with (
        plain_errors(f"The table {table.name} cannot be written"),
        transaction.connection.cursor() as cursor,
    ):
        with cursor.copy(command) as copy:
            for piece in pieces:
                copy.write(piece)
        return cursor.rowcount


def run_script(transaction: Transaction, script: str, *, purpose: str) -> None:
    """Run statements that take no parameters; `purpose` begins the message of an error."""
    with plain_errors(purpose):
        transaction.connection.execute(script.encode())


def lock_alone(
    transaction: Transaction, tables: Sequence[TableInSchema], *, patience: timedelta | None
) -> None:
    """Keep everybody else from reading and writing tables, in a savepoint.

    Raises `TableLocked` when that takes longer than `patience`; None is without an end.
    """
    deadline = None
    if patience is not None:
        deadline = time.monotonic() + patience.total_seconds()
    for table in tables:
        purpose = f"The table {table.name} cannot be locked"
        try:
            limit_waiting(transaction, deadline)
            _run(transaction, "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", [table], purpose=purpose)
        except Deadlock:
            raise TableLocked(table.name) from None


def limit_waiting(transaction: Transaction, deadline: float | None) -> None:
    """Let the transaction wait for locks until a time of the monotonic clock; None is no limit."""
    # To PostgreSQL, 0 is no limit.
    milliseconds = 0
    if deadline is not None:
        milliseconds = max(1, round((deadline - time.monotonic()) * 1000))
    transaction.execute(statement("limit_waiting_for_locks"), (str(milliseconds),))


def create_extension(transaction: Transaction, name: str, *, schema: str) -> None:
    """Install an extension where it is not installed."""
    names = {"schema": sql.Identifier(schema), "name": sql.Identifier(name)}
    commands = ["CREATE EXTENSION IF NOT EXISTS {name} SCHEMA {schema}"]
    # IF NOT EXISTS would need the right to make one even where it is there.
    ((has_schema,),) = transaction.execute(statement("has_schema"), (schema,))
    if not has_schema:
        commands.insert(0, "CREATE SCHEMA {schema}")
    with plain_errors(f"The extension {name} cannot be installed"):
        for command in commands:
            transaction.connection.execute(sql.SQL(command).format(**names))


def refresh_views(transaction: Transaction, views: Sequence[TableInSchema]) -> list[TableInSchema]:
    """Fill materialized views, and return those that stay empty, for they read an empty one."""
    rest = list(views)
    while True:
        # A view that reads another one is filled after it.
        unfilled = [view for view in rest if not _is_filled(transaction, view)]
        if len(unfilled) == len(rest):
            return unfilled
        rest = unfilled


def _is_filled(transaction: Transaction, view: TableInSchema) -> bool:
    """Fill a materialized view, unless it reads one that is still empty."""
    purpose = f"The view {view.name} cannot be filled"
    try:
        with transaction.savepoint():
            _run(transaction, "REFRESH MATERIALIZED VIEW {}", [view], purpose=purpose)
    except NotReady:
        return False
    return True


def sequence_position(transaction: Transaction, sequence: TableInSchema) -> tuple[int, bool]:
    """Return the value of a sequence, and whether it has been given out.

    PostgreSQL's view of sequences leaves out values that have not: those of `ALTER SEQUENCE …
    RESTART WITH`.
    """
    query = sql.SQL("SELECT last_value, is_called FROM {}").format(sequence.identifier)
    with plain_errors(f"The sequence {sequence.name} cannot be read"):
        ((value, is_given_out),) = transaction.connection.execute(query)
    return int(value), bool(is_given_out)


def analyze(transaction: Transaction, tables: Sequence[TableInSchema]) -> None:
    """Let PostgreSQL look at new rows, by which it plans statements."""
    if tables:
        _run(transaction, "ANALYZE {}", tables, purpose="The tables cannot be analysed")


def lock_for_merging(transaction: Transaction, table: TableInSchema) -> None:
    """Keep everybody else from writing a table; others may read it."""
    purpose = "The table cannot be locked"
    _run(transaction, "LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", [table], purpose=purpose)


def has_rows(transaction: Transaction, table: TableInSchema) -> bool:
    query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table.identifier)
    with mapped_errors():
        return transaction.connection.execute(query).fetchone() == (True,)


def count_rows(transaction: Transaction, table: TableInSchema) -> int:
    query = sql.SQL("SELECT count(*) FROM {}").format(table.identifier)
    with mapped_errors():
        return int(single_value(transaction.connection.execute(query).fetchall()))


def address_without_password(dsn: str) -> tuple[str, str | None]:
    """Return the address for a command line, which everybody can read, and its password."""
    parameters = conninfo_to_dict(dsn)
    password = parameters.pop("password", None)
    return make_conninfo("", **parameters), None if password is None else str(password)


def _run(
    transaction: Transaction,
    command: LiteralString,
    names: Sequence[TableInSchema],
    *,
    purpose: str,
) -> None:
    """Run a command with names in the place of its braces."""
    identifiers = sql.SQL(", ").join(name.identifier for name in names)
    with plain_errors(purpose):
        transaction.connection.execute(sql.SQL(command).format(identifiers))


def _with_columns(table: TableInSchema, columns: Sequence[str]) -> sql.Composed:
    if not columns:
        return sql.Composed([table.identifier])
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("{} ({})").format(table.identifier, names)


@contextmanager
def plain_errors(purpose: str) -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
        raise Deadlock(f"{purpose}: others hold what it needs") from None
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise NotReady(f"{purpose}: {error.diag.message_primary}.") from None
    except psycopg.errors.UndefinedTable as error:
        raise Missing(f"{purpose}: {error.diag.message_primary}.") from None
    except psycopg.DataError as error:
        # All of its texts quote the value.
        reason = f"a value does not fit its column (SQLSTATE {error.sqlstate})."
        raise BulkError(f"{purpose}: {reason}") from None
    except psycopg.Error as error:
        # Without the detail and the context, which quote rows.
        reason = error.diag.message_primary or str(error)
        hint = error.diag.message_hint
        sentences = f"{reason}. {hint}" if hint else f"{reason}."
        raise BulkError(f"{purpose}: {sentences}") from None
