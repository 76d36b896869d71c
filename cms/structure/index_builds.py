"""Builds of what tables lack, beside writers: indexes, and checks of constraints."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cms.database.connections import Database, Transaction, single_values
from cms.database.error_mapping import Conflict, Deadlock, Stale, UnexpectedError
from cms.database.server_refusals import Canceled, LockTimeout
from cms.database.statements import statement
from cms.errors import Refused
from cms.jobs.task import Job, JobError, defer
from cms.query.sql.arguments import array
from cms.schema import ddl
from cms.schema.model import Catalogue
from cms.store.snapshot import load_snapshot
from cms.structure.foreign_key_checks import DeferredForeignKey
from cms.structure.indexes import (
    DeferredIndex,
    index_build_lock,
    let_others_pass,
    limit_lock_time,
)
from cms.structure.needed_builds import (
    Build,
    built_columns,
    has_met_foreign_key,
    met_indexes,
    missing_builds,
    needed_builds,
    requested_indexes,
)
from cms.structure.unique_constraints import (
    attach_unique_index,
    has_unique_constraint,
    unattached_index,
)

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

BuildFailure = Refused | Stale | UnexpectedError
"""The errors of builds."""

BUILD_POLL_SECONDS = 1.0
"""Seconds between two looks at a build that a killed process has left behind."""


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
    errors: list[BuildFailure] = []
    with index_build_lock(database, table):
        await_running_build(database, table)
        _forget_built(database, table)
        tried: set[Build] = set()
        while build := _next_missing(database, table, tried):
            error = _build_uninterrupted(database, build, tried)
            if error:
                errors.append(error)
        # Of columns that were renamed, or got another type, behind their builds.
        _forget_built(database, table)
    if errors:
        raise errors[0]


def _next_missing(database: Database, table: str, tried: Set[Build]) -> Build | None:
    """Return something missing that was not tried; fields may have been renamed meanwhile."""
    database.background.check_running()
    missing = missing_builds(load_catalogue(database), table)
    return next((build for build in missing if build not in tried), None)


def _build_uninterrupted(
    database: Database, build: Build, tried: set[Build]
) -> BuildFailure | None:
    """Build, again if a change of structure has interrupted it; return why it failed.

    What ends, well or badly, is noted as tried. What is not needed any more is not: the field of
    an index may be renamed and get its former name again. Nor is a constraint that rows violate: it
    is missing only if it was asked for again.
    """
    while True:
        try:
            built = _build(database, build)
        except (Refused, Stale, UnexpectedError) as error:
            database.background.check_running()
            # It was given up meanwhile, its column is gone, or it was built before the error.
            if build not in missing_builds(load_committed_catalogue(database), build.table):
                _forget_built(database, build.table)
                return None
            # This session has no time limit: another one has canceled the build.
            if not isinstance(error, Canceled | Deadlock):
                tried.add(build)
                return error
            if isinstance(error, LockTimeout):
                let_others_pass(database)
        else:
            if built:
                tried.add(built)
            return None


@dataclass(frozen=True, slots=True)
class _Built:
    """What was just built, by the present name of its column.

    `index` is the name of the new index; None if the build has made none.
    """

    build: Build
    index: str | None = None


def _build(database: Database, build: Build) -> Build | None:
    """Build, and return what is there now, by the present name of its column.

    Returns None if nothing is: stored rows violate a constraint, which is noted; or nobody needs
    the index any more; or a change of structure has dropped it or built it anew.
    """
    request = _constraint_request(database, build)
    oid: str | None = None
    try:
        if isinstance(build, DeferredForeignKey):
            build.check(database)
        else:
            oid = _build_index(database, build)
    except Conflict as conflict:
        if conflict.problems[0].code != VIOLATIONS[_kind_of(build)]:
            raise
        _note_violation(database, build, request)
        return None
    while True:
        try:
            return _finish_or_drop(database, build, oid)
        except LockTimeout:
            let_others_pass(database)


def _build_index(database: Database, index: DeferredIndex) -> str | None:
    """Build an index, and return its oid unless there is one that serves already."""
    # What a build has left behind that was broken off serves no read.
    index.drop_invalid(database)
    # Another program may have made the constraint, and a builder may have been killed before it
    # made one of its index.
    if index.is_unique:
        name = index.table, index.column
        if has_unique_constraint(database.fetch_primary, *name):
            return None
        if unattached_index(database.fetch_primary, *name):
            return None
    return index.build(database)


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


def _finish_or_drop(database: Database, build: Build, oid: str | None) -> Build | None:
    """Forget the request for what is built now, or drop an index that was given up meanwhile."""
    if isinstance(build, DeferredIndex) and build.is_unique:
        with _table_locked(database, build.table) as transaction:
            return _constrain_or_drop(transaction, build, oid)
    while True:
        with _patient_transaction(database) as transaction:
            # The lock of all changes of structure: none comes between this look and what it leads
            # to.
            structure, *_ = transaction.execute(statement("advance_structure"))[0]
            built = _present(transaction, build, oid)
            if built is None:
                return None
            catalogue = load_snapshot(transaction).catalogue
            if built.build in needed_builds(catalogue, build.table):
                _finish(transaction, built.build, catalogue)
                return built.build
        if built.index is None or _drop_given_up(database, built, structure):
            return None


def _drop_given_up(database: Database, built: _Built, structure: object) -> bool:
    """Drop an index that nobody needs, unless the structure has changed since that was found.

    Changes of other tables do not wait for those who use this one. Raises `LockTimeout`.
    """
    with _patient_transaction(database) as transaction:
        limit_lock_time(transaction)
        transaction.execute_ddl(ddl.lock(built.build.table))
        if not transaction.execute(statement("advance_structure_from"), (str(structure),)):
            return False
        _drop(transaction, built)
        return True


def _present(transaction: Transaction, build: Build, oid: str | None) -> _Built | None:
    """Return what was built by its present names; None if the index `oid` is gone."""
    if oid is None or isinstance(build, DeferredForeignKey):
        return _Built(build)
    for index, column in transaction.execute(statement("find_built_index"), (oid,)):
        return _Built(replace(build, column=column), index)
    return None


def _finish(transaction: Transaction, build: Build, catalogue: Catalogue) -> None:
    """Forget the request for what is built now."""
    name = build.table, build.column
    if isinstance(build, DeferredForeignKey):
        # Its actions may have changed meanwhile, which has made a new key of it.
        if not build.unchecked(transaction.execute):
            transaction.execute(statement("forget_constraint"), (*name, FOREIGN_KEY))
    # An index for searches may be beside one of the values, whose build has failed.
    elif build in requested_indexes(catalogue, build.table):
        transaction.execute(statement("forget_index"), name)


def _constrain_or_drop(
    transaction: Transaction, build: DeferredIndex, oid: str | None
) -> Build | None:
    """Make a constraint of an index, or drop it if nobody needs it any more or others have one."""
    built = _present(transaction, build, oid)
    if built is None:
        return None
    name = built.build.table, built.build.column
    # Without the catalogue, which takes long to load in large installations: the table is locked.
    if not transaction.execute(statement("find_constraint_request"), (*name, UNIQUE)):
        _drop(transaction, built)
        return None
    if has_unique_constraint(transaction.execute, *name):
        _drop(transaction, built)
    else:
        index = built.index or unattached_index(transaction.execute, *name)
        # A change of structure has dropped it.
        if index is None:
            return None
        attach_unique_index(transaction, build.table, index)
    transaction.execute(statement("forget_constraint"), (*name, UNIQUE))
    return built.build


def _drop(transaction: Transaction, built: _Built) -> None:
    """Drop an index that this build has made."""
    if built.index is not None:
        transaction.execute_ddl(ddl.drop_index(built.index))


def _forget_built(database: Database, table: str) -> None:
    """Forget requests for what is there: its builder was killed, or another program made it."""
    catalogue = load_catalogue(database)
    indexes = met_indexes(catalogue, table)
    if not indexes and not has_met_foreign_key(catalogue, table):
        return
    for index in indexes:
        # What a killed build has left: none will look for it any more.
        index.drop_invalid(database)
    with _patient_transaction(database) as transaction:
        transaction.execute(statement("advance_structure"))
        for column in built_columns(load_snapshot(transaction).catalogue, table):
            transaction.execute(statement("forget_index"), (table, column))
        transaction.execute(statement("forget_met_constraints"), (table,))


def await_running_build(database: Database, table: str) -> None:
    """Wait for a build of a client that is gone: the server goes on with it."""
    while _is_building(database, table):
        database.background.sleep(BUILD_POLL_SECONDS)


def _is_building(database: Database, table: str) -> bool:
    ((*_, done),) = database.fetch_primary(statement("find_index_builds"), (array([table]),))
    return done is not None


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


def load_committed_catalogue(database: Database) -> Catalogue:
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
