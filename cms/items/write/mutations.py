"""The third stage of a write: authorized rows, as the mutations that write them.

cms/items/write/planning.py makes a plan of resolved rows, cms/items/write/running.py runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms.items.write.parsed import Pairs, RowValues
from cms.items.write.resolved_rows import ResolvedRow
from cms.schema.model import Collection


class RowId(NamedTuple):
    """A row of a plan: the number of its set, and its own number in that set."""

    set: int
    row: int


@dataclass(frozen=True, slots=True)
class Reference:
    """Values of `field` that are known once rows of another set are written.

    They are what those rows hold in `column`; `pairs` hold each row that points, and the row of the
    set `target` that it points to.
    """

    field: str
    target: int
    column: str
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class RowSet:
    """Authorized rows of one collection, and what they take from rows that are written before.

    `owners` is the set above, to whose rows their owners belong.
    """

    number: int
    collection: Collection
    rows: Sequence[ResolvedRow]
    references: tuple[Reference, ...] = ()
    owners: int | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """New rows of a set, by their numbers."""

    target: RowSet
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True)
class Update:
    """Stored rows of a set, by their numbers; each of them has its key."""

    target: RowSet
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True)
class Delete:
    """Rows that leave lists, by their keys, each with the row whose list it leaves."""

    collection: Collection
    owners: Mapping[str, RowId]


@dataclass(frozen=True, slots=True)
class DeferredUpdate:
    """References to rows that are written later: they are set when all rows exist."""

    collection: Collection
    values: Mapping[RowId, RowValues]


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """The mutations of one call in their order, and the sets of rows that they write.

    The first set are the items of the call. `new_keys` are the keys that new rows bring, by
    collection, where several statements write rows of one collection.
    """

    sets: tuple[RowSet, ...]
    mutations: tuple[Insert | Update | Delete, ...]
    deferred: tuple[DeferredUpdate, ...]
    new_keys: Mapping[str, frozenset[str]]
