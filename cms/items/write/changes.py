"""Rows to be written, as the tree that a payload describes.

    root: ChangeSet ── changes: rows of one collection that stand at one path of the payload
                    ├── to_one_fields: ToOne    objects at to-one fields, written before the rows
                    │                           that point to them
                    └── to_many_fields: ToMany  elements of to-many fields, written after the rows
                                                that they belong to

A change set holds what stands at one path for all rows above it, so that a thousand nested objects
are one change set. cms/items/write/payload_parser.py makes the tree, before the transaction.
Whether an object's key is in the database is not known then (`Expects.EITHER`);
cms/items/write/resolving.py finds out.

Many-to-many needs nothing of its own: it is a to-many field onto the junction, whose rows hold
to-one objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from cms.access.guarded_rules import GuardedRule
from cms.errors import MAX_PROBLEMS, Inquiry, Problem, Refused
from cms.query.plan.links import Link
from cms.schema.model import Collection
from cms.schema.payload import Values

Path = tuple[str | int, ...]


class Expects(Enum):
    """What the payload takes for granted about a row: that it is absent, present, or either."""

    ABSENT = "absent"
    PRESENT = "present"
    EITHER = "either"


class PayloadPosition(NamedTuple):
    """Where something stands in the payload.

    `number` is the item's place in an array of several; `path` leads on inside the item.
    """

    number: int | None = None
    path: Path = ()

    def below(self, *steps: str | int) -> PayloadPosition:
        return PayloadPosition(self.number, (*self.path, *steps))


@dataclass(slots=True, eq=False)
class RowChange:
    """One row to be written. `key`, `is_new` and `revision` become known on the way.

    `sent` is the item as it came, `values` what its columns take. `parent_row` is the row in whose
    payload it stands, `parent_field` its field that points there. `presets` are what permissions
    add to what was sent. `invalid_fields` are the fields whose values cannot be used. `rule` is
    what the row must fulfil once it is written.
    """

    sent: Mapping[str, object]
    values: Values
    position: PayloadPosition
    expects: Expects = Expects.ABSENT
    invalid_fields: frozenset[object] = frozenset()
    parent_row: RowChange | None = None
    parent_field: str | None = None
    presets: Mapping[str, object] | None = None
    rule: GuardedRule | None = None
    key: str | None = None
    is_new: bool = True
    revision: int | None = None


@dataclass(slots=True, eq=False)
class ChangeSet:
    """Rows of one collection that stand at one path of the payload.

    `level` counts the relations between the root and this path. `by_key` holds the rows below the
    root that were sent with a key. `to_one_fields` have their names and target collections as keys.
    """

    collection: Collection
    level: int = 0
    changes: list[RowChange] = field(default_factory=list)
    by_key: dict[str, RowChange] = field(default_factory=dict)
    to_one_fields: dict[tuple[str, str], ToOne] = field(default_factory=dict)
    to_many_fields: dict[str, ToMany] = field(default_factory=dict)
    unresolved: list[UnresolvedItem] = field(default_factory=list)

    @property
    def key_field(self) -> str:
        return str(self.collection.primary_key)

    @property
    def is_flat(self) -> bool:
        """Whether no related item is named."""
        return not (self.to_one_fields or self.to_many_fields or self.unresolved)


@dataclass(slots=True, eq=False)
class ToOne:
    """Objects at a to-one field; `pairs` hold each row that points, and the row pointed to."""

    name: str
    link: Link
    change_set: ChangeSet
    pairs: list[tuple[RowChange, RowChange]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ListRemoval:
    """An element of `delete`: a row that is to leave the list of `owner`."""

    owner: RowChange
    sent: object
    key: str
    position: PayloadPosition


@dataclass(slots=True, eq=False)
class ToMany:
    """Elements of a to-many field; `pairs` hold each owner, and the row of its list.

    `replaced_lists` are the owners that were sent a whole array. `dropped` holds the keys of rows
    that leave, each with the owner whose list it leaves; `unlinked` holds the same rows as changes,
    where they are not deleted.
    """

    name: str
    link: Link
    change_set: ChangeSet
    pairs: list[tuple[RowChange, RowChange]] = field(default_factory=list)
    replaced_lists: list[RowChange] = field(default_factory=list)
    removals: list[ListRemoval] = field(default_factory=list)
    dropped: dict[str, RowChange] = field(default_factory=dict)
    unlinked: ChangeSet | None = None

    @property
    def deletes_dropped(self) -> bool:
        """Whether rows that leave the list are deleted, and not only unlinked."""
        return self.link.relation.one_deselect_action == "delete"


@dataclass(frozen=True, slots=True)
class UnresolvedItem:
    """An object at a many-to-any field of a row that does not say to which collection it belongs.

    The stored value of `collection_field` says it.
    """

    change: RowChange
    field: str
    collection_field: str
    item: Mapping[str, object]


@dataclass(slots=True)
class Problems:
    """What is wrong with a payload, to be answered together.

    `entries` are the first problems, each with the number of its item; `total` counts all.
    """

    entries: list[tuple[int, Problem]] = field(default_factory=list)
    total: int = 0

    def add(self, problem: Problem, position: PayloadPosition) -> None:
        """Keep a problem with its position; a problem of a field has the path to that field."""
        self.total += 1
        # Those beyond the limit are counted only.
        if self.total > MAX_PROBLEMS:
            return
        extensions = dict(problem.extensions)
        path = (*position.path, *_path_inside(problem))
        if path:
            extensions["path"] = list(path)
        if position.number is not None:
            extensions["index"] = position.number
        self.entries.append((position.number or 0, replace(problem, extensions=extensions)))

    def refuse(self, inquiry: Inquiry | None = None) -> None:
        """Raise `Refused` with the problems that are kept, in the order of the items; if any."""
        if self.entries:
            entries = sorted(self.entries, key=lambda entry: entry[0])
            problems = [problem for _, problem in entries]
            raise Refused(problems, total=self.total, inquiry=inquiry)


def _path_inside(problem: Problem) -> list[str | int]:
    """Return the path from the item to the value that a problem is about."""
    path = problem.extensions.get("path")
    if isinstance(path, list):
        return path
    name = problem.extensions.get("field")
    return [name] if isinstance(name, str) else []


def walk_change_sets(change_set: ChangeSet) -> Iterator[ChangeSet]:
    """Yield all change sets of a tree, rows that only leave a list among them."""
    yield change_set
    for to_one in change_set.to_one_fields.values():
        yield from walk_change_sets(to_one.change_set)
    for to_many in change_set.to_many_fields.values():
        # Rows that leave a list are written as changes of their own.
        if to_many.unlinked:
            yield to_many.unlinked
        yield from walk_change_sets(to_many.change_set)
