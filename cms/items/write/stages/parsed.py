"""The first stage of a write: the rows of a payload, before the database is asked about them.

    root: ParsedSet ── rows: rows of one collection that stand at one path of the payload
                    ├── to_one: ParsedToOne    objects at to-one fields, written before the rows
                    │                          that point to them
                    └── to_many: ParsedToMany  elements of to-many fields, written after the rows
                                               that they belong to

A set holds what stands at one path for all rows above it, so that a thousand nested objects are one
set. Sets refer to the rows of each other by their numbers, which are the same at every later stage.

Whether an object's key is in the database is not known yet (`Expects.ANY`).

Many-to-many needs nothing of its own: it is a to-many field onto the junction, whose rows hold
to-one objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count, repeat
from typing import NamedTuple, overload

from cms.items.write.stages.problems import PayloadPosition
from cms.query.plan.links import Link
from cms.schema.model import Collection, Field
from cms.schema.payload import RowValues


class PendingKey(str):
    """Stands in a row for the key of a related item that is not written yet.

    It is a text like all values of rows, and distinguished from any other by its type.
    """

    __slots__ = ()


PENDING_KEY = PendingKey()

Pairs = Sequence[tuple[int, int]]
"""Numbers of rows of two sets that belong together."""


class Expects(Enum):
    """Whether a row must not be stored yet, must be stored, or may be either."""

    ABSENT = "absent"
    PRESENT = "present"
    ANY = "any"


class Owner(NamedTuple):
    """The row in whose payload another row stands, by its number in the set above.

    An element of a list points to its owner with `field`; for any other row `field` is None.
    `value` is what rules see in `field`: the owner's key, or what was sent for a new owner. It is
    set when the element is resolved.
    """

    number: int
    field: Field | None = None
    value: object = None


# A named tuple, of which a call may have ten thousand, takes a fifth of the time of a frozen
# dataclass to make.
class ParsedRow(NamedTuple):
    """One row of a payload.

    `sent` is the item as it came, `values` are the values of its columns, converted. For
    `invalid_fields` there is a problem already, and no value.
    """

    sent: Mapping[str, object]
    values: RowValues
    position: PayloadPosition
    expects: Expects = Expects.ABSENT
    invalid_fields: frozenset[object] = frozenset()
    owner: Owner | None = None


class ColumnRows(Sequence[ParsedRow]):
    """The rows of an array of items whose values are all valid.

    Rows are made anew whenever they are read: ten thousand that stay would make the garbage
    collector go through all objects once more.
    """

    __slots__ = ("_expects", "_items", "values")

    def __init__(
        self,
        items: Sequence[Mapping[str, object]],
        values: Sequence[RowValues],
        expects: Expects,
    ) -> None:
        self._items = items
        self.values = values
        self._expects = expects

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ParsedRow]:
        # `tuple.__new__` in a map takes half the time: no Python runs for each row.
        positions = map(tuple.__new__, repeat(PayloadPosition), zip(count(), repeat(())))
        invalid_fields: frozenset[object] = frozenset()
        columns = zip(
            self._items,
            self.values,
            positions,
            repeat(self._expects),
            repeat(invalid_fields),
            repeat(None),
        )
        return map(tuple.__new__, repeat(ParsedRow), columns)

    @overload
    def __getitem__(self, index: int) -> ParsedRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ParsedRow]: ...

    def __getitem__(self, index: int | slice) -> ParsedRow | Sequence[ParsedRow]:
        if isinstance(index, slice):
            return list(self)[index]
        # By a range, whose negative and too large indexes are those of any list.
        position = PayloadPosition(range(len(self))[index])
        return ParsedRow(self._items[index], self.values[index], position, self._expects)


_NO_KEYS: Mapping[str, int] = {}


def _object_count(value: object) -> int:
    """Return how many related items an object may hold, with itself."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_object_count, value.values()))
    if isinstance(value, list):
        return len(value) + sum(map(_object_count, value))
    return 0


class ParsedSet(NamedTuple):
    """Rows of one collection that stand at one path of the payload.

    `level` counts the relations between the root and this path. `numbers_by_key` has the numbers of
    rows that were sent with a key; it is empty at the root, whose rows are not merged by key.
    """

    collection: Collection
    level: int
    rows: Sequence[ParsedRow]
    numbers_by_key: Mapping[str, int] = _NO_KEYS
    to_one: tuple[ParsedToOne, ...] = ()
    to_many: tuple[ParsedToMany, ...] = ()
    unresolved: tuple[UnresolvedItem, ...] = ()

    @property
    def row_values(self) -> Sequence[RowValues]:
        """The values of the rows."""
        rows = self.rows
        # Reading the rows of `ColumnRows` would make each of them.
        if isinstance(rows, ColumnRows):
            return rows.values
        return [row.values for row in rows]

    @property
    def related_count(self) -> int:
        """The number of related items, at all levels, that the rows name."""
        count = 0
        for to_one in self.to_one:
            count += len(to_one.targets.rows) + to_one.targets.related_count
        for to_many in self.to_many:
            elements = to_many.elements
            count += len(elements.rows) + len(to_many.removals) + elements.related_count
        return count + sum(_object_count(unresolved.item) for unresolved in self.unresolved)

    @property
    def is_flat(self) -> bool:
        """Whether no related item is named."""
        return not (self.to_one or self.to_many or self.unresolved)


@dataclass(frozen=True, slots=True)
class ParsedToOne:
    """Objects at a to-one field; `pairs` hold each row that points, and the row pointed to."""

    name: str
    link: Link
    targets: ParsedSet
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class ListRemoval:
    """An element of `delete` in the payload: a row that leaves the list of the row `owner`.

    `values` are those of its key, of which the columns to the owner may be missing.
    """

    owner: int
    sent: object
    values: RowValues
    position: PayloadPosition


@dataclass(frozen=True, slots=True)
class ParsedToMany:
    """Elements of a to-many field; `pairs` hold each owner, and the row of its list.

    `replaced_lists` are the owners that were sent a whole array.
    """

    name: str
    link: Link
    elements: ParsedSet
    pairs: Pairs
    replaced_lists: tuple[int, ...]
    removals: tuple[ListRemoval, ...]


@dataclass(frozen=True, slots=True)
class UnresolvedItem:
    """An object at a many-to-any field, without its collection in the payload.

    The `collection_field` of the stored row `row` names the collection.
    """

    row: int
    field: str
    collection_field: str
    item: Mapping[str, object]
