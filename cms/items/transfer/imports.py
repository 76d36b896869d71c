"""Imports: the rows of a file, written as a call would write them, all of them or none.

A file is received whole before anything is locked (cms/http/imports.py), so that a slow client holds up nobody and a
deadlock can be answered by doing it again. Then it is read batch by batch in one transaction, each while the database
writes the one before. A batch goes through the drafts, the judge and the row functions as the items of any call do;
what is there already is looked up for all of it at once. When the database refuses a batch, halves of it are tried,
down to the row that it refuses. What is left of a batch is written still, and so are those after it, for what the
database minds there; not once as many faults are known as are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import BinaryIO

from cms import jsontext
from cms.access.guard import view_of
from cms.database import connections
from cms.database.connections import Transaction
from cms.database.error_mapping import Conflict, Stale
from cms.digits import TooManyDigits
from cms.errors import STATUS, Problem, Refused, invalid_payload
from cms.fragment import Fragment
from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.prefetch import Prefetch
from cms.items.transfer.sources import SOURCES, ParseCell, ParseCells, SourceColumn, SourceRow
from cms.items.write.calls import WriteCall, WriteIntent, new_call
from cms.items.write.changes import ChangeSet, Expects, PayloadParser
from cms.items.write.inquiry import PayloadInquiry
from cms.items.write.nested import write_tree
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
from cms.schema.types import Family
from cms.store.context import RequestContext
from cms.store.counters import current_version
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.refusals import with_inquiry
from cms.store.store import Store, WritePlan

BATCH_ROWS = 5_000
BATCH_BYTES = 1 << 20
"""A batch ends with whichever comes first: what is wrong with one can take hundreds of times its own bytes."""

MAX_IMPORT_PROBLEMS = 100
"""How many problems of a file an answer holds."""

_IMPORT_INTENT = WriteIntent(("create", "update"))
_EMPTY_QUERY = ParsedQuery(Query())
_FINAL_STATUSES = frozenset({STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]})
"""Refusals after which nothing more is told."""


Drafted = tuple[PayloadParser, ChangeSet]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was received: one of `SOURCES`, its bytes, and how many of them a row may have."""

    file_format: str
    file: BinaryIO
    max_bytes: int


@dataclass(slots=True)
class ImportProblems:
    """What is wrong with a file: the first problems, and how many are known; `is_partial` once not all is looked at."""

    found: list[tuple[int, Problem]] = field(default_factory=list)
    total: int = 0
    is_partial: bool = False

    @property
    def is_full(self) -> bool:
        return self.total >= MAX_IMPORT_PROBLEMS

    def add(self, problem: Problem, line: int) -> None:
        self.total += 1
        if len(self.found) < MAX_IMPORT_PROBLEMS:
            self.found.append((line, problem))

    def refuse(self) -> None:
        """Raise `Refused` with what is kept, by its lines, and with the number where that is not all."""
        told = [
            _with_line(problem, line)
            for line, problem in sorted(self.found, key=lambda found: found[0])
        ]
        if self.is_partial or self.total > len(told):
            reason = f"The file has at least {self.total} faults; the first {len(told)} are told"
            told.append(
                Problem(told[0].code, f"{reason}.", {"reason": reason, "total": self.total})
            )
        if told:
            raise Refused(told)


def require_import(store: Store, identity: Identity, name: str) -> None:
    """Refuse, before anything is received, whoever may write nothing there."""
    ask = name, _EMPTY_QUERY
    store.run_primary_read(
        identity, lambda context: new_call(store, context, identity.client, ask, _IMPORT_INTENT)
    )


def import_file(
    store: Store,
    identity: Identity,
    name: str,
    upload: Upload,
    *,
    idempotency: Idempotency | None = None,
) -> bytes | None:
    """Write the rows of a file, and answer how many were created and updated.

    A row whose key is there for the caller changes that item; any other is a new one. Raises `Refused` with the lines
    of what is wrong, after which nothing was written.
    """
    ask = name, _EMPTY_QUERY

    def plan(context: RequestContext) -> WritePlan[bytes | None]:
        def within(transaction: Transaction) -> bytes:
            call = new_call(store, context, identity.client, ask, _IMPORT_INTENT)
            return _Import(call, transaction).run(upload)

        return WritePlan(within)

    return store.run_write(identity, plan, idempotency=idempotency)


class _Import:
    """One import within its transaction."""

    def __init__(self, call: WriteCall, transaction: Transaction) -> None:
        self._call = call
        self._write_context = call.write_context(transaction)
        self._collection = call.collection
        self._problems = ImportProblems()
        self._refused_keys: set[str] = set()
        self._keyed = False
        self._largest = 0
        self._created = self._updated = 0

    def run(self, upload: Upload) -> bytes:
        upload.file.seek(0)
        batches = _batches(
            SOURCES[upload.file_format](upload.file, upload.max_bytes, self._columns)
        )
        ahead = Prefetch(map(self._read, batches))
        self._write_context = replace(self._write_context, while_waiting=ahead.advance)
        try:
            for rows, drafted in ahead:
                self._handle_batch(rows, drafted)
        finally:  # what it holds would hold this
            self._write_context = replace(self._write_context, while_waiting=None)
            note_memory_use(self._largest)
        self._problems.refuse()
        if self._keyed:
            self._pass_keys()
        return jsontext.dumps({"data": {"created": self._created, "updated": self._updated}})

    def _handle_batch(self, rows: Sequence[SourceRow], drafted: Drafted | None) -> None:
        self._largest = max(self._largest, sum(row.size for row in rows))
        for row in rows:
            if row.fault:
                self._problems.add(row.fault, row.line)
        self._write_rows([row for row in rows if row.fault is None], drafted)

    def _read(self, rows: list[SourceRow]) -> tuple[list[SourceRow], Drafted | None]:
        """Draft a batch; what refuses to be drafted is told in its turn."""
        try:
            return rows, self._drafted([row for row in rows if row.fault is None])
        except Refused:
            return rows, None

    def _drafted(self, rows: Sequence[SourceRow]) -> Drafted:
        drafter = self._call.drafter()
        return drafter, drafter.root(self._collection, [row.item for row in rows], Expects.EITHER)

    def _write_rows(self, rows: Sequence[SourceRow], drafted: Drafted | None = None) -> None:
        try:
            with self._write_context.transaction.savepoint():
                self._write(*(drafted or self._drafted(rows)))
        except Refused as refused:
            if refused.status == STATUS["SERVICE_UNAVAILABLE"]:
                raise
            places = [problem.extensions.get("index") for problem in refused.problems]
            if len(rows) > 1 and (None in places or isinstance(refused, Conflict)):
                self._check_structure()
                self._write_rows(rows[: len(rows) // 2])
                self._write_rows(rows[len(rows) // 2 :])
            else:
                self._write_other_rows(
                    rows, self._add_problems(with_inquiry(refused, self._ask), rows)
                )

    def _write_other_rows(self, rows: Sequence[SourceRow], refused: set[int]) -> None:
        """Write the rows of a batch of which nothing is wrong as far as is known."""
        others = [row for number, row in enumerate(rows) if number not in refused]
        if others and len(others) < len(rows) and not self._problems.is_full:
            self._write_rows(others)

    def _ask(self, question: Fragment) -> list[connections.Row]:
        """Ask about rows that were refused; their transaction goes on whatever the answer is."""
        with self._write_context.transaction.savepoint():
            return replace(self._write_context.transaction, prepare=False).run(question)

    def _check_structure(self) -> None:
        """Raise `Stale` when the structure has moved on: every row would be refused then, one by one."""
        before, now = (
            self._write_context.context.snapshot.version,
            current_version(self._write_context.transaction.execute),
        )
        if now.structure != before.structure:
            raise Stale(f"{now} instead of {before}")

    def _add_problems(self, refused: Refused, rows: Sequence[SourceRow]) -> set[int]:
        """Keep what is wrong with rows, and return their places among them."""
        if refused.status in _FINAL_STATUSES:
            raise Refused(
                _with_line(problem, rows[0].line) for problem in refused.problems
            ) from refused
        numbers = set()
        for problem in refused.problems:
            index = problem.extensions.get("index", 0)
            number = index if isinstance(index, int) else 0
            numbers.add(number)
            if not self._is_consequence(problem):
                self._problems.add(problem, rows[number].line)
        self._problems.total += refused.total - len(refused.problems)
        self._refused_keys |= {_key_of(rows[number], self._collection) for number in numbers}
        return numbers

    def _is_consequence(self, problem: Problem) -> bool:
        """Tell whether a row points to one of the file that is not there only because it was refused."""
        if (
            problem.code != "INVALID_FOREIGN_KEY"
            or str(problem.extensions.get("value")) not in self._refused_keys
        ):
            return False
        place = str(problem.extensions.get("collection")), str(problem.extensions.get("field"))
        relation = self._write_context.context.snapshot.catalogue.by_many.get(place)
        return relation is not None and relation.one_collection == self._collection.name

    def _write(self, drafter: PayloadParser, root: ChangeSet) -> None:
        """Write a batch; once enough is wrong with the file, look at it only."""
        self._find(root)
        self._write_context.authorizer.complete(root, drafter.faults)
        context = self._write_context.context
        drafter.faults.refuse(
            PayloadInquiry(
                context.snapshot.catalogue, root, is_permitted=context.actor.policy.is_admin
            )
        )
        if self._problems.is_full:
            self._problems.is_partial = True
            return
        write_tree(self._write_context, drafter, root)
        created = sum(draft.new for draft in root.drafts)
        self._created += created
        self._updated += len(root.drafts) - created

    def _find(self, root: ChangeSet) -> None:
        """Tell new rows from those that are there for this caller."""
        keys = [
            key for draft in root.drafts if (key := draft.values.get(root.key_field)) is not None
        ]
        if not keys:
            return
        self._keyed, there = True, self._present(root.collection, keys)
        for draft in root.drafts:
            if draft.values.get(root.key_field) in there:
                draft.new, draft.key = False, draft.values.pop(root.key_field)

    def _present(self, collection: Collection, keys: list[str]) -> frozenset[str]:
        write_context = self._write_context
        context, policy = write_context.context, write_context.context.actor.policy
        if view_of(collection.name, catalogue=context.snapshot.catalogue, policy=policy) is None:
            return frozenset()
        query = Query(
            picks=(Pick(INTERNAL_KEY, FieldName(str(collection.primary_key))),),
            key_test=OperatorTest("_in", (Slot(0),)),
        )
        found = find(
            write_context.store,
            write_context.transaction,
            context,
            collection.name,
            query,
            literals=(tuple(keys),),
        )
        return frozenset(str(item[INTERNAL_KEY]) for item in found)

    def _pass_keys(self) -> None:
        """Let automatic keys go on behind those that the file brought."""
        if self._collection.key.has_sequence:
            last = self._write_context.transaction.run(locks.last_key(self._collection))[0][0]
            advance_keys(self._write_context, self._collection, [last] if last is not None else [])

    # The header

    def _columns(self, cells: Sequence[str]) -> list[SourceColumn]:
        """Return the columns of a header; raises `Refused` for one that is not there for the caller, or twice."""
        names = [unescape_formula(cell) if cell else "" for cell in cells]
        if not names:
            raise invalid_payload("The file has no header with the names of fields", line=1)
        for name, times in Counter(names).items():
            if times > 1:
                self._problems.add(
                    invalid_item("the header names it twice", self._collection.name, name), 1
                )
        self._check_names(names)
        self._problems.refuse()
        return [self._column(self._collection.fields[name]) for name in names]

    def _check_names(self, names: Sequence[str]) -> None:
        """Draft an item that names everything and says nothing."""
        fields, drafter = self._collection.fields, self._call.drafter()
        lists = {name for name in names if name in fields and fields[name].column is None}
        try:
            drafter.root(
                self._collection,
                [{name: [] if name in lists else None for name in names}],
                Expects.EITHER,
            )
        except Refused as refused:
            raise Refused(_with_line(problem, 1) for problem in refused.problems) from refused
        for _, problem in drafter.faults.found:
            self._problems.add(problem, 1)
        self._problems.total += drafter.faults.total - len(drafter.faults.found)

    def _column(self, found: Field) -> SourceColumn:
        place = self._write_context.context.snapshot.catalogue, self._collection, found.name
        relates = bool(link_of(*place) or target_collections(*place))
        cell = _cell_of(found, relates=relates)
        return SourceColumn(
            found.name, cell, _COLUMN_PARSERS.get(cell), takes_null=found.column is not None
        )


def _batches(rows: Iterable[SourceRow]) -> Iterator[list[SourceRow]]:
    batch: list[SourceRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.size
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _key_of(row: SourceRow, collection: Collection) -> str:
    """Return the key that a row brings, as text."""
    return str(row.item.get(collection.primary_key)) if isinstance(row.item, Mapping) else ""


def _with_line(problem: Problem, line: int) -> Problem:
    extensions = {key: value for key, value in problem.extensions.items() if key != "index"}
    return replace(problem, extensions={**extensions, "line": line})


# Cells, as exports write them


def _cell_of(found: Field, *, relates: bool) -> ParseCell:
    family = found.type.family
    if found.column is None or family in (Family.JSON, Family.GEOMETRY):
        return _json
    if family is Family.NUMBER:
        return _number
    return _json_or_text if relates or family is Family.CSV else unescape_formula


def _json(text: str) -> object:
    try:
        return jsontext.loads(text)
    except TooManyDigits:
        raise
    except ValueError as error:
        raise ValueError(f"the cell is not usable JSON: {error}") from None


def _number(text: str) -> object:
    """Most numbers are short and whole, and read as such in a fraction of the time; others are read by the type."""
    return (
        int(text) if len(text) < 18 and text.isascii() and text.isdecimal() else _json_or_text(text)
    )


def _numbers(texts: Sequence[str]) -> list[int] | None:
    joined = "".join(texts)
    usual = joined.isascii() and joined.isdecimal() and len(max(texts, key=len)) < 18
    return list(map(int, texts)) if usual else None


def _unescaped_texts(texts: Sequence[str]) -> Sequence[str] | None:
    return None if "'" in "".join(texts) else texts


_COLUMN_PARSERS: Mapping[ParseCell, ParseCells] = MappingProxyType(
    {_number: _numbers, unescape_formula: _unescaped_texts}
)


def _json_or_text(text: str) -> object:
    """A list of a csv field, or an object of a related item; text that only looks like one is text."""
    try:
        return jsontext.loads(text) if text[0] in "[{" else unescape_formula(text)
    except TooManyDigits:
        raise
    except ValueError:
        return text
