"""The last stages of a write before it runs: authorized rows, and the mutations that write them.

cms/items/write/planning.py makes a plan of authorized rows, cms/items/write/running.py runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cms.access.guarded_rules import GuardedRule
from cms.items.write.parsed import Pairs, RowValues
from cms.items.write.resolved_rows import ResolvedRow, ResolvedSet
from cms.schema.model import Collection

NO_RULES: Mapping[int, GuardedRule] = {}


class AuthorizedSet(NamedTuple):
    """A resolved set that its caller may write, as far as the rows before the write can tell.

    `rows` are its rows with what permissions to change add to them. `rules` are what rows must
    fulfil once they are written, by their numbers.
    """

    resolved: ResolvedSet
    rows: Sequence[ResolvedRow]
    rules: Mapping[int, GuardedRule] = NO_RULES

    @property
    def collection(self) -> Collection:
        return self.resolved.collection


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

    `owners` is the set above, to whose rows their owners belong. `rules` are those of
    `AuthorizedSet`.
    """

    number: int
    collection: Collection
    rows: Sequence[ResolvedRow]
    references: tuple[Reference, ...] = ()
    owners: int | None = None
    rules: Mapping[int, GuardedRule] = field(default_factory=dict)


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
    """Stored rows, by their keys; `owners` are the rows whose lists they leave, if any."""

    collection: Collection
    keys: Sequence[str]
    owners: Mapping[str, RowId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeferredUpdate:
    """References to rows that are written later: they are set when all rows exist."""

    collection: Collection
    values: Mapping[RowId, RowValues]


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """The mutations of one call in their order, and the sets of rows that they write.

    The first set are the items of the call, unless it only deletes. `new_keys` are the keys that new rows bring, by
    collection, where several statements write rows of one collection.
    """

    sets: tuple[RowSet, ...] = ()
    mutations: tuple[Insert | Update | Delete, ...] = ()
    deferred: tuple[DeferredUpdate, ...] = ()
    new_keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
