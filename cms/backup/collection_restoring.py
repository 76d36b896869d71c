"""Restores the rows of one collection into a running service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cms.backup.archive_format import unpacked
from cms.backup.archives import Archive
from cms.backup.checking import check_migrations
from cms.backup.error import BackupError
from cms.backup.manifest import TABLES, Head, Table
from cms.backup.progress import Watcher
from cms.backup.verifying import head_of, verified, watched
from cms.database import bulk, row_merging
from cms.database.bulk import bulk_transaction
from cms.database.connections import Transaction, single_values
from cms.database.error_mapping import Deadlock
from cms.database.row_merging import ForeignKey, Merged
from cms.database.statements import statement

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class CollectionRestoration:
    """One collection of an archive that is put back into a database."""

    dsn: str
    archive: Archive
    watcher: Watcher
    collection: str

    def run(self) -> Merged:
        """Write the rows of the archive, and return how many were new or replaced others.

        Rows that the archive does not have stay. Raises `BackupError` and `BulkError`, and then
        nothing has changed.
        """
        head = head_of(self.archive)
        check_migrations(head)
        table = _table(head, self.collection)
        with bulk_transaction(self.dsn, reads_only=True) as transaction:
            _check_columns(transaction, table)
        verified(self.archive, self.watcher)
        for _attempt in range(_ATTEMPTS):
            try:
                return self._write(head, table)
            except Deadlock:
                continue
        raise BackupError(
            f"Others change {table.name} and what it names all the time. Try again when there is "
            "less to do. Nothing has been changed."
        )

    def _write(self, head: Head, table: Table) -> Merged:
        with bulk_transaction(self.dsn, reads_only=False) as transaction:
            # Before anything is read of it: rows that come meanwhile would be counted wrongly, and
            # waiting for them later could end in a deadlock.
            bulk.lock_for_merging(transaction, table.name)
            keys = _check_columns(transaction, table)
            self.watcher.begin("restoring", self.archive.size())
            pieces = self._rows(head.tables.index(table) + 1)
            row_merging.stage(transaction, table.name, table.columns, pieces)
            _require_targets(transaction, table)
            merged = row_merging.merge(transaction, table.name, table.columns, keys)
            _pass_keys(transaction, table, keys)
        return merged

    def _rows(self, number: int) -> Iterator[bytes]:
        folder = f"{TABLES}/{number:05}/"
        for member in unpacked(watched(self.archive.read(), self.watcher)):
            if member.name.startswith(folder):
                yield from member.pieces


def _table(head: Head, collection: str) -> Table:
    if collection.startswith("system_"):
        raise BackupError(
            f"{collection} belongs to the service itself, whose parts depend on each other: "
            "it comes back with the whole archive only."
        )
    for table in head.tables:
        if table.name == collection:
            return table
    raise BackupError(f"The archive has no table {collection}.")


def _check_columns(transaction: Transaction, table: Table) -> list[str]:
    """Return the primary key of a table; raises `BackupError` if the archive does not fit it."""
    columns = single_values(transaction.execute(statement("list_columns_of_table"), (table.name,)))
    if not columns:
        raise BackupError(
            f"There is no collection {table.name} here any more. Make it first, with a snapshot "
            "(`cms schema apply`) or as it was, and restore its rows then."
        )
    absent = [name for name in table.columns if name not in columns]
    if absent:
        raise BackupError(
            f"{table.name} lacks fields that the archive has: {', '.join(absent)}. "
            "Make them first, and restore the rows then."
        )
    keys = single_values(transaction.execute(statement("list_key_columns"), (table.name,)))
    if not keys:
        raise BackupError(f"{table.name} has no primary key, by which rows could be told apart.")
    return keys


def _require_targets(transaction: Transaction, table: Table) -> None:
    """Raise `BackupError` if rows name others that are not there."""
    missing = []
    for row in transaction.execute(statement("list_foreign_keys_of_table"), (table.name,)):
        name, columns, schema, target, target_columns = row
        key = ForeignKey(name, tuple(columns), schema, target, tuple(target_columns))
        # A key of columns that the archive does not have names nothing.
        if not set(key.columns) <= set(table.columns):
            continue
        unmatched = row_merging.unmatched(transaction, table.name, key)
        if unmatched.count:
            missing.append(
                f"{', '.join(key.columns)} names {unmatched.count} rows of {target} that are not "
                f"there ({', '.join(unmatched.examples)}, …)."
            )
    if missing:
        raise BackupError(" ".join([*missing, "Restore these first. Nothing has been changed."]))


def _pass_keys(transaction: Transaction, table: Table, keys: list[str]) -> None:
    """Move sequences behind the restored keys, so that no later item gets one of them."""
    for key in keys:
        ((is_automatic,),) = transaction.execute(statement("has_automatic_keys"), (table.name, key))
        largest = row_merging.largest_staged(transaction, key) if is_automatic else None
        if largest is not None:
            values = (table.name, key, str(largest))
            transaction.execute(statement("pass_restored_keys"), values)
