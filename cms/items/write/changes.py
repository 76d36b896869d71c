"""A payload as a tree of drafts: which rows of which collections it speaks of, before any of them is written.

    Tree ── root: Batch ── drafts: rows of one collection that stand at one place of the payload
                       ├── ones: ToOne    objects at to-one fields, written before the rows that point to them
                       └── manys: ToMany  elements of to-many fields, written after the rows that they belong to

A batch holds what stands at one path for all rows above it, so that a thousand nested objects are one batch. Reading
is pure: whether an object's key is there already is not known yet (`Expects.EITHER`); cms/items/write/resolving.py
finds out. Many-to-many needs nothing of its own: it is a to-many field onto the junction, whose rows hold to-one
objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from cms.errors import MAX_PROBLEMS, Inquiry, Problem, Refused, forbidden, invalid_payload
from cms.query.language.ast import Filter
from cms.query.plan.links import Link, link_of
from cms.schema.auto_fields import PENDING_KEY
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import ItemParser, ParsedItem, Values, invalid_item, value_problem
from cms.schema.types import MASK, Family

Path = tuple[str | int, ...]


class Expects(Enum):
    """What a draft takes for granted about its row."""

    ABSENT = "absent"
    PRESENT = "present"
    EITHER = "either"


class PayloadPosition(NamedTuple):
    """Where something stands in the payload: the item's place in an array of several, and the path inside it."""

    number: int | None = None
    path: Path = ()

    def below(self, *steps: str | int) -> PayloadPosition:
        return PayloadPosition(self.number, (*self.path, *steps))


@dataclass(slots=True, eq=False)
class RowChange:
    """One row to be written. `key`, `new` and `revision` become known on the way.

    `parent_row` is the row in whose payload it stands, `parent_field` its field that points there, `presets` what
    permissions add to what was sent, `invalid_fields` the fields whose values are no good, `rule` what it must fulfil
    once it is written.
    """

    sent: Mapping[str, object]
    values: Values
    position: PayloadPosition
    expects: Expects = Expects.ABSENT
    invalid_fields: frozenset[object] = frozenset()
    parent_row: RowChange | None = None
    parent_field: str | None = None
    presets: Mapping[str, object] | None = None
    rule: Filter | None = None
    key: str | None = None
    new: bool = True
    revision: int | None = None


@dataclass(slots=True, eq=False)
class ChangeSet:
    """Rows of one collection that stand at one path of the payload."""

    collection: Collection
    level: int = 0
    drafts: list[RowChange] = field(default_factory=list)
    by_key: dict[str, RowChange] = field(default_factory=dict)
    to_one_fields: dict[tuple[str, str], ToOne] = field(default_factory=dict)
    to_many_fields: dict[str, ToMany] = field(default_factory=dict)
    unresolved: list[UnresolvedItem] = field(default_factory=list)

    @property
    def key_field(self) -> str:
        return str(self.collection.primary_key)

    @property
    def is_flat(self) -> bool:
        """Whether it speaks of no related item."""
        return not (self.to_one_fields or self.to_many_fields or self.unresolved)


@dataclass(slots=True, eq=False)
class ToOne:
    """Objects at a to-one field, each beside the row that points to it."""

    name: str
    link: Link
    batch: ChangeSet
    pairs: list[tuple[RowChange, RowChange]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ListRemoval:
    """An element of `delete`, as it was sent and as a key: a row that is to leave the list of `owner`."""

    owner: RowChange
    sent: object
    key: str
    position: PayloadPosition


@dataclass(slots=True, eq=False)
class ToMany:
    """Elements of a to-many field, each beside its row; `replaced_lists` are the rows that were sent all of theirs."""

    name: str
    link: Link
    batch: ChangeSet
    pairs: list[tuple[RowChange, RowChange]] = field(default_factory=list)
    replaced_lists: list[RowChange] = field(default_factory=list)
    removals: list[ListRemoval] = field(default_factory=list)
    dropped: dict[str, RowChange] = field(default_factory=dict)
    """The keys of rows that leave, each with whose list they leave."""
    unlinked: ChangeSet | None = None
    """The same rows as changes, where they are not deleted."""

    @property
    def deletes_dropped(self) -> bool:
        """Whether what leaves the list is deleted, and not only unlinked."""
        return self.link.relation.one_deselect_action == "delete"


@dataclass(frozen=True, slots=True)
class UnresolvedItem:
    """An object at a many-to-any field of a row whose stored value says to which collection it belongs."""

    draft: RowChange
    field: str
    collection_field: str
    item: Mapping[str, object]


@dataclass(slots=True)
class Problems:
    """What is wrong with a payload, told at once: the first problems, and how many there are."""

    found: list[tuple[int, Problem]] = field(default_factory=list)
    total: int = 0

    def add(self, problem: Problem, position: PayloadPosition) -> None:
        """Keep a problem with its place, unless there are many; a problem of a field has the path to it."""
        self.total += 1
        if self.total > MAX_PROBLEMS:
            return
        named, own = problem.extensions.get("field"), problem.extensions.get("path")
        below = own if isinstance(own, list) else [named] if isinstance(named, str) else []
        path = (*position.path, *below)
        extensions = dict(problem.extensions)
        if path:
            extensions["path"] = list(path)
        if position.number is not None:
            extensions["index"] = position.number
        self.found.append((position.number or 0, replace(problem, extensions=extensions)))

    def refuse(self, inquiry: Inquiry | None = None) -> None:
        """Raise `Refused` with those that are kept, in the order of the items."""
        if self.found:
            problems = [problem for _, problem in sorted(self.found, key=lambda fault: fault[0])]
            raise Refused(problems, total=self.total, inquiry=inquiry)


def change_sets(batch: ChangeSet) -> Iterator[ChangeSet]:
    """Yield all batches of a tree; what only left a list, too, has changed."""
    yield batch
    for one in batch.to_one_fields.values():
        yield from change_sets(one.batch)
    for many in batch.to_many_fields.values():
        if many.unlinked:
            yield many.unlinked
        yield from change_sets(many.batch)


Readers = Callable[[Collection, Expects], ItemParser]
"""What reads items of a collection for this caller."""


class PayloadParser:
    """Reads one payload; raises `Refused` at once only for what is hidden, or goes too deep."""

    def __init__(self, catalogue: Catalogue, *, depth: int, readers: Readers) -> None:
        self._catalogue = catalogue
        self._depth = depth
        self._reader = readers
        self.faults = Problems()

    def root(self, collection: Collection, items: Sequence[object], expects: Expects) -> ChangeSet:
        """Return the tree of the items of one call."""
        batch, many = ChangeSet(collection), len(items) > 1
        alike = self._reader(collection, expects).read_columns(items) if many else None
        if alike is not None:
            new = expects is not Expects.PRESENT
            batch.drafts = [
                RowChange(item, values, position, expects, new=new)  # type: ignore[arg-type]
                for item, values, position in zip(
                    items, alike, map(PayloadPosition, range(len(items))), strict=True
                )
            ]
            return batch
        for index, item in enumerate(items):
            self._draft(batch, item, PayloadPosition(index if many else None), expects)
        return batch

    def attach_resolved(self, batch: ChangeSet, told: UnresolvedItem, target: str | None) -> None:
        """Attach an object at a many-to-any field, now that its collection is known."""
        link = (
            link_of(self._catalogue, batch.collection, f"{told.field}:{target}") if target else None
        )
        if link:
            self._attach_one(batch, told.draft, told.field, told.item, link)
        elif target and not self._reader(batch.collection, Expects.EITHER).told:
            raise forbidden()  # as for a collection that is hidden
        else:
            reason = f'"{told.collection_field}" must say to which collection it belongs'
            self.faults.add(
                invalid_item(reason, batch.collection.name, told.field), told.draft.position
            )

    def _draft(
        self, batch: ChangeSet, item: object, position: PayloadPosition, expects: Expects
    ) -> RowChange:
        entry = self._reader(batch.collection, expects).read(item)
        for problem in entry.problems:
            self.faults.add(problem, position)
        if not isinstance(item, Mapping):
            return RowChange({}, {}, position)
        draft = RowChange(item, entry.values, position, expects, _fields(entry.problems))
        draft.new = expects is not Expects.PRESENT
        if batch.level:
            draft = self._merge_same_key(batch, draft, entry)
        else:
            batch.drafts.append(draft)
        if entry.nested:
            self._attach(batch, draft, entry)
        return draft

    def _merge_same_key(self, batch: ChangeSet, draft: RowChange, entry: ParsedItem) -> RowChange:
        """Let objects with the same key be one row, for which the later ones have the last word."""
        key = draft.values.get(batch.key_field)
        first = batch.by_key.setdefault(key, draft) if key else draft
        if first is draft:
            batch.drafts.append(draft)
            return draft
        first.values.update(draft.values)
        masked = {
            name for name, value in draft.sent.items() if value == MASK and name not in draft.values
        }
        first.sent = {
            **first.sent,
            **{name: draft.sent[name] for name in draft.sent if name not in masked},
        }
        first.invalid_fields |= draft.invalid_fields
        for one in batch.to_one_fields.values():
            if one.name in draft.values:
                one.pairs = [pair for pair in one.pairs if pair[0] is not first]
        if any(
            not isinstance(value, Mapping) or value.keys() <= _CHANGES.keys()
            for value in entry.nested.values()
        ):
            self.faults.add(
                invalid_item("it is there twice", batch.collection.name), draft.position
            )
        return first

    def _attach(self, batch: ChangeSet, draft: RowChange, entry: ParsedItem) -> None:
        for name, value in entry.nested.items():
            link = link_of(self._catalogue, batch.collection, name)
            if link is None:
                self._attach_any(batch, draft, name, value)
            elif link.to_many:
                self._attach_many(batch, draft, name, value, link)
            else:
                self._attach_one(batch, draft, name, value, link)

    def _target_set(self, batch: ChangeSet, link: Link, position: PayloadPosition) -> ChangeSet:
        """Return a batch for the collection beyond a link."""
        target = self._catalogue.collections[link.target]
        if batch.level == self._depth:
            raise invalid_payload(
                f"It goes deeper than {self._depth} relations", path=list(position.path)
            )
        if link.to_many and not target.writable:
            self._forbid(target, position)
        return ChangeSet(target, batch.level + 1)

    def _forbid(self, target: Collection, position: PayloadPosition) -> None:
        self.faults.add(
            Problem("FORBIDDEN", f'The items of "{target.name}" can only be read here.'), position
        )

    # To-one

    def _attach_any(self, batch: ChangeSet, draft: RowChange, name: str, value: object) -> None:
        relation = self._catalogue.by_many[batch.collection.name, name]
        assert isinstance(value, Mapping)
        if relation.one_collection_field in draft.invalid_fields:
            if not self._reader(batch.collection, draft.expects).told:
                raise forbidden()  # as for a collection that is hidden
            return
        told = UnresolvedItem(draft, name, str(relation.one_collection_field), value)
        draft.values[name] = PENDING_KEY
        if draft.expects is Expects.ABSENT or told.collection_field in draft.values:
            self.attach_resolved(batch, told, draft.values.get(told.collection_field))
        else:
            batch.unresolved.append(told)

    def _attach_one(
        self, batch: ChangeSet, draft: RowChange, name: str, value: object, link: Link
    ) -> None:
        position = draft.position.below(name)
        one = batch.to_one_fields.get((name, link.target))
        if one is None:
            one = batch.to_one_fields[name, link.target] = ToOne(
                name, link, self._target_set(batch, link, position)
            )
        draft.values[name] = PENDING_KEY
        written_here = one.batch.collection.writable
        found = self._draft(
            one.batch, value, position, Expects.EITHER if written_here else Expects.PRESENT
        )
        if not written_here and found.sent.keys() != {one.batch.key_field}:
            self._forbid(one.batch.collection, position)
        found.parent_row = found.parent_row or draft
        one.pairs.append((draft, found))

    # To-many

    def _attach_many(
        self, batch: ChangeSet, draft: RowChange, name: str, value: object, link: Link
    ) -> None:
        many = batch.to_many_fields.get(name)
        if many is None:
            many = batch.to_many_fields[name] = ToMany(
                name, link, self._target_set(batch, link, draft.position.below(name))
            )
        if isinstance(value, list):
            many.replaced_lists.append(draft)
            self._elements(many, draft, value, (), Expects.EITHER)
        elif isinstance(value, Mapping) and value.keys() <= _CHANGES.keys():
            self._changes(many, draft, value)
        else:
            reason = "it must be an array, or an object that holds create, update or delete"
            self.faults.add(invalid_item(reason, batch.collection.name, name), draft.position)

    def _changes(self, many: ToMany, owner: RowChange, value: Mapping[str, object]) -> None:
        for word, elements in value.items():
            if not isinstance(elements, list):
                self._wrong(many, owner.position.below(many.name, word), "it must be an array")
            elif word == "delete":
                self._removals(many, owner, elements)
            else:
                self._elements(many, owner, elements, (word,), _CHANGES[word])

    def _elements(
        self,
        many: ToMany,
        owner: RowChange,
        elements: list[object],
        steps: tuple[str, ...],
        expects: Expects,
    ) -> None:
        for number, element in enumerate(elements):
            position = owner.position.below(many.name, *steps, number)
            draft = self._element(many, element, position, expects)
            if draft is None:
                continue
            if draft.parent_row:
                self._wrong(many, position, "it is there twice")
                continue
            draft.parent_row = owner
            self._set_parent(many, draft, None if steps else number + 1)
            many.pairs.append((owner, draft))

    def _element(
        self, many: ToMany, element: object, position: PayloadPosition, expects: Expects
    ) -> RowChange | None:
        """Read an object, or the key of a row that is there."""
        if isinstance(element, Mapping):
            if isinstance(element.get(many.link.far), Mapping):
                self._wrong(many, position, f'"{many.link.far}" is what this list sets')
            return self._draft(many.batch, element, position, expects)
        if expects is Expects.ABSENT or element is None or isinstance(element, list):
            self._wrong(
                many,
                position,
                f"it must be an object{'' if expects is Expects.ABSENT else ' or a key'}",
            )
            return None
        return self._draft(many.batch, {many.batch.key_field: element}, position, Expects.PRESENT)

    def _set_parent(self, many: ToMany, draft: RowChange, number: int | None) -> None:
        """Let a row belong to its owner, at its place in the array where a field keeps the order."""
        draft.values[many.link.far], draft.parent_field = PENDING_KEY, many.link.far
        order = _order_of(many)
        if order and number and draft.values.get(order) is None:
            draft.values[order] = str(number)

    def _removals(self, many: ToMany, owner: RowChange, keys: list[object]) -> None:
        collection = many.batch.collection
        for number, sent in enumerate(keys):
            position = owner.position.below(many.name, "delete", number)
            try:
                many.removals.append(
                    ListRemoval(owner, sent, collection.key.type.parse(sent), position)
                )
            except ValueError as error:
                problem = value_problem(collection, collection.key.name, sent, error)
                self.faults.add(
                    replace(problem, extensions={**problem.extensions, "path": []}), position
                )

    def _wrong(self, many: ToMany, position: PayloadPosition, reason: str) -> None:
        self.faults.add(invalid_item(reason, many.batch.collection.name), position)


def _order_of(many: ToMany) -> str | None:
    """Return the field that keeps the order of a list, where it is one that places can be written in."""
    collection = many.batch.collection
    field = collection.fields.get(many.link.relation.order or "")
    if field is None or field.column is None or field.type.family is not Family.NUMBER:
        return None
    filled = (
        field.column.is_generated
        or field.column.auto_increment
        or field.name == collection.primary_key
    )
    return None if filled else field.name


def _fields(problems: list[Problem]) -> frozenset[object]:
    return (
        frozenset(problem.extensions.get("field") for problem in problems)
        if problems
        else frozenset()
    )


_CHANGES = {"create": Expects.ABSENT, "update": Expects.PRESENT, "delete": Expects.PRESENT}
