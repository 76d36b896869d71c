"""The last stages of a write before it runs: authorized rows, and the mutations that write them.

In cms/items/write/run, mutation_sequence.py turns authorized rows into a sequence, and running.py
runs it. Its values never change; keys that become known while it runs are kept in `WrittenRows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cms.access.guarded_rules import GuardedRule
from cms.items.write.stages.parsed import Pairs
from cms.items.write.stages.resolved_rows import ResolvedRow, ResolvedSet
from cms.schema.model import Collection, Field
from cms.schema.payload import RowValues

NO_RULES: Mapping[int, GuardedRule] = {}
_NO_DELETES: Mapping[str, AuthorizedDelete] = {}


class AuthorizedDelete(NamedTuple):
    """Stored rows that may be deleted, by their keys; they are locked where rules apply."""

    collection: Collection
    keys: Sequence[str]


class AuthorizedSet(NamedTuple):
    """A resolved set that its caller may write, unless the written rows break a rule.

    `rows` are those of `resolved`, with presets added to changes. They are kept beside `resolved`,
    because the root is authorized before the sets below it are resolved: the authorized rows stay
    when the resolved tree replaces the root. `rules` are what rows must fulfil after they are
    written, by their numbers. `deletes` are the rows that leave lists and are deleted, by the names
    of the to-many fields.
    """

    resolved: ResolvedSet
    rows: Sequence[ResolvedRow]
    rules: Mapping[int, GuardedRule] = NO_RULES
    deletes: Mapping[str, AuthorizedDelete] = _NO_DELETES

    @property
    def collection(self) -> Collection:
        return self.resolved.collection


class RowId(NamedTuple):
    """A row of a sequence: the number of its set, and its own number in that set."""

    set: int
    row: int


@dataclass(frozen=True, slots=True)
class Reference:
    """Values of `field` that rows get from rows of another set, once these are written.

    `target` is the number of the other set, and `column` the field of its rows that `field` points
    to. Each of `pairs` is the number of a row that points and of the row that it points to.
    """

    field: Field
    target: int
    column: Field
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class RowSet:
    """Authorized rows of one collection, and their references to rows that are written before.

    `number` is that of the set in its sequence, `owners` the number of the set above it. `rules`
    are those of `AuthorizedSet`.
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
    """Stored rows, by their keys; `owners` has, by key, the row whose list each one leaves."""

    collection: Collection
    keys: Sequence[str]
    owners: Mapping[str, RowId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeferredUpdate:
    """References to rows that are written later, set when all rows exist (`DeferredKeys`)."""

    collection: Collection
    values: Mapping[RowId, RowValues]


@dataclass(frozen=True, slots=True)
class MutationSequence:
    """The mutations of one call in their order, and the sets of rows that they write.

    The first set has the items of the call, unless it only deletes. `new_keys` are the keys that
    new rows have before they are written, by collection; it is empty for a sequence of one set.
    """

    # By their numbers: `RowSet.number` is the index here.
    sets: tuple[RowSet, ...] = ()
    mutations: tuple[Insert | Update | Delete, ...] = ()
    deferred: tuple[DeferredUpdate, ...] = ()
    new_keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
