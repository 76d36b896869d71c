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
from cms.digits import TooManyDigits
from cms.errors import STATUS, Problem, Refused, invalid_payload
from cms.fragment import Fragment
from cms.memory import note_use
from cms.query import locks
from cms.query.ast import KEY, Name, Pick, Query, Said, Slot, Test
from cms.query.drafts import Batch, Drafter, Expects
from cms.query.walk import arms_of, link_of
from cms.schema.model import Collection, Field
from cms.schema.payload import invalid
from cms.schema.types import Family
from cms.store import database
from cms.store.ahead import Ahead
from cms.store.border import Clash, Stale
from cms.store.calls import Aim, Call, call_on
from cms.store.counters import version_of
from cms.store.database import Transaction
from cms.store.formats import plain
from cms.store.inquiry import PayloadInquiry, completed
from cms.store.nested import write_tree
from cms.store.once import Once
from cms.store.rows import pass_keys
from cms.store.sources import SOURCES, Cell, Cells, Column, Row
from cms.store.store import Identity, Job, Scene, Store
from cms.store.within import find

BATCH_ROWS = 5_000
BATCH_BYTES = 1 << 20
"""A batch ends with whichever comes first: what is wrong with one can take hundreds of times its own bytes."""

MOST_TOLD = 100
"""How many problems of a file an answer holds."""

_IMPORT = Aim(("create", "update"))
_NOTHING = Said(Query())
_ENDING = frozenset({STATUS["FORBIDDEN"], STATUS["NOT_FOUND"]})
"""Refusals after which nothing more is told."""


Drafted = tuple[Drafter, Batch]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was received: one of `SOURCES`, its bytes, and how many of them a row may have."""

    form: str
    file: BinaryIO
    most: int


@dataclass(slots=True)
class Findings:
    """What is wrong with a file: the first problems, and how many are known; `partial` once not all is looked at."""

    found: list[tuple[int, Problem]] = field(default_factory=list)
    total: int = 0
    partial: bool = False

    @property
    def full(self) -> bool:
        return self.total >= MOST_TOLD

    def add(self, problem: Problem, line: int) -> None:
        self.total += 1
        if len(self.found) < MOST_TOLD:
            self.found.append((line, problem))

    def refuse(self) -> None:
        """Raise `Refused` with what is kept, by its lines, and with the number where that is not all."""
        told = [_placed(problem, line) for line, problem in sorted(self.found, key=lambda found: found[0])]
        if self.partial or self.total > len(told):
            reason = f"The file has at least {self.total} faults; the first {len(told)} are told"
            told.append(Problem(told[0].code, f"{reason}.", {"reason": reason, "total": self.total}))
        if told:
            raise Refused(told)


def require_import(store: Store, identity: Identity, name: str) -> None:
    """Refuse, before anything is received, whoever may write nothing there."""
    ask = name, _NOTHING
    store.checking(identity, lambda scene: call_on(store, scene, identity.caller, ask, _IMPORT))


def import_file(
    store: Store, identity: Identity, name: str, upload: Upload, *, once: Once | None = None
) -> bytes | None:
    """Write the rows of a file, and answer how many were created and updated.

    A row whose key is there for the caller changes that item; any other is a new one. Raises `Refused` with the lines
    of what is wrong, after which nothing was written.
    """
    ask = name, _NOTHING

    def plan(scene: Scene) -> Job[bytes | None]:
        def within(transaction: Transaction) -> bytes:
            call = call_on(store, scene, identity.caller, ask, _IMPORT)
            return _Import(call, transaction).run(upload)

        return Job(within)

    return store.writing(identity, plan, once=once)


class _Import:
    """One import within its transaction."""

    def __init__(self, call: Call, transaction: Transaction) -> None:
        self._call = call
        self._session = call.session(transaction)
        self._collection = call.collection
        self._findings = Findings()
        self._refused_keys: set[str] = set()
        self._keyed = False
        self._largest = 0
        self._created = self._updated = 0

    def run(self, upload: Upload) -> bytes:
        upload.file.seek(0)
        batches = _batches(SOURCES[upload.form](upload.file, upload.most, self._columns))
        ahead = Ahead(map(self._read, batches))
        self._session = replace(self._session, meanwhile=ahead.advance)
        try:
            for rows, drafted in ahead:
                self._take(rows, drafted)
        finally:  # what it holds would hold this
            self._session = replace(self._session, meanwhile=None)
            note_use(self._largest)
        self._findings.refuse()
        if self._keyed:
            self._pass_keys()
        return jsontext.dumps({"data": {"created": self._created, "updated": self._updated}})

    def _take(self, rows: Sequence[Row], drafted: Drafted | None) -> None:
        self._largest = max(self._largest, sum(row.size for row in rows))
        for row in rows:
            if row.fault:
                self._findings.add(row.fault, row.line)
        self._put([row for row in rows if row.fault is None], drafted)

    def _read(self, rows: list[Row]) -> tuple[list[Row], Drafted | None]:
        """Draft a batch; what refuses to be drafted is told in its turn."""
        try:
            return rows, self._drafted([row for row in rows if row.fault is None])
        except Refused:
            return rows, None

    def _drafted(self, rows: Sequence[Row]) -> Drafted:
        drafter = self._call.drafter()
        return drafter, drafter.root(self._collection, [row.item for row in rows], Expects.EITHER)

    def _put(self, rows: Sequence[Row], drafted: Drafted | None = None) -> None:
        try:
            with self._session.transaction.savepoint():
                self._write(*(drafted or self._drafted(rows)))
        except Refused as refused:
            if refused.status == STATUS["SERVICE_UNAVAILABLE"]:
                raise
            places = [problem.extensions.get("index") for problem in refused.problems]
            if len(rows) > 1 and (None in places or isinstance(refused, Clash)):
                self._check_structure()
                self._put(rows[: len(rows) // 2])
                self._put(rows[len(rows) // 2 :])
            else:
                self._put_others(rows, self._tell(completed(refused, self._ask), rows))

    def _put_others(self, rows: Sequence[Row], refused: set[int]) -> None:
        """Write the rows of a batch of which nothing is wrong as far as is known."""
        others = [row for number, row in enumerate(rows) if number not in refused]
        if others and len(others) < len(rows) and not self._findings.full:
            self._put(others)

    def _ask(self, question: Fragment) -> list[database.Row]:
        """Ask about rows that were refused; their transaction goes on whatever the answer is."""
        with self._session.transaction.savepoint():
            return replace(self._session.transaction, prepare=False).run(question)

    def _check_structure(self) -> None:
        """Raise `Stale` when the structure has moved on: every row would be refused then, one by one."""
        before, now = self._session.scene.snapshot.version, version_of(self._session.transaction.execute)
        if now.structure != before.structure:
            raise Stale(f"{now} instead of {before}")

    def _tell(self, refused: Refused, rows: Sequence[Row]) -> set[int]:
        """Keep what is wrong with rows, and return their places among them."""
        if refused.status in _ENDING:
            raise Refused(_placed(problem, rows[0].line) for problem in refused.problems) from refused
        numbers = set()
        for problem in refused.problems:
            index = problem.extensions.get("index", 0)
            number = index if isinstance(index, int) else 0
            numbers.add(number)
            if not self._follows(problem):
                self._findings.add(problem, rows[number].line)
        self._findings.total += refused.total - len(refused.problems)
        self._refused_keys |= {_key_of(rows[number], self._collection) for number in numbers}
        return numbers

    def _follows(self, problem: Problem) -> bool:
        """Tell whether a row points to one of the file that is not there only because it was refused."""
        if problem.code != "INVALID_FOREIGN_KEY" or str(problem.extensions.get("value")) not in self._refused_keys:
            return False
        place = str(problem.extensions.get("collection")), str(problem.extensions.get("field"))
        relation = self._session.scene.snapshot.catalogue.by_many.get(place)
        return relation is not None and relation.one_collection == self._collection.name

    def _write(self, drafter: Drafter, root: Batch) -> None:
        """Write a batch; once enough is wrong with the file, look at it only."""
        self._find(root)
        self._session.judge.complete(root, drafter.faults)
        scene = self._session.scene
        drafter.faults.refuse(PayloadInquiry(scene.snapshot.catalogue, root, permitted=scene.actor.policy.admin))
        if self._findings.full:
            self._findings.partial = True
            return
        write_tree(self._session, drafter, root)
        created = sum(draft.new for draft in root.drafts)
        self._created += created
        self._updated += len(root.drafts) - created

    def _find(self, root: Batch) -> None:
        """Tell new rows from those that are there for this caller."""
        keys = [key for draft in root.drafts if (key := draft.values.get(root.key_field)) is not None]
        if not keys:
            return
        self._keyed, there = True, self._present(root.collection, keys)
        for draft in root.drafts:
            if draft.values.get(root.key_field) in there:
                draft.new, draft.key = False, draft.values.pop(root.key_field)

    def _present(self, collection: Collection, keys: list[str]) -> frozenset[str]:
        session = self._session
        scene, policy = session.scene, session.scene.actor.policy
        if view_of(collection.name, catalogue=scene.snapshot.catalogue, policy=policy) is None:
            return frozenset()
        query = Query(picks=(Pick(KEY, Name(str(collection.primary_key))),), only=Test("_in", (Slot(0),)))
        found = find(session.store, session.transaction, scene, collection.name, query, literals=(tuple(keys),))
        return frozenset(str(item[KEY]) for item in found)

    def _pass_keys(self) -> None:
        """Let automatic keys go on behind those that the file brought."""
        if self._collection.key.counts_up:
            last = self._session.transaction.run(locks.last_key(self._collection))[0][0]
            pass_keys(self._session, self._collection, [last] if last is not None else [])

    # The header

    def _columns(self, cells: Sequence[str]) -> list[Column]:
        """Return the columns of a header; raises `Refused` for one that is not there for the caller, or twice."""
        names = [plain(cell) if cell else "" for cell in cells]
        if not names:
            raise invalid_payload("The file has no header with the names of fields", line=1)
        for name, times in Counter(names).items():
            if times > 1:
                self._findings.add(invalid("the header names it twice", self._collection.name, name), 1)
        self._check_names(names)
        self._findings.refuse()
        return [self._column(self._collection.fields[name]) for name in names]

    def _check_names(self, names: Sequence[str]) -> None:
        """Draft an item that names everything and says nothing."""
        fields, drafter = self._collection.fields, self._call.drafter()
        lists = {name for name in names if name in fields and fields[name].column is None}
        try:
            drafter.root(self._collection, [{name: [] if name in lists else None for name in names}], Expects.EITHER)
        except Refused as refused:
            raise Refused(_placed(problem, 1) for problem in refused.problems) from refused
        for _, problem in drafter.faults.found:
            self._findings.add(problem, 1)
        self._findings.total += drafter.faults.total - len(drafter.faults.found)

    def _column(self, found: Field) -> Column:
        place = self._session.scene.snapshot.catalogue, self._collection, found.name
        relates = bool(link_of(*place) or arms_of(*place))
        cell = _cell_of(found, relates=relates)
        return Column(found.name, cell, _CELLS.get(cell), null=found.column is not None)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.size
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _key_of(row: Row, collection: Collection) -> str:
    """Return the key that a row brings, as text."""
    return str(row.item.get(collection.primary_key)) if isinstance(row.item, Mapping) else ""


def _placed(problem: Problem, line: int) -> Problem:
    extensions = {key: value for key, value in problem.extensions.items() if key != "index"}
    return replace(problem, extensions={**extensions, "line": line})


# Cells, as exports write them


def _cell_of(found: Field, *, relates: bool) -> Cell:
    family = found.type.family
    if found.column is None or family in (Family.JSON, Family.GEOMETRY):
        return _json
    if family is Family.NUMBER:
        return _number
    return _json_or_text if relates or family is Family.CSV else plain


def _json(text: str) -> object:
    try:
        return jsontext.loads(text)
    except TooManyDigits:
        raise
    except ValueError as error:
        raise ValueError(f"the cell is not usable JSON: {error}") from None


def _number(text: str) -> object:
    """Most numbers are short and whole, and read as such in a fraction of the time; others are read by the type."""
    return int(text) if len(text) < 18 and text.isascii() and text.isdecimal() else _json_or_text(text)


def _numbers(texts: Sequence[str]) -> list[int] | None:
    joined = "".join(texts)
    usual = joined.isascii() and joined.isdecimal() and len(max(texts, key=len)) < 18
    return list(map(int, texts)) if usual else None


def _plains(texts: Sequence[str]) -> Sequence[str] | None:
    return None if "'" in "".join(texts) else texts


_CELLS: Mapping[Cell, Cells] = MappingProxyType({_number: _numbers, plain: _plains})


def _json_or_text(text: str) -> object:
    """A list of a csv field, or an object of a related item; text that only looks like one is text."""
    try:
        return jsontext.loads(text) if text[0] in "[{" else plain(text)
    except TooManyDigits:
        raise
    except ValueError:
        return text
