"""Requests for indexes and constraints: met in the transaction, or later if the table is large.

A job of the queue builds the latter. Where no worker runs, as in an application that embeds the
service, a thread of the process does it.
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
from cms.jobs.task import defer
from cms.query.sql.arguments import array
from cms.schema import ddl
from cms.schema.model import Column, Field
from cms.schema.types.field_type import IndexKind
from cms.structure.index_builds import FOREIGN_KEY, INDEX_BUILD_TASK, UNIQUE, build_indexes
from cms.structure.indexes import is_large
from cms.structure.unique_constraints import (
    attach_unique_index,
    has_unique_constraint,
    unattached_index,
)

log = logging.getLogger("cms.store")


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


def ensure_index(
    transaction: Transaction, table: str, column: Column, kind: IndexKind = IndexKind.VALUES
) -> None:
    """Add an index, unless it is there or was asked for."""
    if column.is_indexed:
        keep_index(transaction, table, column.name)
    elif not column.is_index_requested:
        add_index(transaction, table, column.name, kind)


def keep_index(transaction: Transaction, table: str, column: str) -> None:
    """Ask for an index that is there, where a builder may be about to drop it.

    It has built it, and found that it was given up meanwhile.
    """
    if _is_being_built(transaction, table):
        transaction.execute(statement("request_index"), (table, column))
        build_later(transaction, table)


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
    interrupt_builds(transaction, table)
    # It may have been asked for when the table was large.
    transaction.execute(statement("forget_constraint"), (table, column, UNIQUE))
    transaction.execute_ddl(ddl.lock(table))
    # What a build has left behind that was broken off.
    transaction.execute(statement("look_anew_at_progress"))
    parameters = table, column, str(False), str(True)
    for index in single_values(transaction.execute(statement("invalid_indexes"), parameters)):
        transaction.execute_ddl(ddl.drop_index(index))
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
    request_constraint(transaction, table, column, UNIQUE)


def request_constraint(transaction: Transaction, table: str, column: str, kind: str) -> None:
    """Have a constraint checked in the background."""
    transaction.execute(statement("request_constraint"), (table, column, kind))
    build_later(transaction, table)


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


def build_later(transaction: Transaction, table: str) -> None:
    """Have what a table lacks built once the transaction is committed."""
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


def give_up_unique(transaction: Transaction, field: Field) -> None:
    """Forget that a field was asked to be unique, and end the build of its index."""
    transaction.execute(statement("forget_constraint"), (field.collection, field.name, UNIQUE))
    interrupt_builds(transaction, field.collection)


def give_up_foreign_key(transaction: Transaction, table: str, column: str) -> None:
    """Forget that a foreign key is to be checked; the caller ends the check."""
    transaction.execute(statement("forget_constraint"), (table, column, FOREIGN_KEY))


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


# Without a worker


@dataclass(frozen=True, slots=True)
class _BuildWithoutWorker:
    """Builds what a table lacks in a thread, after a commit, if no worker does it."""

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
        work = partial(_build_in_place_of_worker, database, self.table)
        try:
            database.background.start(f"index-build-{self.table}", work)
        except RuntimeError as error:
            log.warning("no thread builds the indexes of %s: %s", self.table, error)


def _build_in_place_of_worker(database: Database, table: str) -> None:
    outcome = "succeeded"
    jobs: list[str] = []
    try:
        # Those that come later may be for what the build does not see any more. Whoever has put
        # them in the queue does them, or a worker if that process has died.
        jobs = single_values(database.fetch_primary(statement("find_index_build_jobs"), (table,)))
        build_indexes(database, table)
    except Closing:
        log.info("the indexes of %s are left to a worker: the service is closed", table)
        return
    except (Refused, Stale) as error:
        log.warning("the indexes of %s failed: %s", table, error)
        outcome = "failed"
    except Exception:
        log.exception("the indexes of %s failed", table)
        outcome = "failed"
    try:
        with database.transaction() as transaction:
            transaction.execute(statement("finish_jobs"), (array(jobs), outcome))
    except (Refused, Stale) as error:
        log.warning("the job for the indexes of %s stays in the queue: %s", table, error)
