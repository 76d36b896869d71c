"""Requests for indexes and constraints: met in the transaction, or by a job if the table is large.

Where no worker runs, as in an application that embeds the service, a thread of the process does
the jobs of a table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from cms.database.background_threads import Closing
from cms.database.connections import Database, Transaction, single_value, single_values
from cms.database.error_mapping import Stale
from cms.database.server_refusals import lacking_right
from cms.database.statements import statement
from cms.errors import Refused, invalid_payload
from cms.jobs.housekeeping import queue_state
from cms.jobs.task import Job, JobError, defer
from cms.schema import ddl
from cms.schema.model import BuildKind, Collection, Column, Field, Kind
from cms.schema.types.field_type import IndexKind
from cms.store.snapshot import load_snapshot
from cms.structure.index_builds import INDEX_BUILD_TASK, build
from cms.structure.indexes import (
    attach_unique_index,
    drop_invalid_beside_change,
    has_unique_constraint,
    is_large,
    unattached_index,
)
from cms.structure.search_indexes import (
    missing_search_indexes,
    search_indexes,
    useless_search_indexes,
)

log = logging.getLogger("cms.store")

FORMER_BUILD_TASKS = ("index_build", "search_index")
"""The tasks of the version before, whose jobs build all that a table lacks."""


def run_former_build_job(database: Database, job: Job) -> None:
    """Put a job for each thing in the queue that the version before has noted for a table."""
    table = str(job.payload["collection"])
    with database.transaction() as transaction:
        for column, kind in transaction.execute(statement("take_former_requests"), (table,)):
            request_build(transaction, table, column, BuildKind(kind))
        catalogue = load_snapshot(transaction).catalogue
        collection = catalogue.collections.get(table)
        if collection is not None:
            for index in missing_search_indexes(collection, catalogue.extensions):
                request_build(transaction, table, index.column, BuildKind.SEARCH)


def add_index(
    transaction: Transaction, table: str, column: str, kind: IndexKind = IndexKind.VALUES
) -> None:
    """Add an index: inside the transaction, or in the background if the table is large."""
    if not is_large(transaction, table):
        transaction.execute_ddl(ddl.index(table, column, kind))
        return
    _check_owner(transaction, table)
    if kind is IndexKind.VALUES:
        check_order(transaction, table, column)
    request_build(transaction, table, column, BuildKind.INDEX)


def ensure_index(
    transaction: Transaction, table: str, column: Column, kind: IndexKind = IndexKind.VALUES
) -> None:
    """Add an index, unless it is there or was asked for."""
    if column.is_indexed:
        keep_index(transaction, table, column.name)
    elif not column.is_index_pending:
        add_index(transaction, table, column.name, kind)


def keep_index(transaction: Transaction, table: str, column: str) -> None:
    """Ask for an index that is there, where a builder may be about to drop it.

    It has built it, and found that it was given up meanwhile.
    """
    if _is_being_built(transaction, table):
        request_build(transaction, table, column, BuildKind.INDEX)


def keep_unique(transaction: Transaction, table: str, column: str) -> None:
    """Ask for a column to stay unique by an index that a builder may be about to drop."""
    if has_unique_constraint(transaction.execute, table, column):
        return
    # Without such an index the column is unique by one of another kind, which others look after.
    has_index = unattached_index(transaction.execute, table, column) is not None
    if has_index and _is_being_built(transaction, table):
        request_unique(transaction, table, column)


def _is_being_built(transaction: Transaction, table: str) -> bool:
    """Tell whether a process builds indexes of a table, or drops those that were given up."""
    return not single_value(transaction.execute(statement("lock_index_build"), (table,)))


def add_unique(transaction: Transaction, table: str, column: str) -> None:
    """Make a column unique: inside the transaction, or in the background if the table is large."""
    if is_large(transaction, table):
        # Another program may have made it unique since the catalogue was loaded.
        if not has_unique_constraint(transaction.execute, table, column):
            request_unique(transaction, table, column)
        return
    # It may have been asked for when the table was large.
    withdraw_build(transaction, table, column, BuildKind.UNIQUE)
    transaction.execute_ddl(ddl.lock(table))
    drop_invalid_beside_change(transaction, table, column)
    if has_unique_constraint(transaction.execute, table, column):
        return
    index = unattached_index(transaction.execute, table, column)
    if index is None:
        transaction.execute_ddl(ddl.add_unique(table, column))
    else:
        attach_unique_index(transaction, table, index)


def request_unique(transaction: Transaction, table: str, column: str) -> None:
    """Have a column of a large table made unique in the background."""
    _check_owner(transaction, table)
    check_order(transaction, table, column)
    request_build(transaction, table, column, BuildKind.UNIQUE)


def _check_owner(transaction: Transaction, table: str) -> None:
    """Raise `Refused` for a table that the account does not own: its build would fail later."""
    if not single_value(transaction.read(statement("owns_table"), (table,))):
        raise lacking_right(f"must be owner of table {table}")


def check_order(transaction: Transaction, table: str, column: str) -> None:
    """Raise `Refused` for an index of values without an order: its build would fail later."""
    try:
        transaction.run(ddl.sort_nothing(table, column))
    except Stale:
        reason = f'"{table}.{column}" is of a type without an order, which an index needs'
        raise invalid_payload(reason, collection=table, field=column) from None


def request_build(transaction: Transaction, table: str, column: str, kind: BuildKind) -> None:
    """Have a build begin once the transaction is committed, by the job that waits or a new one."""
    if not single_value(transaction.execute(statement("is_build_waiting"), (table, column, kind))):
        payload = {"collection": table, "field": column, "kind": kind}
        defer(transaction.execute, INDEX_BUILD_TASK, payload)
    step = _BuildWithoutWorker(table)
    # Several changes of one transaction may each need builds.
    if step not in transaction.after_commit:
        transaction.after_commit.append(step)


def withdraw_build(transaction: Transaction, table: str, column: str, kind: BuildKind) -> None:
    """Forget that something was asked for, and end its build."""
    transaction.execute(statement("withdraw_builds"), (table, column, kind))
    interrupt_builds(transaction, table)


def interrupt_builds(transaction: Transaction, *tables: str) -> None:
    """End the builds on tables that this transaction is about to alter.

    It would wait for them, and all who use the tables for it. What is still needed is built anew
    when the transaction has ended.
    """
    # A change of several tables comes here several times, and builds begin in between.
    transaction.execute(statement("look_anew_at_progress"))
    for table in tables:
        transaction.execute(statement("cancel_index_builds"), (table,))
        transaction.execute(statement("cancel_validations"), (table,))


# Of collections


def update_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Create the indexes that a collection needs for its manual order and its searches."""
    field = collection.fields.get(collection.sort_field or "")
    column = field.column if field and collection.kind is Kind.TABLE else None
    # These have an index already.
    if field and column and not column.is_unique:
        ensure_index(transaction, collection.name, column, field.type.index_kind)
    update_search_indexes(transaction, collection, extensions)


def update_search_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Create the indexes for searches in a collection, or drop them if it is not searchable.

    All searched fields get one: a search looks for a word in any of them, and so a single field
    without an index makes it scan the table. Those of a large table are built in the background.
    """
    if collection.kind is not Kind.TABLE:
        return
    needed = search_indexes(collection, extensions)
    texts = {index.column for index in needed if index.kind is IndexKind.TRIGRAMS}
    # An index that serves no search any more would only slow down writes.
    useless = useless_search_indexes(collection)
    for field in collection.columns:
        if field.name not in texts and field.column and field.column.search_index:
            useless.add(field.column.search_index)
    if useless:
        # To drop any index of a table waits for builds of others on it.
        interrupt_builds(transaction, collection.name)
    for name in sorted(useless):
        transaction.execute_ddl(ddl.drop_index(name))
    searched = {index.column for index in needed}
    for field in collection.columns:
        requested = field.column.requested_builds if field.column else ()
        if BuildKind.SEARCH in requested and field.name not in searched:
            withdraw_build(transaction, collection.name, field.name, BuildKind.SEARCH)
    missing = missing_search_indexes(collection, extensions)
    if missing and is_large(transaction, collection.name):
        for index in missing:
            request_build(transaction, collection.name, index.column, BuildKind.SEARCH)
        return
    for index in missing:
        index.create(transaction)


def drop_search_indexes(transaction: Transaction, field: Field) -> None:
    """Drop the indexes for searches in a field that are there now."""
    rows = transaction.read(statement("find_search_indexes"), (field.collection, field.name))
    for index in single_values(rows):
        transaction.execute_ddl(ddl.drop_index(index))


# Without a worker


@dataclass(frozen=True, slots=True)
class _BuildWithoutWorker:
    """Does the jobs of a table in a thread, after a commit, if no worker does them."""

    table: str

    def __call__(self, database: Database) -> None:
        work = partial(_build_in_place_of_worker, database, self.table)
        try:
            database.background.start(f"index-build-{self.table}", work)
        except RuntimeError as error:
            log.warning("no thread builds the indexes of %s: %s", self.table, error)


def _build_in_place_of_worker(database: Database, table: str) -> None:
    try:
        with database.transaction() as transaction:
            if queue_state(transaction).workers:
                return
            # Whoever has put later ones in the queue does them, or a worker if that process has
            # died.
            waiting = transaction.execute(statement("find_waiting_builds"), (table,))
        for job in single_values(waiting):
            outcome = _outcome_of_build(database, table, job)
            with database.transaction() as transaction:
                transaction.execute(statement("finish_waiting_job"), (job, outcome))
    except Closing:
        log.info("the indexes of %s are left to a worker: the service is closed", table)
    except (Refused, Stale) as error:
        log.warning("the indexes of %s are left to a worker: %s", table, error)
    except Exception:
        # The last line of a thread, whose error nobody else would report.
        log.exception("the indexes of %s are left to a worker", table)


def _outcome_of_build(database: Database, table: str, job: int) -> str:
    """Build, and return the status of the job afterwards."""
    try:
        build(database, job)
    except Closing:
        raise
    except Exception as error:
        is_expected = isinstance(error, JobError | Refused | Stale)
        log.warning("a build for %s failed: %s", table, error, exc_info=not is_expected)
        return "failed"
    return "succeeded"
