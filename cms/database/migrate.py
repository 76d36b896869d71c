"""Migrations: numbered SQL files that only go forward, and those of the queue.

The tables and functions of the queue come from the schema and the migrations of procrastinate. The
changes that this service makes to them (sql/queue) are applied after these, and again after each
newer migration, which may have replaced the same objects.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg.errors import Diagnostic

from cms.database.own_schema import (
    check_schema,
    create_schema,
    has_schema,
    schema_of,
)
from cms.database.statements import sql_folder, statement
from cms.distribution import OLDEST_SERVER
from cms.errors import Refused

FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+")

log = logging.getLogger(__name__)
DriverConnection = psycopg.Connection[tuple[Any, ...]]


class MigrationError(Exception):
    """The database cannot be brought to this version; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """The record of a migration in the database."""

    number: int
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Migration:
    """A file of sql/migrations; `name` is the file's name without its suffix."""

    number: int
    name: str
    sha256: str
    text: str


def migrate(dsn: str, *, folder: Path | None = None) -> list[str]:
    """Apply the missing migrations, each in a transaction of its own, and return their names.

    Several processes may call this at the same time: one applies a file, the others see that it
    is applied. With a `folder` its files are applied instead of this version's own, and nothing of
    the queue. Raises MigrationError; migrations that were applied before the error stay.
    """
    migrations = read_migrations(folder or sql_folder() / "migrations")
    applied = []
    with _connect(dsn) as connection:
        if (schema := schema_of(dsn)) is not None:
            _use_schema(connection, schema)
        # The next one is looked up each time: another process may have applied it meanwhile.
        while (name := _apply_next(connection, migrations)) is not None:
            applied.append(name)
        while folder is None and (name := _apply_next_of_queue(connection)) is not None:
            applied.append(name)
        if folder is None and _enable_unaccent(connection):
            applied.append("unaccent")
    return applied


def prepare_schema(dsn: str) -> None:
    """Create the schema that an address chooses, where it is missing; raises MigrationError."""
    if (schema := schema_of(dsn)) is not None:
        with _connect(dsn) as connection:
            _use_schema(connection, schema)


def pending(dsn: str, *, folder: Path | None = None) -> list[str]:
    """Return the names of the migrations that `migrate` would apply; raises as it does."""
    migrations = read_migrations(folder or sql_folder() / "migrations")
    with _connect(dsn) as connection:
        schema = schema_of(dsn)
        if schema is not None and not has_schema(connection, schema):
            # Tables of the next schema on the search path are those of another installation.
            names = _names(migrations)
            if folder is None:
                names += _names(missing_migrations(()))
            return names
        if schema is not None:
            _check_schema(connection, schema)
        names = _names(_missing(migrations, _applied(connection)))
        if folder is None:
            names += _names(_missing_of_queue(connection))
        return names


def _names(migrations: Sequence[Migration | QueueMigration]) -> list[str]:
    return [migration.name for migration in migrations]


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations of a folder, numbered 1, 2, 3 … without a gap."""
    migrations = tuple(map(_read, sorted(folder.glob("*.sql"))))
    if not migrations:
        # Without this error a database of any version would seem up to date.
        reason = f"There are no migrations in {folder}: the installation is not complete."
        raise MigrationError(reason)
    for number, migration in enumerate(migrations, start=1):
        if migration.number != number:
            reason = f"{migration.name}.sql stands where migration {number:04} should be."
            raise MigrationError(reason)
    return migrations


def _read(path: Path) -> Migration:
    match = FILE_NAME.fullmatch(path.stem)
    text = path.read_text(encoding="utf-8")
    # Without a number in its name a file has no position in the order.
    if match is None:
        raise MigrationError(f"{path.name} is not named like a migration: 0001_words.sql.")
    # Somebody who reads a failed migration should first read its purpose.
    if not text.startswith("-- "):
        raise MigrationError(
            f"The first line of {path.name} must be a comment that says why it is there."
        )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Migration(int(match[1]), path.stem, digest, text)


@contextmanager
def _connect(dsn: str) -> Iterator[DriverConnection]:
    # With autocommit, transactions begin where `transaction()` says, not at the first statement.
    try:
        connection = psycopg.connect(
            dsn, autocommit=True, cursor_factory=psycopg.RawCursor, client_encoding="utf8"
        )
    except psycopg.ProgrammingError:
        # Without the driver's text, which quotes the address and with it the password.
        raise MigrationError("The address of the database is not well-formed.") from None
    except psycopg.OperationalError as error:
        raise MigrationError(f"The database cannot be reached: {error}") from error
    with connection:
        check_server(connection.info.server_version)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        # Behind a pooler each transaction may be in another session, without prepared statements.
        connection.prepare_threshold = None
        connection.add_notice_handler(_log_warning)
        try:
            yield connection
        except psycopg.Error as error:
            raise MigrationError(
                f"The database did not do what migrations need: {error}"
            ) from error


def check_server(version: int) -> None:
    """Refuse a server that is too old; `version` is a number, 140005 for 14.5."""
    if version < OLDEST_SERVER * 10_000:
        raise MigrationError(
            f"PostgreSQL {OLDEST_SERVER} or newer is needed; this server is {version // 10_000}."
        )


def _log_warning(notice: Diagnostic) -> None:
    if notice.severity_nonlocalized == "WARNING":
        log.warning("%s", notice.message_primary)


def _use_schema(connection: DriverConnection, schema: str) -> None:
    """Create the schema of the address if it is missing, and the extensions that schemas share."""
    with connection.transaction():
        # Two installations may begin at once, which share a database and its extensions.
        _execute(connection, "lock_database")
        with _refused_migration():
            create_schema(connection, schema)
        _check_schema(connection, schema)
        if not _has_table(connection):
            _execute(connection, "create_shared_extensions")


def _check_schema(connection: DriverConnection, schema: str) -> None:
    with _refused_migration():
        check_schema(connection, schema, needs_tables=False)


@contextmanager
def _refused_migration() -> Iterator[None]:
    """Turn a refusal into the error of a migration, in the same words."""
    try:
        yield
    except Refused as error:
        raise MigrationError(str(error)) from None


def _apply_next(connection: DriverConnection, migrations: Sequence[Migration]) -> str | None:
    """Apply the first missing migration; the lock comes first, so that nobody else applies it."""
    with connection.transaction():
        _execute(connection, "lock_migrations")
        missing = _missing(migrations, _applied(connection))
        if not missing:
            return None
        with _named_failures(missing[0].name):
            _apply(connection, missing[0])
    # After the commit: before it the migration may still come to nothing.
    log.info("applied migration %s", missing[0].name)
    return missing[0].name


@contextmanager
def _named_failures(name: str) -> Iterator[None]:
    """Say in an error of PostgreSQL which migration failed."""
    try:
        yield
    except psycopg.Error as error:
        raise MigrationError(f"Migration {name} failed: {error}") from error


def _apply(connection: DriverConnection, migration: Migration) -> None:
    # A migration of large tables takes longer than any statement of a request may.
    _execute(connection, "lift_time_limit")
    if not _has_table(connection):
        _execute(connection, "create_migrations_table")
    # Without parameters, so that psycopg sends all statements of the file at once: PostgreSQL takes
    # parameters for single statements only.
    connection.execute(migration.text.encode())
    _execute(connection, "record_migration", migration.number, migration.name, migration.sha256)


def _apply_next_of_queue(connection: DriverConnection) -> str | None:
    """Apply the first missing migration of the queue, under the same lock as other migrations."""
    with connection.transaction():
        _execute(connection, "lock_migrations")
        missing = _missing_of_queue(connection)
        if not missing:
            return None
        _execute(connection, "lift_time_limit")
        _execute(connection, "create_queue_table")
        with _named_failures(missing[0].name):
            connection.execute(missing[0].text.encode())
        _execute(connection, "record_queue_migrations", list(missing[0].migrations))
    log.info("applied migration %s", missing[0].name)
    return missing[0].name


def _enable_unaccent(connection: DriverConnection) -> bool:
    """Let searches ignore accents when the extension for it was installed after the tables."""
    with connection.transaction():
        _execute(connection, "lock_migrations")
        if _execute(connection, "needs_unaccent").fetchone() != (True,):
            return False
        _execute(connection, "lift_time_limit")
        _execute(connection, "ignore_accents")
    log.info("searches leave accents out from now on")
    return True


def _missing_of_queue(connection: DriverConnection) -> Sequence[QueueMigration]:
    is_recorded, has_queue = _execute(connection, "find_queue_tables").fetchone() or (False, False)
    # Two programs with one queue would take each other's jobs.
    if has_queue and not is_recorded:
        raise MigrationError(
            "This schema holds the queue (procrastinate) of another program. Give the service "
            "a schema of its own: docs/deployment.md tells how."
        )
    applied = []
    if is_recorded:
        applied = [name for (name,) in _execute(connection, "list_queue_migrations")]
    try:
        return missing_migrations(applied)
    except ValueError as reason:
        raise MigrationError(str(reason)) from None


def _applied(connection: DriverConnection) -> list[AppliedMigration]:
    if not _has_table(connection):
        return []
    return [AppliedMigration(*row) for row in _execute(connection, "list_migrations")]


def _has_table(connection: DriverConnection) -> bool:
    return _execute(connection, "find_migrations_table").fetchone() == (True,)


def _execute(
    connection: DriverConnection, name: str, *values: object
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Run a statement of sql/queries by its name."""
    return connection.execute(statement(name).encode(), values or None)


def _missing(
    migrations: Sequence[Migration], applied: Sequence[AppliedMigration]
) -> Sequence[Migration]:
    """Return the migrations after the applied ones, which must be the first ones, unchanged."""
    # An older version must not write to tables that it does not know.
    if applied and applied[-1].number > len(migrations):
        raise MigrationError(
            f"The database was migrated by a newer version ({applied[-1].name}); this version "
            f"knows migrations up to {migrations[-1].name}. Install the newer version again."
        )
    for migration, record in zip(migrations[: len(applied)], applied, strict=True):
        _check(migration, record)
    return migrations[len(applied) :]


def _check(migration: Migration, record: AppliedMigration) -> None:
    if (migration.number, migration.name) != (record.number, record.name):
        raise MigrationError(
            f"The database was made with migration {record.name}, but {migration.name} is here "
            "in its place. Old migrations are neither removed nor renamed: restore the file."
        )
    # The database has the former content of the file: the two would differ from now on.
    if migration.sha256 != record.sha256:
        raise MigrationError(
            f"Migration {migration.name} was changed after it had been applied. "
            "Restore the file, and put the change into a new migration."
        )


# The migrations of the queue


@dataclass(frozen=True, slots=True)
class QueueMigration:
    """SQL to run in one transaction, and the names of the migrations that it applies."""

    name: str
    text: str
    migrations: tuple[str, ...]


def missing_migrations(applied: Collection[str]) -> tuple[QueueMigration, ...]:
    """Return the migrations to apply: the whole schema where none was applied before.

    Raises ValueError when the tables are of a newer version of the package.
    """
    # Their names begin with the version that they came with: sorted, they are in their order.
    files = _files(_package_folder() / "migrations")
    # The name of a change says after which migration it was made.
    last = list(files)[-1]
    changes = {f"{last} {name}": path for name, path in _files(sql_folder() / "queue").items()}
    if not applied:
        # The schema of a version holds all of its migrations.
        name = f"procrastinate {version('procrastinate')}"
        schema = QueueMigration(name, _text(_package_folder() / "schema.sql"), tuple(files))
        return (schema, *_queue_migrations(changes, applied))
    # Names of changes begin with that of a migration, too.
    known_to_tables = {name.split()[0] for name in applied}
    newer = sorted(known_to_tables - files.keys())
    # An older package must not work on tables that it does not know.
    if newer:
        raise ValueError(
            f"The queue was migrated by a newer version of procrastinate ({newer[-1]}). "
            "Install the newer version again."
        )
    return tuple(_queue_migrations({**files, **changes}, applied))


def _queue_migrations(
    files: Mapping[str, Path], applied: Collection[str]
) -> Iterator[QueueMigration]:
    for name, path in files.items():
        if name not in applied:
            yield QueueMigration(f"procrastinate {name}", _text(path), (name,))


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their names, in the order of these."""
    return {path.stem: path for path in sorted(folder.glob("*.sql"))}


@cache
def _package_folder() -> Path:
    """Return the folder of the package's SQL files without importing it, which takes long."""
    spec = find_spec("procrastinate")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "sql"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
