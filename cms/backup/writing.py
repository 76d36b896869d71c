"""A backup: the members of an archive, made as they are read.

One transaction sees the structure, all rows and the list of files as they were at one moment. The
contents of files follow when it has ended: they never change, and the service removes none of them
before the backup has ended.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from cms.backup import BackupError, Watcher, manifest
from cms.backup.archive_format import Member, json_member, member_of
from cms.backup.manifest import Head, SequencePosition, Summary, Table
from cms.backup.structure_dump import StructureChanges, dump_structure
from cms.database.bulk import (
    Missing,
    TableInSchema,
    bulk_transaction,
    copy_out,
    keeping_contents,
    lock_for_reading,
    sequence_position,
)
from cms.database.connections import Transaction, single_values
from cms.database.error_mapping import Deadlock
from cms.database.statements import statement
from cms.errors import Refused
from cms.files.storage import Storages
from cms.files.stored_content import find_content

PART_BYTES = 2**22
"""The bytes of a part of a table, the largest thing that is held in memory beside a row."""

FILES_PER_LIST = 1000

_ATTEMPTS = 5


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Moment(NamedTuple):
    """The head and the structure of a moment, and the transaction that sees the rows of it."""

    transaction: Transaction
    head: Head
    structure: list[Member]


class Backup:
    """One backup of a database and the files that its rows name."""

    def __init__(
        self,
        dsn: str,
        storages: Storages,
        *,
        find_program: Callable[[int], Path],
        watcher: Watcher,
    ) -> None:
        """`find_program` returns pg_dump for a server of a major version."""
        self._dsn = dsn
        self._storages = storages
        self._find_program = find_program
        self._watcher = watcher
        self._rows: dict[str, int] = {}
        self._files = 0
        self.missing = 0
        """How many files had no content any more."""

    def members(self) -> Generator[Member]:
        """Yield the members of the archive; raises `BackupError`, `BulkError` and `Refused`.

        A caller that does not take all of them closes the generator, which ends its transaction.
        """
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as files,
            # Before the moment of the rows, so that it holds all contents that these name.
            keeping_contents(self._dsn),
        ):
            with self._one_moment() as moment:
                _require_locations(moment.head, self._storages)
                size = _list_files(moment.transaction, files)
                yield json_member(manifest.HEAD, asdict(moment.head))
                yield from moment.structure
                yield from self._rows_members(moment.transaction, moment.head)
            files.seek(0)
            self._watcher.begin("files", size)
            yield from self._file_members(files)
        yield json_member(manifest.SUMMARY, asdict(Summary(self._rows, self._files, self.missing)))

    @contextmanager
    def _one_moment(self) -> Iterator[_Moment]:
        """Open a transaction that sees one moment, in which no structure changes while it lasts."""
        for _attempt in range(_ATTEMPTS):
            names = _names_of_now(self._dsn)
            with bulk_transaction(self._dsn, reads_only=True) as transaction:
                if not is_locked(transaction, names):
                    continue
                head = _head(transaction)
                try:
                    structure = self._structure(transaction, head)
                except StructureChanges:
                    continue  # which happens as soon as this transaction has ended
                yield _Moment(transaction, head, structure)
                return
        raise BackupError("The structure changes all the time. Back up when it rests.")

    def _rows_members(self, transaction: Transaction, head: Head) -> Iterator[Member]:
        self._watcher.begin("tables", sum(table.size for table in head.tables))
        for number, table in enumerate(head.tables, start=1):
            name = TableInSchema(head.schema, table.name)
            rows = copy_out(transaction, name, table.columns)
            yield from self._table_members(number, table.name, rows)
        # After the rows: a sequence that has moved on meanwhile is no harm, one behind them is.
        yield json_member(manifest.SEQUENCES, _sequence_positions(transaction, head.schema))

    def _structure(self, transaction: Transaction, head: Head) -> list[Member]:
        program = self._find_program(head.server // 10_000)
        ((snapshot,),) = transaction.execute(statement("export_snapshot"))
        members = []
        for name, section in ((manifest.BEFORE, "pre-data"), (manifest.AFTER, "post-data")):
            script = dump_structure(
                program, self._dsn, schema=head.schema, snapshot=snapshot, section=section
            )
            members.append(member_of(name, script.encode()))
        return members

    def _table_members(self, number: int, table: str, rows: Iterable[bytes]) -> Iterator[Member]:
        count = 0
        for part_number, part in enumerate(_parts(rows), start=1):
            # Line breaks within values are escaped.
            count += part.count(b"\n")
            yield member_of(f"{manifest.TABLES}/{number:05}/{part_number:07}", part)
            self._watcher.advance(len(part))
        self._rows[table] = count

    def _file_members(self, files: Iterable[str]) -> Iterator[Member]:
        rows = map(json.loads, files)
        number = 0
        while batch := list(islice(rows, FILES_PER_LIST)):
            number += 1
            entries: list[dict[str, Any]] = []
            for key, storage, path, name in batch:
                entry = {"id": key, "storage": storage, "path": path, "name": name}
                entries.append(entry)
                yield from self._content(entry)
            yield json_member(f"{manifest.LISTS}/{number:07}.json", entries)

    def _content(self, entry: dict[str, Any]) -> Iterator[Member]:
        """Yield the content of a file if there is one; `entry` gets its size and SHA-256."""
        try:
            with _readable(entry):
                content = find_content(self._storages.existing(entry["storage"]), entry["path"])
                # The first piece opens it: from then on it may be deleted.
                pieces = _begun(content.chunks(0, content.size))
        except FileNotFoundError:
            entry["missing"] = True
            self.missing += 1
            self._watcher.report(
                f"The file {entry['id']} ({entry['name']}) has lost its content: "
                f"{entry['storage']}/{entry['path']} is not there."
            )
            return
        digest = hashlib.sha256()
        pieces = self._watched(_named(pieces, entry), digest)
        yield Member(f"{manifest.FILES}/{entry['id']}", content.size, pieces)
        self._files += 1
        entry["size"] = content.size
        entry["sha256"] = digest.hexdigest()

    def _watched(self, pieces: Iterable[bytes], digest: Digest) -> Iterator[bytes]:
        for piece in pieces:
            digest.update(piece)
            self._watcher.advance(len(piece))
            yield piece


def _names_of_now(dsn: str) -> list[TableInSchema]:
    with bulk_transaction(dsn, reads_only=True) as transaction:
        _require_service(transaction)
        return _table_names(transaction)


def is_locked(transaction: Transaction, names: list[TableInSchema]) -> bool:
    """Lock the tables, and tell whether they are all that there are."""
    try:
        lock_for_reading(transaction, names)
    except (Missing, Deadlock):
        return False  # one of the tables has been dropped meanwhile, or is being changed
    # Its first query: from here on it sees what was there when all tables were locked.
    return _table_names(transaction) == names


def _require_service(transaction: Transaction) -> None:
    ((schema, _server, has_service),) = transaction.execute(statement("describe_database"))
    if not has_service:
        raise BackupError(
            f"There is no service in the schema {schema} of this database: nothing to back up."
        )


def _require_locations(head: Head, storages: Storages) -> None:
    absent = [name for name in head.storages if name not in storages]
    if absent:
        raise BackupError(
            f"Files are in storage locations that are not set up here: {', '.join(absent)}. "
            "Name them in STORAGE_LOCATIONS."
        )


def _table_names(transaction: Transaction) -> list[TableInSchema]:
    ((schema, _server, _has_service),) = transaction.execute(statement("describe_database"))
    tables = transaction.execute(statement("list_backup_tables"))
    return [TableInSchema(schema, name) for name, *_ in tables]


def _sequence_positions(transaction: Transaction, schema: str) -> list[SequencePosition]:
    positions: list[SequencePosition] = []
    for name in single_values(transaction.execute(statement("list_sequences"))):
        value, is_used = sequence_position(transaction, TableInSchema(schema, name))
        positions.append(SequencePosition(name, value, is_used))
    return positions


def _head(transaction: Transaction) -> Head:
    ((schema, server, _has_service),) = transaction.execute(statement("describe_database"))
    migrations: dict[str, str] = {}
    for _number, name, sha256 in transaction.execute(statement("list_migrations")):
        migrations[name] = sha256
    tables: list[Table] = []
    for name, size, columns in transaction.execute(statement("list_backup_tables")):
        tables.append(Table(name, tuple(columns), size))
    return Head(
        format=manifest.FORMAT,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        schema=schema,
        server=server,
        migrations=migrations,
        extensions=dict(transaction.execute(statement("list_extensions"))),
        storages=tuple(single_values(transaction.execute(statement("list_storages_of_files")))),
        tables=tuple(tables),
        filled_views=tuple(single_values(transaction.execute(statement("list_filled_views")))),
    )


def _list_files(transaction: Transaction, files: TextIO) -> int:
    """Write the files that have a content, one a line, and return about how large they are.

    Onto the disk, because there may be millions, and the transaction ends before they are read.
    """
    last = None
    while page := transaction.execute(statement("list_files_with_content"), (last,)):
        for row in page:
            files.write(json.dumps(row) + "\n")
        last = page[-1][0]
    ((size,),) = transaction.execute(statement("sum_file_sizes"))
    return int(size)


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Return the same pieces, the first of which has been read already."""
    first = next(pieces, b"")
    return chain((first,), pieces)


def _named(pieces: Iterable[bytes], entry: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the same pieces; an error in reading them names the file."""
    with _readable(entry):
        yield from pieces


@contextmanager
def _readable(entry: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, Refused) as error:
        raise BackupError(
            f"The content of the file {entry['id']} ({entry['name']}) cannot be read: "
            f"{entry['storage']}/{entry['path']}. {error}"
        ) from error


def _parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in parts of at most `PART_BYTES`."""
    part = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        while len(part) + len(rest) > PART_BYTES:
            fitting = PART_BYTES - len(part)
            part += rest[:fitting]
            rest = rest[fitting:]
            yield bytes(part)
            part.clear()
        part += rest
    if part:
        yield bytes(part)
