"""Builds of what large tables lack, beside writers: indexes, and checks of constraints.

Each is a job of the queue, which names a field and what was asked for it. A job is renamed with its
field, and loses what it asks for when that is withdrawn. Whether it is there, PostgreSQL tells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cms.database.connections import Database, Fetch, Transaction, single_value, single_values
from cms.database.error_mapping import Conflict, Deadlock, Stale, UnexpectedError
from cms.database.server_refusals import Canceled, LockTimeout
from cms.database.statements import statement
from cms.errors import Refused
from cms.jobs.task import Job, JobError, PermanentError
from cms.schema import ddl
from cms.schema.model import BuildKind, Catalogue
from cms.schema.types.field_type import IndexKind
from cms.store.snapshot import load_snapshot
from cms.structure.indexes import (
    DeferredIndex,
    attach_unique_index,
    drop_invalid,
    drop_while_used,
    has_unique_constraint,
    index_build_lock,
    let_others_pass,
    limit_lock_time,
    unattached_index,
)
from cms.structure.search_indexes import missing_search_indexes, search_indexes

log = logging.getLogger("cms.store")

INDEX_BUILD_TASK = "build"
"""The task of the queue that builds one thing that a large table lacks."""

INDEX_BUILDS = 1
"""How many of these jobs a worker runs at a time, beside others: one may take hours."""

VIOLATIONS = ("RECORD_NOT_UNIQUE", "INVALID_FOREIGN_KEY")
"""The codes of the errors of rows that violate a constraint."""

BUILD_POLL_SECONDS = 1.0
"""Seconds between two looks at a build that a killed process has left behind."""


@dataclass(frozen=True, slots=True)
class ForeignKeyCheck:
    """The check of a foreign key, which holds for new rows, for those that were stored before."""

    table: str
    column: str

    def run(self, database: Database) -> None:
        """Check the stored rows; raises `Conflict` if one points to no item."""
        parameters = self.table, self.column
        rows = database.fetch_primary(statement("unchecked_foreign_keys"), parameters)
        for constraint in single_values(rows):
            # Without a time limit, and outside any transaction, whose locks would stay.
            with database.autocommit_connection() as connection:
                connection.execute_ddl(ddl.validate_constraint(self.table, constraint))
                connection.execute(statement("advance_structure"))


Build = DeferredIndex | ForeignKeyCheck
"""What a table lacks."""


def run_index_build_job(database: Database, job: Job) -> None:
    """Do a job of the queue; raises `JobError` for a build that failed."""
    try:
        build(database, job.id)
    except (Refused, Stale) as error:
        raise JobError(str(error)) from error


def build(database: Database, job: int) -> None:
    """Build what a job asks for, if that is not there, without blocking writers.

    May be called again after a process that did so was killed, and by several at once. Raises
    `PermanentError` for a constraint that stored rows violate: to try it again would not help
    before somebody has changed the rows, and asks for it again.
    """
    for table, column, _ in database.fetch_primary(statement("find_build"), (job,)):
        with index_build_lock(database, table):
            while _is_building(database, table):
                database.background.sleep(BUILD_POLL_SECONDS)
            drop_invalid(database, table, column)
            built: set[Build] = set()
            # Built once: another program may have changed a column so that no index serves it.
            while (missing := _missing_build(database, job)) and missing not in built:
                if _build_unless_interrupted(database, job, missing):
                    built.add(missing)
            if not built:
                # Others have made it, which the processes do not know of yet.
                with _patient_transaction(database) as transaction:
                    transaction.execute(statement("advance_structure"))


def _is_building(database: Database, table: str) -> bool:
    """Tell whether the server goes on with a build whose client is gone."""
    return bool(single_value(database.fetch_primary(statement("is_building"), (table,))))


def _missing_build(database: Database, job: int) -> Build | None:
    """Return what a job asks for and is not there; forget what others ask for that is.

    Another program may have made it, or the builder was killed before the end of its job.
    """
    database.background.check_running()
    with _patient_transaction(database) as transaction:
        # A change of structure that has interrupted the build may rename or withdraw it.
        transaction.execute(statement("await_structure"))
        catalogue = load_snapshot(transaction).catalogue
        for table, column, kind in transaction.execute(statement("find_build"), (job,)):
            missing = _missing(transaction.execute, catalogue, table, column, kind)
            _forget_present(transaction, catalogue, table, job)
            return missing
    return None


def _forget_present(transaction: Transaction, catalogue: Catalogue, table: str, job: int) -> None:
    """Forget what other jobs ask for of a table that is there, or never will be."""
    forgotten = 0
    for column, kind in transaction.execute(statement("find_builds_of_table"), (table,)):
        if _missing(transaction.execute, catalogue, table, column, kind):
            continue
        # What is left of a build that was broken off is dropped by its own job.
        if not transaction.execute(statement("invalid_indexes"), (table, column, None)):
            forgotten += len(
                transaction.execute(statement("forget_build"), (table, column, kind, job))
            )
    if forgotten:
        transaction.execute(statement("advance_structure"))


def _missing(
    fetch: Fetch, catalogue: Catalogue, table: str, column_name: str, kind: str
) -> Build | None:
    """Return what was asked for of a column, unless it is there or the column is gone."""
    collection = catalogue.collections.get(table)
    field = collection.fields.get(column_name) if collection else None
    if collection is None or field is None or field.column is None:
        return None
    if kind == BuildKind.SEARCH:
        indexes = missing_search_indexes(collection, catalogue.extensions)
        return next((index for index in indexes if index.column == column_name), None)
    if kind == BuildKind.FOREIGN_KEY:
        return ForeignKeyCheck(table, column_name) if field.column.has_unchecked_key else None
    if kind == BuildKind.UNIQUE:
        # Without a constraint it is unique by an index of which one is still to be made.
        if has_unique_constraint(fetch, table, column_name):
            return None
        return DeferredIndex(table, column_name, is_unique=True)
    if field.column.is_indexed:
        return None
    return DeferredIndex(table, column_name, field.type.index_kind)


def _build_unless_interrupted(database: Database, job: int, missing: Build) -> bool:
    """Build, and tell whether it is there now.

    Otherwise a change of structure has interrupted it, or has made it needless.
    """
    try:
        if isinstance(missing, ForeignKeyCheck):
            missing.run(database)
            return True
        index = _build_index(database, missing)
    except (Refused, Stale, UnexpectedError) as error:
        # It was given up or renamed meanwhile, its column is gone, or it was built all the same.
        if _missing_build(database, job) != missing:
            return False
        _refuse_violation(database, job, missing, error)
        # This session has no time limit: another one has canceled the build.
        if not isinstance(error, Canceled | Deadlock):
            raise
        return False
    while True:
        try:
            return _finish(database, missing, index)
        except LockTimeout:
            let_others_pass(database)


def _build_index(database: Database, missing: DeferredIndex) -> str | None:
    """Build, and return the name of the index, unless the same one is there already."""
    if missing.is_unique:
        # A builder may have been killed before it made a constraint of its index.
        index = unattached_index(database.fetch_primary, missing.table, missing.column)
        if index:
            return index
    return missing.build(database)


def _refuse_violation(database: Database, job: int, missing: Build, error: Exception) -> None:
    """Raise `PermanentError`, and note why, if stored rows violate a constraint."""
    if not isinstance(error, Conflict):
        return
    code = error.problems[0].code
    if code in VIOLATIONS:
        with database.transaction() as transaction:
            transaction.execute(statement("note_violation"), (job, code))
        reason = f"rows of {missing.table} violate the constraint of {missing.column}: {code}"
        raise PermanentError(reason) from error


def _finish(database: Database, built: DeferredIndex, index: str | None) -> bool:
    """Make a constraint of a unique index, and drop an index that was withdrawn meanwhile.

    Returns whether it stays. Raises `LockTimeout`.
    """
    if built.is_unique:
        # Changes of other tables do not wait for those who use this one.
        with _table_locked(database, built.table) as transaction:
            return _constrain(transaction, built, index)
    with _patient_transaction(database) as transaction:
        # No change of structure comes between this look and what it leads to.
        transaction.execute(statement("await_structure"))
        if index is None or _is_wanted(transaction, built, index):
            return True
    # Who asks for it again meanwhile has another one built.
    drop_while_used(database, built.table, [index])
    return False


def _constrain(transaction: Transaction, built: DeferredIndex, index: str | None) -> bool:
    """Make a constraint of a unique index, or drop it."""
    index = index or unattached_index(transaction.execute, built.table, built.column)
    if index is None:
        return False
    if _is_wanted(transaction, built, index):
        attach_unique_index(transaction, built.table, index)
        return True
    transaction.execute_ddl(ddl.drop_index(index))
    return False


def _is_wanted(transaction: Transaction, built: DeferredIndex, index: str) -> bool:
    """Tell whether an index was asked for, and others have not made the same constraint.

    By the present name of its column; one that a change of structure has dropped is not wanted.
    """
    rows = transaction.execute(statement("find_built_index"), (built.table, index))
    for column, kinds, has_constraint in rows:
        # Without the catalogue, which takes long to load: the table is locked then.
        if built.is_unique:
            return BuildKind.UNIQUE in kinds and not has_constraint
        if built.kind is not IndexKind.TRIGRAMS and BuildKind.INDEX in kinds:
            return True
        catalogue = load_snapshot(transaction).catalogue
        needed = search_indexes(catalogue.collections[built.table], catalogue.extensions)
        return replace(built, column=column) in needed
    return False


@contextmanager
def _table_locked(database: Database, table: str) -> Iterator[Transaction]:
    """Open a transaction that locks a table, and the structure for other changes.

    The table first, because that takes as long as others use it, and no change of other tables has
    to wait for them. Raises `LockTimeout`.
    """
    while True:
        with _patient_transaction(database) as transaction:
            limit_lock_time(transaction)
            transaction.execute_ddl(ddl.lock(table))
            # Not waited for, as the change that is under way may be about to lock the table.
            if transaction.execute(statement("advance_free_structure")):
                yield transaction
                return
        with _patient_transaction(database) as transaction:
            transaction.execute(statement("await_structure"))


@contextmanager
def _patient_transaction(database: Database) -> Iterator[Transaction]:
    """Open a transaction that waits for a change of structure as long as that takes."""
    # Of no pool: closing the service interrupts it.
    with database.autocommit_connection() as session, session.read_committed():
        yield session
