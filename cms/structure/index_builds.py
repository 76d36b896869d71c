"""Builds of what tables lack, beside writers: indexes, and checks of constraints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Set
from contextlib import contextmanager

from cms.database.connections import Database, Fetch, Transaction, single_values
from cms.database.error_mapping import Conflict, Deadlock, Stale
from cms.database.server_refusals import Canceled, LockTimeout
from cms.database.statements import statement
from cms.errors import Refused
from cms.jobs.task import Job, JobError, defer
from cms.query.sql.arrays import array
from cms.schema import ddl
from cms.schema.model import Catalogue, ConstraintRequest
from cms.schema.types.field_type import IndexKind
from cms.store.snapshot import load_snapshot
from cms.structure.foreign_key_checks import DeferredForeignKey
from cms.structure.indexes import (
    DeferredIndex,
    index_build_lock,
    let_others_pass,
    limit_lock_time,
)
from cms.structure.search_indexes import missing_search_indexes, search_indexes

log = logging.getLogger("cms.store")

INDEX_BUILD_TASK = "index_build"
"""The task of the queue that builds the indexes of one collection."""

FORMER_BUILD_TASK = "search_index"
"""Its former name, in jobs that a service of the version before has put in the queue."""

INDEX_BUILDS = 1
"""How many of these jobs a worker runs at a time, beside others: one may take hours."""

UNIQUE = "unique"
FOREIGN_KEY = "foreign_key"
"""The kinds of constraints in requests."""

VIOLATIONS = {UNIQUE: "RECORD_NOT_UNIQUE", FOREIGN_KEY: "INVALID_FOREIGN_KEY"}
"""The codes of the errors of rows that violate them."""

BUILD_POLL_SECONDS = 1.0
"""Seconds between two looks at a build that a killed process has left behind."""


Build = DeferredIndex | DeferredForeignKey
"""What a table lacks."""


def run_index_build_job(database: Database, job: Job) -> None:
    """Do a job of the queue; raises `JobError` for a build that failed."""
    try:
        build_indexes(database, str(job.payload["collection"]))
    except (Refused, Stale) as error:
        raise JobError(str(error)) from error


def run_former_build_job(database: Database, job: Job) -> None:
    """Have a job that has the task's former name run under its present one."""
    with database.transaction() as transaction:
        defer(transaction.execute, INDEX_BUILD_TASK, job.payload)


def build_indexes(database: Database, table: str) -> None:
    """Build what a table needs and does not have, without blocking writers.

    May be called again after a process that did so was killed, and by several at once. Raises the
    error of the first build that failed, after all others; constraints that stored rows violate
    are no such errors, as they are noted.
    """
    errors: list[Refused | Stale] = []
    with index_build_lock(database, table):
        # A server goes on with the build of a client that is gone.
        while _is_building(database, table):
            database.background.sleep(BUILD_POLL_SECONDS)
        _forget_built(database, table)
        tried: set[Build] = set()
        while build := _next_missing(database, table, tried):
            error = _build_uninterrupted(database, build, tried)
            if error:
                errors.append(error)
    if errors:
        raise errors[0]


def _next_missing(database: Database, table: str, tried: Set[Build]) -> Build | None:
    """Return something missing that was not tried; fields may have been renamed meanwhile."""
    database.background.check_running()
    missing = _missing(load_catalogue(database), table)
    return next((build for build in missing if build not in tried), None)


def _build_uninterrupted(
    database: Database, build: Build, tried: set[Build]
) -> Refused | Stale | None:
    """Build, again if a change of structure has interrupted it; return why it failed.

    What ends, well or badly, is noted as tried. What is not needed any more is not: the field of
    an index may be renamed and get its former name again. Nor is a constraint that rows violate: it
    is missing only if it was asked for again.
    """
    while True:
        try:
            is_built = _build(database, build)
        except (Refused, Stale) as error:
            database.background.check_running()
            # It was given up meanwhile, its column is gone, or it was built before the error.
            if build not in _missing(_load_committed_catalogue(database), build.table):
                _forget_built(database, build.table)
                return None
            # This session has no time limit: another one has canceled the build.
            if not isinstance(error, Canceled | Deadlock):
                tried.add(build)
                return error
            if isinstance(error, LockTimeout):
                let_others_pass(database)
        else:
            if is_built:
                tried.add(build)
            return None


def _build(database: Database, build: Build) -> bool:
    """Build, and return True; return False if stored rows violate a constraint, which is noted."""
    request = _constraint_request(database, build)
    try:
        if isinstance(build, DeferredForeignKey):
            build.check(database)
        else:
            _build_index(database, build)
    except Conflict as conflict:
        if conflict.problems[0].code != VIOLATIONS[_kind_of(build)]:
            raise
        _note_violation(database, build, request)
        return False
    with _patient_transaction(database) as transaction:
        # The lock of all changes of structure: none comes between this look and what it leads to.
        transaction.execute(statement("advance_structure"))
        if build in _needed(load_snapshot(transaction).catalogue, build.table):
            _finish(transaction, build)
        elif isinstance(build, DeferredIndex):
            _drop(transaction, build)
    return True


def _build_index(database: Database, index: DeferredIndex) -> None:
    # What a build has left behind that was broken off serves no read.
    index.drop_invalid(database)
    # Its builder may have been killed before it made a constraint of it.
    if index.is_unique and _unattached_index(database.fetch_primary, index):
        return
    index.build(database)


def _kind_of(build: Build) -> str:
    """Return the kind of the constraint that a build may find to be violated."""
    return FOREIGN_KEY if isinstance(build, DeferredForeignKey) else UNIQUE


def _constraint_request(database: Database, build: Build) -> str | None:
    """Return what tells the request for a constraint from one that is made later."""
    parameters = build.table, build.column, _kind_of(build)
    rows = database.fetch_primary(statement("find_constraint_request"), parameters)
    return next(iter(single_values(rows)), None)


def _note_violation(database: Database, build: Build, request: str | None) -> None:
    """Note that stored rows violate a constraint, unless it was asked for again meanwhile.

    To try it again would not help before somebody has changed the rows, and asks for it again.
    """
    kind = _kind_of(build)
    log.warning(
        "rows of %s violate the constraint of %s: %s", build.table, build.column, VIOLATIONS[kind]
    )
    with _patient_transaction(database) as transaction:
        transaction.execute(statement("advance_structure"))
        parameters = build.table, build.column, kind, request
        transaction.execute(statement("note_violation"), parameters)


def _finish(transaction: Transaction, build: Build) -> None:
    """Forget the request for what is built now."""
    name = build.table, build.column
    if isinstance(build, DeferredForeignKey):
        # Its actions may have changed meanwhile, which has made a new key of it.
        if not build.unchecked(transaction.execute):
            transaction.execute(statement("forget_constraint"), (*name, FOREIGN_KEY))
    elif build.is_unique:
        limit_lock_time(transaction)
        index = _unattached_index(transaction.execute, build)
        if index is not None:
            transaction.execute_ddl(ddl.attach_unique_index(build.table, index))
            transaction.execute(statement("forget_constraint"), (*name, UNIQUE))
    else:
        transaction.execute(statement("forget_index"), name)


def _unattached_index(fetch: Fetch, index: DeferredIndex) -> str | None:
    rows = fetch(statement("unattached_unique_index"), (index.table, index.column))
    return next(iter(single_values(rows)), None)


def _drop(transaction: Transaction, index: DeferredIndex) -> None:
    """Drop an index that was given up just before its build began."""
    if index.kind is IndexKind.TRIGRAMS:
        rows = transaction.read(statement("find_search_indexes"), (index.table, index.column))
    else:
        parameters = index.table, index.column, str(index.is_unique)
        rows = transaction.read(statement("column_indexes"), parameters)
    for name in single_values(rows):
        transaction.execute_ddl(ddl.drop_index(name))


def _forget_built(database: Database, table: str) -> None:
    """Forget requests for indexes that are there, as of a process that was killed at the end."""
    if not _built(load_catalogue(database), table):
        return
    with _patient_transaction(database) as transaction:
        transaction.execute(statement("advance_structure"))
        for column in _built(load_snapshot(transaction).catalogue, table):
            transaction.execute(statement("forget_index"), (table, column))


def _built(catalogue: Catalogue, table: str) -> list[str]:
    """Return the columns whose indexes were asked for and are there."""
    columns: list[str] = []
    for index in _requested(catalogue, table):
        column = catalogue.collections[table].fields[index.column].column
        if column is not None and column.is_indexed:
            columns.append(column.name)
    return columns


def _is_building(database: Database, table: str) -> bool:
    ((*_, done),) = database.fetch_primary(statement("find_index_builds"), (array([table]),))
    return done is not None


def _load_committed_catalogue(database: Database) -> Catalogue:
    """Return the catalogue once no change of structure is under way, which may have interrupted."""
    with _patient_transaction(database) as transaction:
        transaction.execute(statement("await_structure"))
        return load_snapshot(transaction).catalogue


@contextmanager
def _patient_transaction(database: Database) -> Iterator[Transaction]:
    """Open a transaction that waits for a change of structure as long as that takes."""
    # Of no pool: closing the service interrupts it.
    with database.autocommit_connection() as session, session.read_committed():
        yield session


def load_catalogue(database: Database) -> Catalogue:
    """Return the catalogue as it is now."""
    with database.transaction() as transaction:
        return load_snapshot(transaction).catalogue


def _needed(catalogue: Catalogue, table: str) -> set[Build]:
    """Return what a table should have, whether it has it or not."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return set()
    return {
        *_requested(catalogue, table),
        *_constraints(catalogue, table),
        *search_indexes(collection, catalogue.extensions),
    }


def _requested(catalogue: Catalogue, table: str) -> list[DeferredIndex]:
    """Return the indexes over the values of fields that were asked for."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    indexes: list[DeferredIndex] = []
    for field in collection.columns:
        if field.column is not None and field.column.is_index_requested:
            indexes.append(DeferredIndex(table, field.name, field.type.index_kind))
    return indexes


def _constraints(catalogue: Catalogue, table: str) -> list[Build]:
    """Return what is needed for the constraints that were asked for, but for violated ones."""
    builds: list[Build] = []
    for field in catalogue.collections[table].columns:
        if field.column is None:
            continue
        if field.column.unique_request is ConstraintRequest.PENDING:
            builds.append(DeferredIndex(table, field.name, is_unique=True))
        if field.column.foreign_key_request is ConstraintRequest.PENDING:
            builds.append(DeferredForeignKey(table, field.name))
    return builds


def _missing(catalogue: Catalogue, table: str) -> list[Build]:
    """Return what a table should have and does not, each once."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    built = _built(catalogue, table)
    requested = [index for index in _requested(catalogue, table) if index.column not in built]
    searched = missing_search_indexes(collection, catalogue.extensions)
    return list(dict.fromkeys([*requested, *searched, *_constraints(catalogue, table)]))
