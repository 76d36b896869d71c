"""Sets of parsed rows while they are built, which only the parser of payloads changes.

Parsing goes item by item, while a set holds the rows of all items at one path. So sets grow until
the whole payload is parsed, and are then built as frozen values (cms/items/write/stages/parsed.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cms.items.write.stages.parsed import (
    Expects,
    ListRemoval,
    Owner,
    ParsedRow,
    ParsedSet,
    ParsedToMany,
    ParsedToOne,
    UnresolvedItem,
)
from cms.items.write.stages.problems import PayloadPosition
from cms.query.plan.links import Link
from cms.schema.model import Collection
from cms.schema.payload import MutableRowValues
from cms.text_shapes import MASK


@dataclass(slots=True)
class RowBuilder:
    """A `ParsedRow` to be."""

    sent: Mapping[str, object]
    values: MutableRowValues
    position: PayloadPosition
    expects: Expects
    invalid_fields: frozenset[object]
    owner: Owner | None = None

    @classmethod
    def of(cls, row: ParsedRow) -> RowBuilder:
        # With a copy of the values: the parsed row stays as it is.
        return cls(
            row.sent, dict(row.values), row.position, row.expects, row.invalid_fields, row.owner
        )

    def build(self) -> ParsedRow:
        return ParsedRow(
            self.sent, self.values, self.position, self.expects, self.invalid_fields, self.owner
        )

    def merge(self, other: RowBuilder) -> None:
        """Add the values of another object with the same key, which replace those of the first."""
        self.values.update(other.values)
        # A mask in the second object must not hide the secret that the first one sets.
        self.sent = {**self.sent, **_sent_without_masks(other)}
        self.invalid_fields |= other.invalid_fields


@dataclass(slots=True)
class SetBuilder:
    """A `ParsedSet` to be; `to_one` has names of fields and their target collections as keys."""

    collection: Collection
    level: int = 0
    rows: list[RowBuilder] = field(default_factory=list)
    numbers_by_key: dict[str, int] = field(default_factory=dict)
    # A many-to-any field has a set of objects for each of its target collections.
    to_one: dict[tuple[str, str], ToOneBuilder] = field(default_factory=dict)
    to_many: dict[str, ToManyBuilder] = field(default_factory=dict)
    unresolved: list[UnresolvedItem] = field(default_factory=list)

    @classmethod
    def of(cls, parsed: ParsedSet) -> SetBuilder:
        """Return a builder of a set that more objects are to be attached to."""
        builder = cls(parsed.collection, parsed.level)
        builder.rows.extend(map(RowBuilder.of, parsed.rows))
        builder.numbers_by_key.update(parsed.numbers_by_key)
        for to_one in parsed.to_one:
            key = to_one.name, to_one.link.target
            builder.to_one[key] = ToOneBuilder.of(to_one)
        for to_many in parsed.to_many:
            builder.to_many[to_many.name] = ToManyBuilder.of(to_many)
        builder.unresolved.extend(parsed.unresolved)
        return builder

    def build(self) -> ParsedSet:
        to_one: list[ParsedToOne] = []
        for objects in self.to_one.values():
            to_one.append(objects.build())
        to_many: list[ParsedToMany] = []
        for elements in self.to_many.values():
            to_many.append(elements.build())
        return ParsedSet(
            self.collection,
            self.level,
            [row.build() for row in self.rows],
            self.numbers_by_key,
            tuple(to_one),
            tuple(to_many),
            tuple(self.unresolved),
        )

    def add(self, row: RowBuilder) -> int:
        """Add a row and return its number."""
        self.rows.append(row)
        return len(self.rows) - 1


@dataclass(slots=True)
class ToOneBuilder:
    """A `ParsedToOne` to be."""

    name: str
    link: Link
    targets: SetBuilder
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold the key of the target."""
        return tuple(part.name for part in self.link.near.set_fields)

    @classmethod
    def of(cls, to_one: ParsedToOne) -> ToOneBuilder:
        return cls(to_one.name, to_one.link, SetBuilder.of(to_one.targets), list(to_one.pairs))

    def build(self) -> ParsedToOne:
        return ParsedToOne(self.name, self.link, self.targets.build(), tuple(self.pairs))

    def detach(self, row: int) -> None:
        """Take the object at the field away from a row; the object is still written."""
        self.pairs = [(owner, target) for owner, target in self.pairs if owner != row]


@dataclass(slots=True)
class ToManyBuilder:
    """A `ParsedToMany` to be."""

    name: str
    link: Link
    elements: SetBuilder
    pairs: list[tuple[int, int]] = field(default_factory=list)
    replaced_lists: list[int] = field(default_factory=list)
    removals: list[ListRemoval] = field(default_factory=list)

    @classmethod
    def of(cls, to_many: ParsedToMany) -> ToManyBuilder:
        return cls(
            to_many.name,
            to_many.link,
            SetBuilder.of(to_many.elements),
            list(to_many.pairs),
            list(to_many.replaced_lists),
            list(to_many.removals),
        )

    def build(self) -> ParsedToMany:
        return ParsedToMany(
            self.name,
            self.link,
            self.elements.build(),
            tuple(self.pairs),
            tuple(self.replaced_lists),
            tuple(self.removals),
        )


def _sent_without_masks(row: RowBuilder) -> dict[str, object]:
    """Return what was sent, without secrets that were sent back masked, as an answer shows them."""
    sent: dict[str, object] = {}
    for name, value in row.sent.items():
        # The parser makes no value of such a mask.
        if value != MASK or name in row.values:
            sent[name] = value
    return sent


def values_of_lists(row: ParsedRow, values: MutableRowValues) -> MutableRowValues:
    """Return the values that the list sets in an element: its owner, and its order if it has none.

    `values` are those of the item that takes the place of the one that the row was parsed from.
    """
    if row.owner is None or row.owner.field is None:
        return {}
    owner_columns = {part.name for part in row.owner.field.key_fields}
    set_by_list: MutableRowValues = {}
    for name, value in row.values.items():
        # A value that was not sent is the position in the list: parsing adds no other.
        is_list_order = row.sent.get(name) is None and values.get(name) is None
        if name in owner_columns or is_list_order:
            set_by_list[name] = value
    return set_by_list
