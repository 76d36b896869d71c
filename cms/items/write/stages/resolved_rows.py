"""The second stage of a write: rows that are known to be stored or new.

Their values are complete, with automatic values, and in new rows with presets. A resolved row is
not changed any more: what authorizing adds makes another row (mutations.py), and keys and revisions
stand beside it (written_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms.access.guarded_rules import GuardedGrant
from cms.items.write.stages.parsed import Owner, Pairs, PendingKey
from cms.items.write.stages.problems import PayloadPosition
from cms.query.plan.links import Link
from cms.schema.model import Collection
from cms.schema.payload import MutableRowValues, RowValues

_NO_REFERENCE: Mapping[str, object] = {}
_NO_KEYS: Mapping[int, str | None] = {}
_ALL_CHANGED: Mapping[int, frozenset[str]] = {}


class StoredRows(NamedTuple):
    """Which rows of a parsed set are stored; all others are new.

    `keys` are the keys of stored rows, by number; None for a row that has to be stored and is
    missing. `unchanged` are the columns of rows that hold what was sent already, by number. Rows
    that are `named_by_key` are those of the keys among their values; in others these are changes
    of the key.
    """

    keys: Mapping[int, str | None] = _NO_KEYS
    unchanged: Mapping[int, frozenset[str]] = _ALL_CHANGED
    named_by_key: bool = True

    def changes(self, collection: Collection, number: int, values: RowValues) -> MutableRowValues:
        """Return the values that change in a stored row.

        A row that is missing keeps the key that was sent.
        """
        changes = dict(values)
        key = self.keys[number]
        if key is None and collection.key_of(values) is not None:
            return changes
        if self.named_by_key:
            for name in collection.key_names:
                # The key of an owner is a change: the row may be in another list so far.
                if type(changes.get(name)) is not PendingKey:
                    changes.pop(name, None)
        else:
            stored = {} if key is None else collection.key_values(key)
            for name in collection.key_names:
                value = changes.get(name)
                # A key of one column may be sent as null, which leaves it as it is.
                is_left_out = value is None and bool(collection.key_name)
                if is_left_out or value == stored.get(name):
                    changes.pop(name, None)
        # Values that are already stored are not written, and take no permission.
        if self.unchanged:
            for name in self.unchanged.get(number, ()):
                changes.pop(name, None)
        return changes


ALL_NEW = StoredRows()


# A named tuple for the same reason as `ParsedRow`: a call may have ten thousand.
class ResolvedRow(NamedTuple):
    """A row that is inserted if it `is_new`, else updated by its key.

    `sent`, `position`, `invalid_fields` and `owner` are those of the `ParsedRow`. `values` are the
    values of its columns, without the key of a stored row. `presets` are the values that
    permissions add to what was sent. `grants` are the permissions that allow a new row, None for
    administrators and for changes.
    """

    sent: Mapping[str, object]
    values: RowValues
    position: PayloadPosition
    invalid_fields: frozenset[object]
    owner: Owner | None
    is_new: bool
    key: str | None
    presets: Mapping[str, object] | None = None
    grants: tuple[GuardedGrant, ...] | None = None

    @property
    def owner_reference(self) -> Mapping[str, object]:
        """What an element of a list holds in the field that points to its owner.

        It takes the place of whatever was sent for that field.
        """
        owner = self.owner
        # Without the field among its values, an element stays where it is: nothing is set.
        if owner is None or owner.field is None:
            return _NO_REFERENCE
        if not any(part.name in self.values for part in owner.field.set_fields):
            return _NO_REFERENCE
        return {owner.field.name: owner.value}

    @property
    def payload(self) -> Mapping[str, object]:
        """What rules see of the row: presets, what was sent, and the reference to its owner."""
        # What the caller sent replaces presets, and the list of an owner decides before both.
        return {**(self.presets or {}), **self.sent, **self.owner_reference}

    @property
    def sent_fields(self) -> set[str]:
        """The fields that the row was sent with, and the one that points to its owner."""
        # An element names the field of its owner by standing in the list.
        names = {str(name) for name in self.sent}
        names.update(self.owner_reference)
        return names

    def changed_fields(self, collection: Collection) -> set[str]:
        """Return the fields that a change sets: a key that only names the row is none of them."""
        return self.sent_fields - {*collection.key_names} | {
            name for name in collection.key_names if name in self.values
        }


def values_of(rows: Iterable[ResolvedRow]) -> list[RowValues]:
    """Return the values of rows."""
    return [row.values for row in rows]


class ResolvedSet(NamedTuple):
    """Rows of one collection that stand at one path of the payload (`ParsedSet`)."""

    collection: Collection
    level: int
    rows: Sequence[ResolvedRow]
    to_one: tuple[ResolvedToOne, ...] = ()
    to_many: tuple[ResolvedToMany, ...] = ()

    @property
    def stored_keys(self) -> list[str]:
        """The keys of the rows that are stored."""
        return [row.key for row in self.rows if row.key is not None and not row.is_new]

    @property
    def changed_numbers(self) -> list[int]:
        """The numbers of the rows that are updated.

        A related item that was sent as nothing but its key is not updated, while the items of a
        call always are. A row without a key is missing, for which there is a problem already.
        """
        numbers: list[int] = []
        for number, row in enumerate(self.rows):
            if row.key is None or row.is_new:
                continue
            if row.values or not self.level:
                numbers.append(number)
        return numbers


@dataclass(frozen=True, slots=True)
class ResolvedToOne:
    """Objects at a to-one field (`ParsedToOne`)."""

    name: str
    link: Link
    targets: ResolvedSet
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class ResolvedToMany:
    """Elements of a to-many field (`ParsedToMany`), and rows that leave its lists.

    `dropped` has the keys of rows that leave, each with the number of the owner whose list it
    leaves. If they are not deleted, `unlinked` has them as changed rows.
    """

    name: str
    link: Link
    elements: ResolvedSet
    pairs: Pairs
    dropped: Mapping[str, int]
    unlinked: ResolvedSet | None

    @property
    def deleted_keys(self) -> list[str]:
        """The keys of the rows that leave a list and are deleted."""
        if not deletes_dropped(self.link, self.elements.collection):
            return []
        return list(self.dropped)


def deletes_dropped(link: Link, elements: Collection) -> bool:
    """Tell whether rows that leave the list of a relation are deleted, and not only unlinked."""
    # A row whose key holds the columns to its owner is none without them. Where it holds some of
    # them, the others may be null.
    holds_owner = all(part.name in elements.key_names for part in link.far.key_fields)
    return holds_owner or link.relation.one_deselect_action == "delete"


def walk_sets(resolved: ResolvedSet) -> Iterator[ResolvedSet]:
    """Yield all sets of a tree, each before the sets below it.

    Their numbers are in this order, and `_SequenceBuilder`
    (cms/items/write/run/mutation_sequence.py) must visit them in the same one.
    """
    yield resolved
    for to_one in resolved.to_one:
        yield from walk_sets(to_one.targets)
    for to_many in resolved.to_many:
        # Rows that leave a list are written as changes of their own.
        if to_many.unlinked:
            yield to_many.unlinked
        yield from walk_sets(to_many.elements)
