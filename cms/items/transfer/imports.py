"""Imports: the rows of a file, written as a call would write them, all of them or none.

A file is received whole before anything is locked (cms/http/imports.py), so that a slow client
holds up nobody and a deadlock can be answered by doing it again. Then one transaction reads it
batch by batch, each while the database writes the one before.

A batch is parsed, authorized and written as the items of any call are; which of its items exist
already is looked up for all of them at once. When the database refuses a batch, halves of it are
tried, down to the row that it refuses. The other rows of the batch are still written, and so are
the batches after it, to learn what else the database refuses; writing ends once as many problems
are known as an answer holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from cms import jsontext
from cms.access.guard import view_of
from cms.database import connections
from cms.database.connections import Transaction
from cms.database.error_mapping import Conflict, Stale
from cms.errors import STATUS, Problem, Refused, invalid_payload
from cms.fragment import Fragment
from cms.items.transfer.cells import COLUMN_PARSERS, cell_parser
from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.import_problems import ImportProblems, with_line
from cms.items.transfer.prefetch import Prefetch
from cms.items.transfer.sources import SOURCES, SourceColumn, SourceRow
from cms.items.write.calls import WriteCall, WriteIntent, new_call
from cms.items.write.changes import ChangeSet, Expects
from cms.items.write.inquiry import PayloadInquiry
from cms.items.write.nested import write_tree
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.rows import advance_keys
from cms.items.write.transaction_reads import find
from cms.memory import note_memory_use
from cms.query.language.ast import (
    INTERNAL_KEY,
    FieldName,
    OperatorTest,
    ParsedQuery,
    Pick,
    Query,
    Slot,
)
from cms.query.plan.links import link_of, target_collections
from cms.query.sql import locks
from cms.schema.model import Collection, Field
from cms.schema.payload import invalid_item
from cms.store.context import RequestContext
from cms.store.counters import current_version
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.refusals import with_inquiry
from cms.store.store import Store, WritePlan

BATCH_ROWS = 5_000
BATCH_BYTES = 1 << 20
"""A batch ends with whichever comes first.

The problems of one batch can take hundreds of times its own bytes.
"""

_IMPORT_INTENT = WriteIntent(("create", "update"))
_EMPTY_QUERY = ParsedQuery(Query())
_FINAL_STATUSES = frozenset({STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]})
"""Refusals after which no further problems are looked for."""


ParsedBatch = tuple[PayloadParser, ChangeSet]
"""The items of a batch as a change set, and the parser that holds their problems."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file: its format, one of `SOURCES`, its bytes, and how many a row may have."""

    file_format: str
    file: BinaryIO
    max_bytes: int


def require_import(store: Store, identity: Identity, name: str) -> None:
    """Refuse, before the file is received, a caller who may not write to the collection."""
    store.run_primary_read(identity, lambda context: _new_call(store, context, identity, name))


def import_file(
    store: Store,
    identity: Identity,
    name: str,
    upload: Upload,
    *,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Write the rows of a file, and answer how many items were created and updated.

    A row whose key exists for the caller changes that item; any other row is a new item. Raises
    `Refused` with the lines of all problems, after which nothing was written.
    """

    def plan(context: RequestContext) -> WritePlan[bytes | None]:
        def within(transaction: Transaction) -> bytes:
            call = _new_call(store, context, identity, name)
            return _Import(call, transaction).run(upload)

        return WritePlan(within)

    return store.run_write(identity, plan, idempotency=idempotency)


def _new_call(store: Store, context: RequestContext, identity: Identity, name: str) -> WriteCall:
    return new_call(
        store, context, identity.client, name=name, parsed=_EMPTY_QUERY, intent=_IMPORT_INTENT
    )


class _Import:
    """One import within its transaction."""

    def __init__(self, call: WriteCall, transaction: Transaction) -> None:
        self._call = call
        self._write_context = call.write_context(transaction)
        self._collection = call.collection
        self._problems = ImportProblems()
        self._refused_keys: set[str] = set()
        self._has_keys = False
        self._largest_batch = 0
        self._created = 0
        self._updated = 0

    def run(self, upload: Upload) -> bytes:
        # The file is at its end when an attempt before this one met a deadlock.
        upload.file.seek(0)
        rows = SOURCES[upload.file_format](upload.file, upload.max_bytes, self._columns)
        batches = Prefetch(map(self._parse_batch, _batches(rows)))
        self._write_context = replace(self._write_context, while_waiting=batches.advance)
        try:
            for batch, parsed in batches:
                self._handle_batch(batch, parsed)
        finally:
            # The prefetch refers to this import: the cycle would keep its rows in memory.
            self._write_context = replace(self._write_context, while_waiting=None)
            note_memory_use(self._largest_batch)
        self._problems.refuse()
        if self._has_keys:
            self._advance_key_sequence()
        return jsontext.dumps({"data": {"created": self._created, "updated": self._updated}})

    def _handle_batch(self, rows: Sequence[SourceRow], parsed: ParsedBatch | None) -> None:
        self._largest_batch = max(self._largest_batch, sum(row.size for row in rows))
        for row in rows:
            if row.problem:
                self._problems.add(row.problem, row.line)
        self._write_rows(_readable(rows), parsed)

    def _parse_batch(self, rows: list[SourceRow]) -> tuple[list[SourceRow], ParsedBatch | None]:
        """Parse a batch; a refusal is left for `_write_rows`, which parses the batch again."""
        try:
            return rows, self._parse(_readable(rows))
        except Refused:
            return rows, None

    def _parse(self, rows: Sequence[SourceRow]) -> ParsedBatch:
        parser = self._call.payload_parser()
        return parser, parser.parse(self._collection, [row.item for row in rows], Expects.EITHER)

    def _write_rows(self, rows: Sequence[SourceRow], parsed: ParsedBatch | None = None) -> None:
        try:
            with self._write_context.transaction.savepoint():
                parser, root = parsed or self._parse(rows)
                self._write(parser, root)
        except Refused as refused:
            if refused.status == STATUS["SERVICE_UNAVAILABLE"]:
                raise
            if len(rows) > 1 and _needs_halving(refused):
                self._check_structure()
                self._write_rows(rows[: len(rows) // 2])
                self._write_rows(rows[len(rows) // 2 :])
            else:
                refused_indexes = self._add_problems(with_inquiry(refused, self._ask), rows)
                self._write_other_rows(rows, refused_indexes)

    def _write_other_rows(self, rows: Sequence[SourceRow], refused_indexes: set[int]) -> None:
        """Write the rows of a batch that have no known problem."""
        others = [row for index, row in enumerate(rows) if index not in refused_indexes]
        if others and len(others) < len(rows) and not self._problems.is_full:
            self._write_rows(others)

    def _ask(self, question: Fragment) -> list[connections.Row]:
        """Ask the database about refused rows; the transaction goes on even when this fails."""
        transaction = self._write_context.transaction
        with transaction.savepoint():
            return replace(transaction, prepare=False).run(question)

    def _check_structure(self) -> None:
        """Raise `Stale` if the structure has changed: each row would be refused by itself then."""
        before = self._write_context.context.snapshot.version
        now = current_version(self._write_context.transaction.execute)
        if now.structure != before.structure:
            raise Stale(f"{now} instead of {before}")

    def _add_problems(self, refused: Refused, rows: Sequence[SourceRow]) -> set[int]:
        """Keep the problems of a refusal, and return the indexes of the rows that have them."""
        if refused.status in _FINAL_STATUSES:
            problems = [with_line(problem, rows[0].line) for problem in refused.problems]
            raise Refused(problems) from refused
        indexes = set()
        for problem in refused.problems:
            index = problem.extensions.get("index", 0)
            if not isinstance(index, int):
                index = 0
            indexes.add(index)
            if not self._is_consequence(problem):
                self._problems.add(problem, rows[index].line)
        self._problems.total += refused.total - len(refused.problems)
        self._refused_keys |= {_key_of(rows[index], self._collection) for index in indexes}
        return indexes

    def _is_consequence(self, problem: Problem) -> bool:
        """Tell whether a row points to a row of the file that is missing because it was refused."""
        if problem.code != "INVALID_FOREIGN_KEY":
            return False
        if str(problem.extensions.get("value")) not in self._refused_keys:
            return False
        collection = str(problem.extensions.get("collection"))
        field = str(problem.extensions.get("field"))
        catalogue = self._write_context.context.snapshot.catalogue
        relation = catalogue.by_many.get((collection, field))
        return relation is not None and relation.one_collection == self._collection.name

    def _write(self, parser: PayloadParser, root: ChangeSet) -> None:
        """Write a batch; once the file has too many problems, only check it."""
        self._mark_existing(root)
        self._write_context.authorizer.complete(root, parser.problems)
        context = self._write_context.context
        is_permitted = context.actor.policy.is_admin
        parser.problems.refuse(
            PayloadInquiry(context.snapshot.catalogue, root, is_permitted=is_permitted)
        )
        if self._problems.is_full:
            self._problems.is_partial = True
            return
        write_tree(self._write_context, parser, root)
        created = sum(change.is_new for change in root.changes)
        self._created += created
        self._updated += len(root.changes) - created

    def _mark_existing(self, root: ChangeSet) -> None:
        """Make those changes updates whose keys exist for this caller."""
        keys = []
        for change in root.changes:
            key = change.values.get(root.key_field)
            if key is not None:
                keys.append(key)
        if not keys:
            return
        self._has_keys = True
        existing = self._existing_keys(root.collection, keys)
        for change in root.changes:
            if change.values.get(root.key_field) in existing:
                change.is_new = False
                change.key = change.values.pop(root.key_field)

    def _existing_keys(self, collection: Collection, keys: list[str]) -> frozenset[str]:
        """Return the keys of those items that this caller can read."""
        write_context = self._write_context
        context = write_context.context
        policy = context.actor.policy
        if view_of(collection.name, catalogue=context.snapshot.catalogue, policy=policy) is None:
            return frozenset()
        query = Query(
            picks=(Pick(INTERNAL_KEY, FieldName(str(collection.primary_key))),),
            key_test=OperatorTest("_in", (Slot(0),)),
        )
        items = find(
            write_context.store,
            write_context.transaction,
            context,
            collection.name,
            query,
            literals=(tuple(keys),),
        )
        return frozenset(str(item[INTERNAL_KEY]) for item in items)

    def _advance_key_sequence(self) -> None:
        """Let automatic keys go on behind those of the file."""
        if self._collection.key.has_sequence:
            last_key = self._write_context.transaction.run(locks.last_key(self._collection))[0][0]
            keys = [last_key] if last_key is not None else []
            advance_keys(self._write_context, self._collection, keys)

    # The header

    def _columns(self, cells: Sequence[str]) -> list[SourceColumn]:
        """Return the columns of a header.

        Raises `Refused` for a name that the caller may not write, and for one that stands there
        twice.
        """
        names = [unescape_formula(cell) if cell else "" for cell in cells]
        if not names:
            raise invalid_payload("The file has no header with the names of fields", line=1)
        for name, count in Counter(names).items():
            if count > 1:
                problem = invalid_item("the header names it twice", self._collection.name, name)
                self._problems.add(problem, 1)
        self._check_names(names)
        self._problems.refuse()
        return [self._column(self._collection.fields[name]) for name in names]

    def _check_names(self, names: Sequence[str]) -> None:
        """Parse an item that names every field and holds no values."""
        fields = self._collection.fields
        item: dict[str, object] = {}
        for name in names:
            is_list = name in fields and fields[name].column is None
            item[name] = [] if is_list else None
        parser = self._call.payload_parser()
        try:
            parser.parse(self._collection, [item], Expects.EITHER)
        except Refused as refused:
            raise Refused(with_line(problem, 1) for problem in refused.problems) from refused
        for _, problem in parser.problems.entries:
            self._problems.add(problem, 1)
        self._problems.total += parser.problems.total - len(parser.problems.entries)

    def _column(self, field: Field) -> SourceColumn:
        catalogue = self._write_context.context.snapshot.catalogue
        is_relational = bool(
            link_of(catalogue, self._collection, field.name)
            or target_collections(catalogue, self._collection, field.name)
        )
        parse_cell = cell_parser(field, is_relational=is_relational)
        return SourceColumn(
            field.name,
            parse_cell,
            COLUMN_PARSERS.get(parse_cell),
            takes_null=field.column is not None,
        )


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
    return [row for row in rows if row.problem is None]


def _needs_halving(refused: Refused) -> bool:
    """Tell whether a refusal may leave out which rows it is about, or problems of other rows."""
    if isinstance(refused, Conflict):
        return True
    return any(problem.extensions.get("index") is None for problem in refused.problems)


def _key_of(row: SourceRow, collection: Collection) -> str:
    """Return the key in a row, as text."""
    return str(row.item.get(collection.primary_key)) if isinstance(row.item, Mapping) else ""
