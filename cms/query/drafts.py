"""A payload as a tree of drafts: which rows of which collections it speaks of, before any of them is written.

    Tree ── root: Batch ── drafts: rows of one collection that stand at one place of the payload
                       ├── ones: ToOne    objects at to-one fields, written before the rows that point to them
                       └── manys: ToMany  elements of to-many fields, written after the rows that they belong to

A batch holds what stands at one path for all rows above it, so that a thousand nested objects are one batch. Reading
is pure: whether an object's key is there already is not known yet (`Expects.EITHER`); cms/store/settling.py finds out.
Many-to-many needs nothing of its own: it is a to-many field onto the junction, whose rows hold to-one objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from cms.errors import MAX_TOLD, Inquiry, Problem, Refused, forbidden, invalid_payload
from cms.query.ast import Filter
from cms.query.walk import Link, link_of
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import Entry, Reader, Values, fault_of_value, invalid
from cms.schema.specials import AWAITED
from cms.schema.types import MASK, Family

Path = tuple[str | int, ...]


class Expects(Enum):
    """What a draft takes for granted about its row."""

    ABSENT = "absent"
    PRESENT = "present"
    EITHER = "either"


class Place(NamedTuple):
    """Where something stands in the payload: the item's place in an array of several, and the path inside it."""

    number: int | None = None
    path: Path = ()

    def below(self, *steps: str | int) -> Place:
        return Place(self.number, (*self.path, *steps))


@dataclass(slots=True, eq=False)
class Draft:
    """One row to be written. `key`, `new` and `revision` become known on the way.

    `above` is the row in whose payload it stands, `tied` its field that points there, `presets` what permissions add
    to what was sent, `refused` the fields whose values are no good, `rule` what it must fulfil once it is written.
    """

    sent: Mapping[str, object]
    values: Values
    place: Place
    expects: Expects = Expects.ABSENT
    refused: frozenset[object] = frozenset()
    above: Draft | None = None
    tied: str | None = None
    presets: Mapping[str, object] | None = None
    rule: Filter | None = None
    key: str | None = None
    new: bool = True
    revision: int | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Rows of one collection that stand at one path of the payload."""

    collection: Collection
    level: int = 0
    drafts: list[Draft] = field(default_factory=list)
    keyed: dict[str, Draft] = field(default_factory=dict)
    ones: dict[tuple[str, str], ToOne] = field(default_factory=dict)
    manys: dict[str, ToMany] = field(default_factory=dict)
    untold: list[Untold] = field(default_factory=list)

    @property
    def key_field(self) -> str:
        return str(self.collection.primary_key)

    @property
    def flat(self) -> bool:
        """Whether it speaks of no related item."""
        return not (self.ones or self.manys or self.untold)


@dataclass(slots=True, eq=False)
class ToOne:
    """Objects at a to-one field, each beside the row that points to it."""

    name: str
    link: Link
    batch: Batch
    pairs: list[tuple[Draft, Draft]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Removal:
    """An element of `delete`, as it was sent and as a key: a row that is to leave the list of `owner`."""

    owner: Draft
    sent: object
    key: str
    place: Place


@dataclass(slots=True, eq=False)
class ToMany:
    """Elements of a to-many field, each beside the row that it belongs to; `wholes` got an array of all of them."""

    name: str
    link: Link
    batch: Batch
    pairs: list[tuple[Draft, Draft]] = field(default_factory=list)
    wholes: list[Draft] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    dropped: dict[str, Draft] = field(default_factory=dict)
    """The keys of rows that leave, each with whose list they leave."""
    unlinked: Batch | None = None
    """The same rows as changes, where they are not deleted."""

    @property
    def deletes(self) -> bool:
        """Whether what leaves the list is deleted, and not only unlinked."""
        return self.link.relation.one_deselect_action == "delete"


@dataclass(frozen=True, slots=True)
class Untold:
    """An object at a many-to-any field of a row whose stored value says to which collection it belongs."""

    draft: Draft
    field: str
    told_by: str
    item: Mapping[str, object]


@dataclass(slots=True)
class Faults:
    """What is wrong with a payload, told at once: the first problems, and how many there are."""

    found: list[tuple[int, Problem]] = field(default_factory=list)
    total: int = 0

    def add(self, problem: Problem, place: Place) -> None:
        """Keep a problem with its place, unless there are many; a problem of a field has the path to it."""
        self.total += 1
        if self.total > MAX_TOLD:
            return
        named, own = problem.extensions.get("field"), problem.extensions.get("path")
        below = own if isinstance(own, list) else [named] if isinstance(named, str) else []
        path = (*place.path, *below)
        extensions = dict(problem.extensions)
        if path:
            extensions["path"] = list(path)
        if place.number is not None:
            extensions["index"] = place.number
        self.found.append((place.number or 0, replace(problem, extensions=extensions)))

    def refuse(self, inquiry: Inquiry | None = None) -> None:
        """Raise `Refused` with those that are kept, in the order of the items."""
        if self.found:
            problems = [problem for _, problem in sorted(self.found, key=lambda fault: fault[0])]
            raise Refused(problems, total=self.total, inquiry=inquiry)


def batches_of(batch: Batch) -> Iterator[Batch]:
    """Yield all batches of a tree; what only left a list, too, has changed."""
    yield batch
    for one in batch.ones.values():
        yield from batches_of(one.batch)
    for many in batch.manys.values():
        if many.unlinked:
            yield many.unlinked
        yield from batches_of(many.batch)


Readers = Callable[[Collection, Expects], Reader]
"""What reads items of a collection for this caller."""


class Drafter:
    """Reads one payload; raises `Refused` at once only for what is hidden, or goes too deep."""

    def __init__(self, catalogue: Catalogue, *, depth: int, readers: Readers) -> None:
        self._catalogue = catalogue
        self._depth = depth
        self._reader = readers
        self.faults = Faults()

    def root(self, collection: Collection, items: Sequence[object], expects: Expects) -> Batch:
        """Return the tree of the items of one call."""
        batch, many = Batch(collection), len(items) > 1
        alike = self._reader(collection, expects).read_alike(items) if many else None
        if alike is not None:
            new = expects is not Expects.PRESENT
            batch.drafts = [
                Draft(item, values, place, expects, new=new)  # type: ignore[arg-type]
                for item, values, place in zip(items, alike, map(Place, range(len(items))), strict=True)
            ]
            return batch
        for index, item in enumerate(items):
            self._draft(batch, item, Place(index if many else None), expects)
        return batch

    def attach_told(self, batch: Batch, told: Untold, target: str | None) -> None:
        """Attach an object at a many-to-any field, now that its collection is known."""
        link = link_of(self._catalogue, batch.collection, f"{told.field}:{target}") if target else None
        if link:
            self._attach_one(batch, told.draft, told.field, told.item, link)
        elif target and not self._reader(batch.collection, Expects.EITHER).told:
            raise forbidden()  # as for a collection that is hidden
        else:
            reason = f'"{told.told_by}" must say to which collection it belongs'
            self.faults.add(invalid(reason, batch.collection.name, told.field), told.draft.place)

    def _draft(self, batch: Batch, item: object, place: Place, expects: Expects) -> Draft:
        entry = self._reader(batch.collection, expects).read(item)
        for problem in entry.problems:
            self.faults.add(problem, place)
        if not isinstance(item, Mapping):
            return Draft({}, {}, place)
        draft = Draft(item, entry.values, place, expects, _fields(entry.problems))
        draft.new = expects is not Expects.PRESENT
        if batch.level:
            draft = self._told_apart(batch, draft, entry)
        else:
            batch.drafts.append(draft)
        if entry.nested:
            self._attach(batch, draft, entry)
        return draft

    def _told_apart(self, batch: Batch, draft: Draft, entry: Entry) -> Draft:
        """Let objects with the same key be one row, for which the later ones have the last word."""
        key = draft.values.get(batch.key_field)
        first = batch.keyed.setdefault(key, draft) if key else draft
        if first is draft:
            batch.drafts.append(draft)
            return draft
        first.values.update(draft.values)
        masked = {name for name, value in draft.sent.items() if value == MASK and name not in draft.values}
        first.sent = {**first.sent, **{name: draft.sent[name] for name in draft.sent if name not in masked}}
        first.refused |= draft.refused
        for one in batch.ones.values():
            if one.name in draft.values:
                one.pairs = [pair for pair in one.pairs if pair[0] is not first]
        if any(not isinstance(value, Mapping) or value.keys() <= _CHANGES.keys() for value in entry.nested.values()):
            self.faults.add(invalid("it is there twice", batch.collection.name), draft.place)
        return first

    def _attach(self, batch: Batch, draft: Draft, entry: Entry) -> None:
        for name, value in entry.nested.items():
            link = link_of(self._catalogue, batch.collection, name)
            if link is None:
                self._attach_any(batch, draft, name, value)
            elif link.to_many:
                self._attach_many(batch, draft, name, value, link)
            else:
                self._attach_one(batch, draft, name, value, link)

    def _beyond(self, batch: Batch, link: Link, place: Place) -> Batch:
        """Return a batch for the collection beyond a link."""
        target = self._catalogue.collections[link.target]
        if batch.level == self._depth:
            raise invalid_payload(f"It goes deeper than {self._depth} relations", path=list(place.path))
        if link.to_many and not target.writable:
            self._forbid(target, place)
        return Batch(target, batch.level + 1)

    def _forbid(self, target: Collection, place: Place) -> None:
        self.faults.add(Problem("FORBIDDEN", f'The items of "{target.name}" can only be read here.'), place)

    # To-one

    def _attach_any(self, batch: Batch, draft: Draft, name: str, value: object) -> None:
        relation = self._catalogue.by_many[batch.collection.name, name]
        assert isinstance(value, Mapping)
        if relation.one_collection_field in draft.refused:
            if not self._reader(batch.collection, draft.expects).told:
                raise forbidden()  # as for a collection that is hidden
            return
        told = Untold(draft, name, str(relation.one_collection_field), value)
        draft.values[name] = AWAITED
        if draft.expects is Expects.ABSENT or told.told_by in draft.values:
            self.attach_told(batch, told, draft.values.get(told.told_by))
        else:
            batch.untold.append(told)

    def _attach_one(self, batch: Batch, draft: Draft, name: str, value: object, link: Link) -> None:
        place = draft.place.below(name)
        one = batch.ones.get((name, link.target))
        if one is None:
            one = batch.ones[name, link.target] = ToOne(name, link, self._beyond(batch, link, place))
        draft.values[name] = AWAITED
        written_here = one.batch.collection.writable
        found = self._draft(one.batch, value, place, Expects.EITHER if written_here else Expects.PRESENT)
        if not written_here and found.sent.keys() != {one.batch.key_field}:
            self._forbid(one.batch.collection, place)
        found.above = found.above or draft
        one.pairs.append((draft, found))

    # To-many

    def _attach_many(self, batch: Batch, draft: Draft, name: str, value: object, link: Link) -> None:
        many = batch.manys.get(name)
        if many is None:
            many = batch.manys[name] = ToMany(name, link, self._beyond(batch, link, draft.place.below(name)))
        if isinstance(value, list):
            many.wholes.append(draft)
            self._elements(many, draft, value, (), Expects.EITHER)
        elif isinstance(value, Mapping) and value.keys() <= _CHANGES.keys():
            self._changes(many, draft, value)
        else:
            reason = "it must be an array, or an object that holds create, update or delete"
            self.faults.add(invalid(reason, batch.collection.name, name), draft.place)

    def _changes(self, many: ToMany, owner: Draft, value: Mapping[str, object]) -> None:
        for word, elements in value.items():
            if not isinstance(elements, list):
                self._wrong(many, owner.place.below(many.name, word), "it must be an array")
            elif word == "delete":
                self._removals(many, owner, elements)
            else:
                self._elements(many, owner, elements, (word,), _CHANGES[word])

    def _elements(
        self, many: ToMany, owner: Draft, elements: list[object], steps: tuple[str, ...], expects: Expects
    ) -> None:
        for number, element in enumerate(elements):
            place = owner.place.below(many.name, *steps, number)
            draft = self._element(many, element, place, expects)
            if draft is None:
                continue
            if draft.above:
                self._wrong(many, place, "it is there twice")
                continue
            draft.above = owner
            self._tie(many, draft, None if steps else number + 1)
            many.pairs.append((owner, draft))

    def _element(self, many: ToMany, element: object, place: Place, expects: Expects) -> Draft | None:
        """Read an object, or the key of a row that is there."""
        if isinstance(element, Mapping):
            if isinstance(element.get(many.link.far), Mapping):
                self._wrong(many, place, f'"{many.link.far}" is what this list sets')
            return self._draft(many.batch, element, place, expects)
        if expects is Expects.ABSENT or element is None or isinstance(element, list):
            self._wrong(many, place, f"it must be an object{'' if expects is Expects.ABSENT else ' or a key'}")
            return None
        return self._draft(many.batch, {many.batch.key_field: element}, place, Expects.PRESENT)

    def _tie(self, many: ToMany, draft: Draft, number: int | None) -> None:
        """Let a row belong to its owner, at its place in the array where a field keeps the order."""
        draft.values[many.link.far], draft.tied = AWAITED, many.link.far
        order = _order_of(many)
        if order and number and draft.values.get(order) is None:
            draft.values[order] = str(number)

    def _removals(self, many: ToMany, owner: Draft, keys: list[object]) -> None:
        collection = many.batch.collection
        for number, sent in enumerate(keys):
            place = owner.place.below(many.name, "delete", number)
            try:
                many.removals.append(Removal(owner, sent, collection.key.type.parse(sent), place))
            except ValueError as error:
                problem = fault_of_value(collection, collection.key.name, sent, error)
                self.faults.add(replace(problem, extensions={**problem.extensions, "path": []}), place)

    def _wrong(self, many: ToMany, place: Place, reason: str) -> None:
        self.faults.add(invalid(reason, many.batch.collection.name), place)


def _order_of(many: ToMany) -> str | None:
    """Return the field that keeps the order of a list, where it is one that places can be written in."""
    collection = many.batch.collection
    field = collection.fields.get(many.link.relation.order or "")
    if field is None or field.column is None or field.type.family is not Family.NUMBER:
        return None
    filled = field.column.generated or field.column.auto_increment or field.name == collection.primary_key
    return None if filled else field.name


def _fields(problems: list[Problem]) -> frozenset[object]:
    return frozenset(problem.extensions.get("field") for problem in problems) if problems else frozenset()


_CHANGES = {"create": Expects.ABSENT, "update": Expects.PRESENT, "delete": Expects.PRESENT}
