"""Indexes of large tables: built in the background, by a job of the queue.

Where no worker runs, as in an application that embeds the service, a thread of the process does it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread

from cms.database.connections import Database, Transaction, single_value, single_values
from cms.database.error_mapping import Deadlock, Stale
from cms.database.server_refusals import Canceled
from cms.database.statements import statement
from cms.errors import Refused, invalid_payload, unavailable
from cms.jobs.housekeeping import queue_state
from cms.jobs.task import Job, JobError, defer
from cms.query.sql.arrays import array
from cms.schema import ddl
from cms.schema.model import Catalogue, Field
from cms.schema.types.field_type import IndexKind
from cms.store.snapshot import load_snapshot
from cms.structure.indexes import DeferredIndex, index_build_lock, is_large
from cms.structure.search_indexes import missing_search_indexes, search_indexes

log = logging.getLogger("cms.store")

INDEX_BUILD_TASK = "index_build"
"""The task of the queue that builds the indexes of one collection."""

FORMER_BUILD_TASK = "search_index"
"""Its former name, in jobs that a service of the version before has put in the queue."""

INDEX_BUILDS = 1
"""How many of these jobs a worker runs at a time, beside others: one may take hours."""

BUILD_POLL_SECONDS = 1.0
"""Seconds between two looks at a build that a killed process has left behind."""


# Changes of structure


def add_index(
    transaction: Transaction, table: str, column: str, kind: IndexKind = IndexKind.VALUES
) -> None:
    """Add an index: inside the transaction, or in the background if the table is large."""
    if is_large(transaction, table):
        _check_owner(transaction, table)
        if kind is IndexKind.VALUES:
            check_order(transaction, table, column)
        transaction.execute(statement("request_index"), (table, column))
        build_later(transaction, table)
        return
    transaction.execute_ddl(ddl.index(table, column, kind))
    if kind is IndexKind.TRIGRAMS:
        # Without statistics PostgreSQL takes each word for a frequent one, and scans the table.
        transaction.execute_ddl(ddl.analyze(table))


def _check_owner(transaction: Transaction, table: str) -> None:
    """Raise `Refused` for a table that the account does not own: its build would fail later."""
    if not single_value(transaction.read(statement("owns_table"), (table,))):
        raise unavailable("database", "The service's account does not own the table")


def check_order(transaction: Transaction, table: str, column: str) -> None:
    """Raise `Refused` for an index of values without an order: its build would fail later."""
    try:
        transaction.run(ddl.sort_nothing(table, column))
    except Stale:
        reason = f'"{table}.{column}" is of a type without an order, which an index needs'
        raise invalid_payload(reason, collection=table, field=column) from None


def build_later(transaction: Transaction, table: str) -> None:
    """Have the missing indexes of a table built once the transaction is committed."""
    step = _BuildWithoutWorker(table)
    # Several changes of one transaction may each need indexes.
    if step in transaction.after_commit:
        return
    defer(transaction.execute, INDEX_BUILD_TASK, {"collection": table})
    transaction.after_commit.append(step)


def give_up_index(transaction: Transaction, field: Field) -> None:
    """Forget that the index of a field was asked for, and end its build."""
    transaction.execute(statement("forget_index"), (field.collection, field.name))
    interrupt_builds(transaction, field.collection)


def interrupt_builds(transaction: Transaction, *tables: str) -> None:
    """End the builds of indexes of tables that this transaction is about to alter.

    It would wait for them, and all who use the tables for it. What is still needed is built anew
    when the transaction has ended.
    """
    for table in tables:
        transaction.execute(statement("cancel_index_builds"), (table,))


# Builds


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
    """Build the indexes that a table needs and does not have, without blocking writers.

    May be called again after a process that did so was killed, and by several at once. Raises the
    error of the first build that failed, after all others.
    """
    errors: list[Refused | Stale] = []
    with index_build_lock(database, table):
        # A server goes on with the build of a client that is gone.
        while _is_building(database, table):
            time.sleep(BUILD_POLL_SECONDS)
        _forget_built(database, table)
        tried: set[DeferredIndex] = set()
        while index := _next_missing(database, table, tried):
            tried.add(index)
            if error := _build_uninterrupted(database, index):
                errors.append(error)
    if errors:
        raise errors[0]


def _next_missing(
    database: Database, table: str, tried: Set[DeferredIndex]
) -> DeferredIndex | None:
    """Return a missing index that was not tried; fields may have been renamed meanwhile."""
    missing = _missing(load_catalogue(database), table)
    return next((index for index in missing if index not in tried), None)


def _build_uninterrupted(database: Database, index: DeferredIndex) -> Refused | Stale | None:
    """Build an index, again if a change of structure has interrupted it; return why it failed."""
    while True:
        try:
            _build(database, index)
        except (Refused, Stale) as error:
            # It was given up meanwhile, its column is gone, or it was built before the error.
            if index not in _missing(_load_committed_catalogue(database), index.table):
                _forget_built(database, index.table)
                return None
            # This session has no time limit: another one has canceled the build.
            if not isinstance(error, Canceled | Deadlock):
                return error
        else:
            return None


def _build(database: Database, index: DeferredIndex) -> None:
    # What a build has left behind that was broken off serves no read.
    index.drop_invalid(database)
    index.build(database)
    with _patient_transaction(database) as transaction:
        # The lock of all changes of structure: none comes between this look and what it leads to.
        transaction.execute(statement("advance_structure"))
        if index in _needed(load_snapshot(transaction).catalogue, index.table):
            transaction.execute(statement("forget_index"), (index.table, index.column))
        else:
            _drop(transaction, index)


def _drop(transaction: Transaction, index: DeferredIndex) -> None:
    """Drop an index that was given up just before its build began."""
    if index.kind is IndexKind.TRIGRAMS:
        rows = transaction.read(statement("find_search_indexes"), (index.table, index.column))
    else:
        parameters = index.table, index.column, str(False)
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
    ((_, _, _, done),) = database.fetch_primary(statement("find_index_builds"), (array([table]),))
    return done is not None


def _load_committed_catalogue(database: Database) -> Catalogue:
    """Return the catalogue once no change of structure is under way, which may have interrupted."""
    with _patient_transaction(database) as transaction:
        transaction.execute(statement("await_structure"))
        return load_snapshot(transaction).catalogue


@contextmanager
def _patient_transaction(database: Database) -> Iterator[Transaction]:
    """Open a transaction that waits for a change of structure as long as that takes."""
    with database.transaction() as transaction:
        transaction.execute(statement("lift_time_limit"))
        yield transaction


def load_catalogue(database: Database) -> Catalogue:
    """Return the catalogue as it is now."""
    with database.transaction() as transaction:
        return load_snapshot(transaction).catalogue


def _needed(catalogue: Catalogue, table: str) -> set[DeferredIndex]:
    """Return the indexes that a table should have, whether it has them or not."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return set()
    return {*_requested(catalogue, table), *search_indexes(collection, catalogue.extensions)}


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


def _missing(catalogue: Catalogue, table: str) -> list[DeferredIndex]:
    """Return the indexes that a table should have and does not, each of them once."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    built = _built(catalogue, table)
    requested = [index for index in _requested(catalogue, table) if index.column not in built]
    searched = missing_search_indexes(collection, catalogue.extensions)
    return list(dict.fromkeys([*requested, *searched]))


# Without a worker


@dataclass(frozen=True, slots=True)
class _BuildWithoutWorker:
    """Builds the indexes of a table in a thread, after a commit, if no worker does it."""

    table: str

    def __call__(self, database: Database) -> None:
        try:
            with database.transaction() as transaction:
                if queue_state(transaction).workers:
                    return
        except (Refused, Stale) as error:
            # The change is made, and the job is in the queue.
            log.warning("the indexes of %s are left to a worker: %s", self.table, error)
            return
        # A daemon: the process may end meanwhile, and the job stays in the queue.
        Thread(
            target=partial(_build_in_place_of_worker, database, self.table),
            name=f"index-build-{self.table}",
            daemon=True,
        ).start()


def _build_in_place_of_worker(database: Database, table: str) -> None:
    outcome = "succeeded"
    try:
        build_indexes(database, table)
    except (Refused, Stale) as error:
        log.warning("the indexes of %s failed: %s", table, error)
        outcome = "failed"
    except Exception:
        log.exception("the indexes of %s failed", table)
        outcome = "failed"
    try:
        with database.transaction() as transaction:
            transaction.execute(statement("finish_index_build_jobs"), (table, outcome))
    except (Refused, Stale) as error:
        log.warning("the job for the indexes of %s stays in the queue: %s", table, error)
