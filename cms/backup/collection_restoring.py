"""Restores the rows of one collection into a running service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cms.backup import BackupError, Watcher
from cms.backup.archive_format import unpacked
from cms.backup.archives import Archive
from cms.backup.checking import believing_head, check_migrations, head_of, verified, watched
from cms.backup.manifest import TABLES, Head, Table
from cms.database import bulk, row_merging
from cms.database.bulk import TableInSchema, bulk_transaction
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
        with bulk_transaction(self.dsn, reads_only=True) as transaction:
            with believing_head(self.archive, self.watcher):
                head = head_of(self.archive)
                check_migrations(head)
                table = _table(head, self.collection)
                _check_columns(transaction, table)
            ((schema, _server, _),) = transaction.execute(statement("describe_database"))
        verified(self.archive, self.watcher)
        for _attempt in range(_ATTEMPTS):
            try:
                return self._write(head, table, TableInSchema(schema, table.name))
            except Deadlock:
                continue
        raise BackupError(
            f"Others change {table.name} and what it names all the time. Try again when there is "
            "less to do. Nothing has been changed."
        )

    def _write(self, head: Head, table: Table, name: TableInSchema) -> Merged:
        with bulk_transaction(self.dsn, reads_only=False) as transaction:
            # Before anything is read of it: rows that come meanwhile would be counted wrongly, and
            # waiting for them later could end in a deadlock.
            bulk.lock_for_merging(transaction, name)
            keys = _check_columns(transaction, table)
            self.watcher.begin("restoring", self.archive.size())
            pieces = self._rows(head.tables.index(table) + 1)
            row_merging.stage(transaction, name, table.columns, pieces)
            _require_targets(transaction, table, name)
            fixed = _unchanged_identities(transaction, name, table=table, keys=keys)
            merged = row_merging.merge(transaction, name, table.columns, keys=keys, fixed=fixed)
            _pass_values(transaction, table)
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
            f"There is no collection {table.name} here any more. Make it first, and restore "
            "its rows then: docs/backup.md tells how to take its structure from the archive."
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


def _require_targets(transaction: Transaction, table: Table, table_name: TableInSchema) -> None:
    """Raise `BackupError` if rows name others that are not there."""
    missing = []
    for row in transaction.execute(statement("list_foreign_keys_of_table"), (table.name,)):
        name, columns, schema, target, target_columns, collations = row
        key = ForeignKey(
            name,
            tuple(columns),
            TableInSchema(schema, target),
            tuple(target_columns),
            tuple(collations),
        )
        # A key of columns that the archive does not have names nothing.
        if not set(key.columns) <= set(table.columns):
            continue
        unmatched = row_merging.unmatched(transaction, table_name, key)
        if unmatched.count:
            missing.append(
                f"{', '.join(key.columns)} names {unmatched.count} rows of {target} that are not "
                f"there ({', '.join(unmatched.examples)}, …)."
            )
    if missing:
        raise BackupError(" ".join([*missing, "Restore these first. Nothing has been changed."]))


def _unchanged_identities(
    transaction: Transaction, name: TableInSchema, *, table: Table, keys: list[str]
) -> list[str]:
    """Return the columns that PostgreSQL changes in no row, GENERATED ALWAYS AS IDENTITY.

    Raises `BackupError` if the archive has another value for a row that is there.
    """
    columns: list[str] = []
    for column in single_values(transaction.execute(statement("list_identities"), (table.name,))):
        if column not in table.columns or column in keys:
            continue
        if row_merging.has_changes(transaction, name, keys=keys, column=column):
            raise BackupError(
                f"{table.name} has rows with the keys of the archive's, but another {column}. "
                "That is GENERATED ALWAYS AS IDENTITY, which PostgreSQL changes in no row. Delete "
                "these rows first. Nothing has been changed."
            )
        columns.append(column)
    return columns


def _pass_values(transaction: Transaction, table: Table) -> None:
    """Move sequences behind the restored values, so that no later item gets one of them."""
    for column in single_values(
        transaction.execute(statement("list_given_numbers"), (table.name,))
    ):
        # A column that is newer than the archive gets its values from the sequence itself.
        if column not in table.columns:
            continue
        values = (table.name, column)
        ((is_automatic,),) = transaction.execute(statement("has_automatic_keys"), values)
        largest = row_merging.largest_staged(transaction, column) if is_automatic else None
        if largest is not None:
            transaction.execute(statement("pass_restored_keys"), (*values, str(largest)))
