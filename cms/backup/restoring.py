"""A whole archive put back, in one transaction: structure, rows, files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from datetime import timedelta
from itertools import chain, groupby
from uuid import UUID

from cms.backup import BackupError, DamagedArchive, Watcher, manifest
from cms.backup.archive_format import Member, unpacked
from cms.backup.archives import Archive
from cms.backup.checking import (
    believing_head,
    check_archive,
    content_bytes,
    content_of,
    head_of,
    missing_extensions,
    verified,
    watched,
)
from cms.backup.manifest import Entry, Head, SequencePosition, Summary, Table
from cms.backup.structure_dump import for_server
from cms.database import bulk
from cms.database.bulk import TableInSchema
from cms.database.connections import Transaction
from cms.database.error_mapping import Deadlock
from cms.database.statements import statement
from cms.files.storage import Storages
from cms.files.stored_content import is_storable
from cms.store.current_version import current_version

_ATTEMPTS = 50
_GENTLE_ATTEMPTS = 20
_PATIENCE = timedelta(milliseconds=500)
"""How long the first attempts wait for tables, while requests wait for those locked before.

After twice that PostgreSQL looks for circles and ends one side, which may be a request.
"""


class Restoration:
    """One archive that is put back into a database and its storage locations."""

    def __init__(self, dsn: str, storages: Storages, *, archive: Archive, watcher: Watcher) -> None:
        self._dsn = dsn
        self._storages = storages
        self._archive = archive
        self._watcher = watcher

    def run(self, *, replaces: bool) -> int:
        """Put everything back, and return how many files have no content in the archive.

        With `replaces`, also in place of what is there. Raises `BackupError`, `BulkError` and
        `Refused`, and then nothing has changed.
        """
        with bulk.bulk_transaction(self._dsn, reads_only=True) as transaction:
            with believing_head(self._archive, self._watcher):
                head = head_of(self._archive)
                check_archive(head, transaction, self._storages)
            _require_room(transaction, replaces=replaces)
        # The whole archive is checked before anything is changed, and again while it is put back.
        missing = verified(self._archive, self._watcher)
        with bulk.bulk_transaction(self._dsn, reads_only=False) as transaction:
            transaction.execute(statement("lock_migrations"))
            counters = self._clear(transaction, head, replaces=replaces)
            with _RestoredContents(self._storages) as contents:
                self._fill(transaction, head, contents)
            if counters:
                transaction.execute(statement("pass_counters_of_version"), counters)
        return missing

    def _clear(self, transaction: Transaction, head: Head, *, replaces: bool) -> tuple[str, ...]:
        """Remove the present content, and return its counters of freshness, if it was a service's.

        The service may run, and use tables in another order than they are locked here.
        """
        locked: list[str] = []
        for attempt in range(_ATTEMPTS):
            patience = None
            if attempt < _GENTLE_ATTEMPTS:
                patience = _PATIENCE
            try:
                # If it fails, the savepoint gives the locks back, for which others may wait.
                with transaction.savepoint():
                    # All are locked before one is read: a running service would come in between.
                    tables = _tables(transaction, first=locked)
                    bulk.lock_alone(transaction, tables, patience=patience)
                    check_archive(head, transaction, self._storages)
                    _require_room(transaction, replaces=replaces)
                    counters = _counters(transaction)
                    _empty_schema(transaction)
                bulk.limit_waiting(transaction, None)
                return counters
            except bulk.TableLocked as error:
                # Next time it is locked first: before the tables that its holders wait for.
                if error.table in locked:
                    locked.remove(error.table)
                locked.insert(0, error.table)
            except Deadlock:
                continue
        raise BackupError(
            "Others use the tables all the time. Stop the service, and restore then. "
            "Nothing has been changed."
        )

    def _fill(self, transaction: Transaction, head: Head, contents: _RestoredContents) -> None:
        self._make_extensions(transaction, head)
        self._watcher.begin("restoring", self._archive.size())
        members = unpacked(watched(self._archive.read(), self._watcher))
        _Pass(transaction, head, contents=contents, watcher=self._watcher).run(members)

    def _make_extensions(self, transaction: Transaction, head: Head) -> None:
        missing = missing_extensions(head, transaction)
        installed: dict[str, str] = dict(transaction.execute(statement("list_extensions")))
        for name, schema in head.extensions.items():
            here = installed.get(name, schema)
            if name in missing:
                self._watcher.report(
                    f"This server does not have the extension {name}, which the archive's had."
                )
            elif here != schema:
                self._watcher.report(
                    f"The extension {name} is in the schema {here} here, and was in {schema}. "
                    f"What names its parts needs them there: ALTER EXTENSION {name} SET SCHEMA."
                )
            else:
                bulk.create_extension(transaction, name, schema=schema)


class _Pass:
    """One pass over the members of an archive, in their order, which puts each where it belongs."""

    def __init__(
        self, transaction: Transaction, head: Head, *, contents: _RestoredContents, watcher: Watcher
    ) -> None:
        self._transaction = transaction
        self._head = head
        self._contents = contents
        self._watcher = watcher
        self._after = ""
        self._rows = {table.name: 0 for table in head.tables}
        self._has_tables = False
        self._is_complete = False

    def run(self, members: Iterable[Member]) -> None:
        """Raise `DamagedArchive` for an archive whose content differs from its description."""
        for (folder, name), group in groupby(members, key=_folder_and_owner):
            if folder == manifest.TABLES:
                self._copy(self._table(name), group)
                continue
            for member in group:
                self._take(folder, name, member)
        if not self._is_complete:
            raise DamagedArchive("its summary is missing")

    def _take(self, folder: str, name: str, member: Member) -> None:
        if folder == manifest.FILES:
            self._contents.put(self._transaction, name, member)
            return
        if folder == manifest.LISTS:
            self._contents.compare(manifest.read_entries(content_bytes(member)))
            return
        if member.name == manifest.BEFORE:
            self._run(_script(member), "The tables cannot be made")
        elif member.name == manifest.AFTER:
            # Keys, indexes and triggers come when the rows are there.
            self._after = _script(member)
        elif member.name == manifest.SEQUENCES:
            self._finish_tables(manifest.read_sequences(content_bytes(member)))
        elif member.name == manifest.SUMMARY:
            self._compare_with(manifest.read_summary(content_bytes(member)))

    def _table(self, number: str) -> Table:
        tables = self._head.tables
        if not number.isdecimal() or not 1 <= int(number) <= len(tables):
            raise DamagedArchive("it holds rows of a table that it does not name")
        return tables[int(number) - 1]

    def _copy(self, table: Table, members: Iterable[Member]) -> None:
        pieces = chain.from_iterable(member.pieces for member in members)
        name = TableInSchema(self._head.schema, table.name)
        self._rows[table.name] += bulk.copy_in(self._transaction, name, table.columns, pieces)

    def _finish_tables(self, sequences: list[SequencePosition]) -> None:
        if not self._after:
            raise DamagedArchive(f"{manifest.AFTER} is missing")
        self._has_tables = True
        self._run(self._after, "The keys, indexes and triggers cannot be made")
        for sequence in sequences:
            values = (sequence.name, str(sequence.value), str(sequence.is_used).lower())
            self._transaction.execute(statement("set_sequence"), values)
        self._fill_views()
        schema = self._head.schema
        tables = [TableInSchema(schema, table.name) for table in self._head.tables]
        bulk.analyze(self._transaction, tables)

    def _fill_views(self) -> None:
        schema = self._head.schema
        views = [TableInSchema(schema, name) for name in self._head.filled_views]
        for view in bulk.refresh_views(self._transaction, views):
            self._watcher.report(
                f"The view {view.name} is left empty: it reads a view that was empty."
            )

    def _run(self, script: str, purpose: str) -> None:
        """Run statements of the structure, which leave the search path empty."""
        ((path,),) = self._transaction.execute(statement("get_search_path"))
        ((_schema, server, _),) = self._transaction.execute(statement("describe_database"))
        bulk.run_script(self._transaction, for_server(script, server), purpose=purpose)
        self._transaction.execute(statement("use_search_path"), (path,))

    def _compare_with(self, summary: Summary) -> None:
        if not self._has_tables:
            raise DamagedArchive(f"{manifest.SEQUENCES} is missing")
        if summary.rows != self._rows:
            raise DamagedArchive("a table has another number of rows than it says")
        if summary.files != self._contents.compared:
            raise DamagedArchive("it has another number of files than it says")
        self._is_complete = True


class _RestoredContents:
    """The contents of files on their way into their locations.

    If the block raises, those that were not there before are removed again. A process that is
    killed leaves them; `cms maintain` removes contents that belong to no file.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        # On the disk: there may be millions. Closed where the block ends.
        self._new = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._stored: dict[str, tuple[int, str | None]] = {}
        self.compared = 0
        """How many stored contents have been found equal to those of the lists."""

    def __enter__(self) -> _RestoredContents:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._new:
            if kind is not None:
                self._remove_new()

    def put(self, transaction: Transaction, key: str, member: Member) -> None:
        """Store the content of the file with an id where its row says."""
        rows = []
        if _is_id(key):
            rows = transaction.execute(statement("find_content_of_file"), (key,))
        if not rows:
            raise DamagedArchive("it holds a content of a file that it does not name")
        ((location, path),) = rows
        if path is None or not is_storable(path):
            raise DamagedArchive("it names a place outside of the storage locations")
        storage = self._storages.existing(location)
        # Every content has a path of its own: one that is there is the same, or else broken.
        if not storage.exists(path):
            self._new.write(json.dumps([location, path]) + "\n")
        result = storage.put(path, member.pieces)
        self._stored[key] = (result.size, result.sha256)

    def compare(self, entries: list[Entry]) -> None:
        """Compare the stored contents with a list of the archive."""
        expected = {entry.key: (entry.size, entry.sha256) for entry in entries if entry.sha256}
        if expected != self._stored:
            raise DamagedArchive("a file has another content than it says")
        self.compared += len(expected)
        self._stored.clear()

    def _remove_new(self) -> None:
        self._new.seek(0)
        for line in self._new:
            location, path = json.loads(line)
            self._storages[location].delete([path])


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _script(member: Member) -> str:
    try:
        return content_bytes(member).decode()
    except UnicodeDecodeError:
        raise DamagedArchive(f"{member.name} is not readable") from None


def _folder_and_owner(member: Member) -> tuple[str, str]:
    """Return the folder of a member, and the name of its owner within that folder."""
    folder, _, rest = member.name.partition("/")
    return folder, rest.partition("/")[0]


def _require_room(transaction: Transaction, *, replaces: bool) -> None:
    """Raise `BackupError` for an installation with content, unless that is to be replaced."""
    content = content_of(transaction)
    if content and not replaces:
        raise BackupError(
            f"This installation is not empty: it has {content}. "
            "With --force everything in it is replaced by what the archive holds."
        )


def _counters(transaction: Transaction) -> tuple[str, ...]:
    """Return the counters of freshness of a service that may be running; none without one."""
    ((_schema, _server, has_service),) = transaction.execute(statement("describe_database"))
    if not has_service:
        return ()
    version = current_version(transaction.execute)
    return tuple(map(str, version))


def _tables(transaction: Transaction, *, first: list[str]) -> list[TableInSchema]:
    """Return the names of all tables: those of `first` in that order, then the others."""
    ((schema, _server, _has_service),) = transaction.execute(statement("describe_database"))
    names = [name for name, *_ in transaction.execute(statement("list_backup_tables"))]
    positions = {name: position for position, name in enumerate(first)}
    names.sort(key=lambda name: positions.get(name, len(first)))
    return [TableInSchema(schema, name) for name in names]


def _empty_schema(transaction: Transaction) -> None:
    """Remove everything from the schema; raises `BackupError` if other schemas depend on it."""
    others = _foreign_objects(transaction)
    for (drop,) in transaction.execute(statement("list_drops")):
        bulk.run_script(transaction, drop, purpose="What is there cannot be removed")
    left = _foreign_objects(transaction)
    dependents = [name for key, name in others.items() if key not in left]
    if dependents:
        raise BackupError(
            f"Others in this database depend on what would be replaced: "
            f"{', '.join(dependents)}. Remove these first."
        )


def _foreign_objects(transaction: Transaction) -> dict[str, str]:
    return dict(transaction.execute(statement("list_foreign_objects")))
