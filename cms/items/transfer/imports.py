"""Imports: the rows of a file, written as a call would write them, all of them or none.

A file is received whole before anything is locked (cms/http/imports.py), so that a slow client
holds up nobody and a deadlock can be answered by doing it again. Then one transaction reads it
batch by batch, each while the database writes the one before.

A batch is parsed, authorized and written like the items of any call. One statement looks up which
of its items exist. When the database refuses a batch, halves of it are tried, down to the row that
it refuses. The other rows of the batch are still written, and so are the batches after it, to learn
what else the database refuses. Writing ends when as many problems are known as an answer holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Generic, NamedTuple, TypeVar

from cms import jsontext
from cms.access.guard import view_of
from cms.database import connections
from cms.database.connections import single_value
from cms.database.error_mapping import Conflict, Stale
from cms.errors import STATUS, Problem, Refused
from cms.fragment import Fragment
from cms.hashing.passwords import TooManyHashes, hashing_again
from cms.items.transfer.header import source_columns
from cms.items.transfer.import_problems import ImportProblems, refusal_at
from cms.items.transfer.sources import SOURCES, SourceColumn, SourceRow
from cms.items.write.calls import WriteCall, WriteIntent, new_call, target_of
from cms.items.write.item_filters import filtered_set
from cms.items.write.item_writes import ParsedPayload, parse_payload
from cms.items.write.nested import CompletePayload, write_tree
from cms.items.write.run.refusal_diagnosis import InquirySet, refuse
from cms.items.write.stages.parsed import Expects, ParsedSet
from cms.items.write.stages.resolved_rows import ALL_NEW, StoredRows
from cms.items.write.transaction.rows import advance_keys, as_stored
from cms.processes.memory import note_memory_use
from cms.query.sql import locks
from cms.schema.keys import sent_key, text_of_key
from cms.schema.model import Collection
from cms.store.current_version import current_version
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.refusals import index_of, with_inquiry
from cms.store.store import Store
from cms.store.write_attempts import Write

BATCH_ROWS = 5_000
BATCH_BYTES = 1 << 20
"""A batch ends at so many rows or bytes, whichever comes first.

The bytes have a bound because the problems of a batch can take hundreds of times its size.
"""

_IMPORT_INTENT = WriteIntent(("create", "update"))
_FINAL_STATUSES = frozenset({STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]})
"""Refusals after which no further problems are looked for.

They are about the caller's rights, which are the same for every row.
"""


class Batch(NamedTuple):
    """Rows of a file that are written together; `parsed` is None where parsing refused them."""

    rows: list[SourceRow]
    parsed: ParsedPayload | None


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file: its format, one of `SOURCES`, its contents, and the limit of a row.

    `charset` is the encoding that its sender names for CSV.
    """

    file_format: str
    file: BinaryIO
    max_bytes: int
    charset: str | None = None


def require_import(store: Store, identity: Identity, name: str) -> None:
    """Refuse a caller who may not write to the collection, before the file is received."""
    for attempt in store.primary_reads(identity):
        with attempt as context:
            target_of(context, name, _IMPORT_INTENT)


def import_file(
    store: Store,
    identity: Identity,
    name: str,
    upload: Upload,
    *,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Write the rows of a file, and answer how many items were created and updated.

    A row with the key of an item that the caller can read changes that item; any other row is a new
    item. Raises `Refused` with the lines of all problems; then nothing has been written.
    """
    write: Write[bytes | None] = store.write(identity, idempotency=idempotency)
    for attempt in write:
        with attempt as context:
            # A new call for each attempt: the import counts and keeps problems as it goes on.
            call = new_call(
                store, context, identity.client, attempt, name=name, intent=_IMPORT_INTENT
            )
            write.answer = _Import(call).run(upload)
    return write.answer


class _Import:
    """One import within its transaction."""

    def __init__(self, call: WriteCall) -> None:
        self._call, self._executor = call.begun()
        self._collection = call.collection
        self._problems = ImportProblems()
        # Keys of rows that were refused: later rows of the file may point to them.
        self._refused_keys: set[str] = set()
        self._has_keys = False
        self._largest_batch = 0
        self._created = 0
        self._updated = 0

    def run(self, upload: Upload) -> bytes:
        # The file is at its end when an attempt before this one met a deadlock.
        upload.file.seek(0)
        read = SOURCES[upload.file_format]
        rows = read(upload.file, upload.max_bytes, self._columns, upload.charset)
        # All of it is lazy: rows are read and parsed as batches are asked for, one batch ahead.
        batches = Prefetch(map(self._parse_batch, _batches(rows)))
        self._executor = replace(self._executor, while_waiting=batches.advance)
        try:
            for batch in batches:
                # A file of a gigabyte is not read to its end for problems that no answer holds.
                if self._problems.is_full:
                    self._problems.is_partial = True
                    break
                self._handle_batch(batch)
        finally:
            # The prefetch refers to this import: the cycle would keep its rows in memory.
            self._executor = replace(self._executor, while_waiting=None)
            note_memory_use(self._largest_batch)
        self._problems.refuse()
        if self._has_keys:
            self._advance_key_sequence()
        return jsontext.dumps({"data": {"created": self._created, "updated": self._updated}})

    def _columns(self, header: Sequence[str], line: int) -> list[SourceColumn]:
        # Only CSV has a header; items of JSON name their fields themselves.
        return source_columns(self._call, header, line, self._problems)

    def _handle_batch(self, batch: Batch) -> None:
        size = 0
        for row in batch.rows:
            size += row.size
            if row.problem:
                self._problems.add(row.problem, row.line)
        self._largest_batch = max(self._largest_batch, size)
        # The other rows may have problems that only the database finds.
        self._write_rows(_readable(batch.rows), batch.parsed)

    def _parse_batch(self, rows: list[SourceRow]) -> Batch:
        try:
            return Batch(rows, self._parse(_readable(rows)))
        except TooManyHashes:
            raise
        except Refused:
            # Raised here, it would hide the problems of the batch that is being written.
            # `_write_rows` parses the batch again and meets the refusal in its turn.
            return Batch(rows, None)

    def _parse(self, rows: Sequence[SourceRow]) -> ParsedPayload:
        items = [row.item for row in rows]
        return parse_payload(self._call, items, Expects.ANY)

    def _parse_again(self, rows: Sequence[SourceRow]) -> ParsedPayload:
        """Parse rows of a batch that was refused before."""
        # With a problem nothing of the file is written, so that its values need no true hashes.
        with hashing_again(in_vain=self._problems.total > 0):
            return self._parse(rows)

    def _write_rows(self, rows: Sequence[SourceRow], parsed: ParsedPayload | None = None) -> None:
        try:
            with self._executor.transaction.savepoint():
                # Without `parsed` the rows are part of a batch, or parsing refused them before.
                self._write(parsed or self._parse_again(rows))
        except TooManyHashes:
            raise
        except Refused as refused:
            if refused.is_unavailable:
                raise
            # PostgreSQL names no row: halves of the batch are tried until one row is left.
            if len(rows) > 1 and _needs_halving(refused):
                self._check_structure()
                middle = len(rows) // 2
                self._write_rows(rows[:middle])
                self._write_rows(rows[middle:])
            else:
                # Asked in the transaction, where the rows of earlier batches are.
                complete = with_inquiry(refused, self._run_question)
                self._write_other_rows(rows, self._add_problems(complete, rows))

    def _write_other_rows(self, rows: Sequence[SourceRow], refused_indexes: set[int]) -> None:
        """Write the rows of a batch that have no known problem."""
        others = [row for index, row in enumerate(rows) if index not in refused_indexes]
        if others and len(others) < len(rows) and not self._problems.is_full:
            self._write_rows(others)

    def _run_question(self, question: Fragment) -> list[connections.Row]:
        """Ask the database about refused rows; the transaction survives a failing question."""
        transaction = self._executor.transaction
        with transaction.savepoint():
            # Questions hardly come again: prepared, they would displace statements that do.
            return replace(transaction, prepare=False).run(question)

    def _check_structure(self) -> None:
        """Raise `Stale` if the structure has changed: then each row would be refused by itself."""
        before = self._executor.context.snapshot.version
        now = current_version(self._executor.transaction.execute)
        if now.structure != before.structure:
            raise Stale(f"{now} instead of {before}")

    def _add_problems(self, refused: Refused, rows: Sequence[SourceRow]) -> set[int]:
        """Keep the problems of a refusal, and return the indexes of the rows that have them."""
        if refused.status in _FINAL_STATUSES:
            raise refusal_at(rows[0].line, refused) from refused
        indexes: set[int] = set()
        for problem in refused.problems:
            # A problem without an index belongs to the first row.
            index = index_of(problem)
            indexes.add(index)
            if not self._is_consequence(problem):
                self._problems.add(problem, rows[index].line)
        # A refusal holds its first problems, and only counts the others.
        self._problems.total += refused.total - len(refused.problems)
        # Later rows of the file that point to these are no problems of their own.
        for index in indexes:
            self._refused_keys.add(_key_of(rows[index], self._collection))
        return indexes

    def _is_consequence(self, problem: Problem) -> bool:
        """Tell whether a row points to a row of the file that is missing because it was refused."""
        if problem.code != "INVALID_FOREIGN_KEY":
            return False
        if str(problem.extensions.get("value")) not in self._refused_keys:
            return False
        # Keys of the file are those of its own collection: the field must point to that.
        collection = str(problem.extensions.get("collection"))
        field = str(problem.extensions.get("field"))
        catalogue = self._executor.context.snapshot.catalogue
        relation = catalogue.by_many.get((collection, field))
        return relation is not None and relation.one_collection == self._collection.name

    def _write(self, parsed: ParsedPayload) -> None:
        """Write a batch, or only check it when the file has too many problems already."""
        parser, items = parsed
        authorizer = self._call.authorizer
        stored = self._stored_rows(items)
        items = filtered_set(self._executor, parser, items, stored)
        root = authorizer.completer.complete(items, parser.problems, stored=stored)
        context = self._executor.context
        refuse(
            parser.problems,
            context.snapshot.catalogue,
            [InquirySet(root.collection, root.rows)],
            is_permitted=context.actor.policy.is_admin,
        )
        # So far nothing is written, but all is checked that needs no write.
        if self._problems.is_full:
            self._problems.is_partial = True
            return
        related = items if not items.is_flat else None
        write_tree(self._executor, authorizer, CompletePayload(parser, root, related))
        self._created += len(root.rows) - len(stored.keys)
        self._updated += len(stored.keys)

    def _stored_rows(self, items: ParsedSet) -> StoredRows:
        """Return those rows whose keys exist for this caller, which are updates."""
        keys: dict[int, str] = {}
        for number, key in enumerate(items.collection.keys_of(items.row_values)):
            if key is not None:
                keys[number] = key
        if not keys:
            return ALL_NEW
        self._has_keys = True
        stored_keys = as_stored(self._executor, items.collection, list(keys.values()))
        existing = self._existing_keys(items.collection, list(stored_keys.values()))
        stored: dict[int, str | None] = {}
        for number, key in keys.items():
            if stored_keys[key] in existing:
                stored[number] = stored_keys[key]
        return StoredRows(stored)

    def _existing_keys(self, collection: Collection, keys: list[str]) -> frozenset[str]:
        """Return the keys of those items that this caller can read."""
        context = self._executor.context
        policy = context.actor.policy
        if view_of(collection.name, catalogue=context.snapshot.catalogue, policy=policy) is None:
            # Who reads nothing may still create: each row is a new item then.
            return frozenset()
        return self._executor.readable_keys(collection.name, keys)

    def _advance_key_sequence(self) -> None:
        """Advance the sequence of automatic keys beyond the keys of the file."""
        if self._collection.key.has_sequence:
            # Once for the whole file: each call of the function takes a lock.
            last_key = single_value(
                self._executor.transaction.run(locks.last_key(self._collection))
            )
            if last_key is not None:
                advance_keys(self._executor, self._collection, [last_key])


def _batches(rows: Iterable[SourceRow]) -> Iterator[list[SourceRow]]:
    batch: list[SourceRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.size
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _readable(rows: Sequence[SourceRow]) -> list[SourceRow]:
    """Return the rows whose text could be read."""
    return [row for row in rows if row.problem is None]


def _needs_halving(refused: Refused) -> bool:
    """Tell whether a refusal leaves open which rows it is about, or the problems of other rows."""
    # PostgreSQL stops at the first value that it refuses.
    if isinstance(refused, Conflict):
        return True
    return any(problem.extensions.get("index") is None for problem in refused.problems)


def _key_of(row: SourceRow, collection: Collection) -> str:
    """Return the key in a row, as text."""
    # An item of another shape holds no key.
    if not isinstance(row.item, Mapping):
        return ""
    return text_of_key(sent_key(collection, row.item))


# The next batch, read while the program waits for the database


T = TypeVar("T")


class Prefetch(Generic[T]):
    """Yields the elements of an iterator; `advance` takes the next one early.

    An error that the iterator raises meanwhile is raised when that element would be yielded.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        # At most one: each element may be as large as a batch of an import.
        self._ready: list[T] = []
        self._error: Exception | None = None

    def advance(self) -> None:
        """Take the next element unless there is one already; raises nothing."""
        if self._ready or self._error:
            return
        try:
            self._ready.append(next(self._items))
        except Exception as error:
            # StopIteration as well, which ends the iteration in its turn.
            self._error = error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self.advance()
        if self._ready:
            return self._ready.pop()
        assert self._error
        try:
            raise self._error
        finally:
            # Its traceback has this frame, and so this object: they would keep each other.
            self._error = None
