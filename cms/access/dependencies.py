"""What something was made of: what was looked up in the catalogue, and the grants of the caller.

It can outlive changes that leave all of this as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from cms.access.policy import GrantKey, Policy, StoredGrant
from cms.schema.model import Catalogue, Collection, Relation

K = TypeVar("K")
V = TypeVar("V")

FieldKey = tuple[str, str]
"""A collection and a field."""


class Names(NamedTuple):
    """Names in a catalogue: of collections, and of the fields of relations on either side."""

    collections: AbstractSet[str]
    many: AbstractSet[FieldKey]
    one: AbstractSet[FieldKey]


def changed_names(before: Catalogue, now: Catalogue) -> Names:
    """Return the names that mean something else than before, or are new or gone."""
    return Names(
        _changed_collections(before.collections, now.collections),
        _changed_relations(before.by_many, now.by_many),
        _changed_relations(before.by_one, now.by_one),
    )


def _changed_collections(
    before: Mapping[str, Collection], now: Mapping[str, Collection]
) -> set[str]:
    changed: set[str] = set()
    for name in before.keys() | now.keys():
        # A collection that has not changed is the same object (`build_structure`).
        if before.get(name) is not now.get(name):
            changed.add(name)
    return changed


def _changed_relations(
    before: Mapping[FieldKey, Relation], now: Mapping[FieldKey, Relation]
) -> set[FieldKey]:
    changed: set[FieldKey] = set()
    for key in before.keys() | now.keys():
        if before.get(key) != now.get(key):
            changed.add(key)
    return changed


@dataclass(slots=True)
class Dependencies:
    """What was looked up under one catalogue, found or missing, and the grants of the caller.

    Without `grants` it was made for an administrator. What does not depend on single names alone
    is not `lasting`. `rights` are those for which the grants were compared last.
    """

    collections: set[str] = field(default_factory=set)
    many: set[FieldKey] = field(default_factory=set)
    one: set[FieldKey] = field(default_factory=set)
    grants: dict[GrantKey, tuple[StoredGrant, ...]] = field(default_factory=dict)
    lasting: bool = True
    rights: object = None

    def add(self, others: Dependencies) -> None:
        """Add what a part was made of."""
        self.collections |= others.collections
        self.many |= others.many
        self.one |= others.one
        self.grants |= others.grants
        self.lasting = self.lasting and others.lasting

    def outlive(self, changed: Names) -> bool:
        """Tell whether a change of the catalogue under which this was made leaves it right."""
        return (
            self.lasting
            and self.collections.isdisjoint(changed.collections)
            and self.many.isdisjoint(changed.many)
            and self.one.isdisjoint(changed.one)
        )

    def hold_for(self, policy: Policy) -> bool:
        """Tell whether a policy grants the same."""
        # Nearly always: rights change seldom.
        if self.rights is policy.rights:
            return True
        if not self.lasting or not self.grants or policy.is_admin:
            return False
        for key, grants in self.grants.items():
            if policy.grants.get(key, ()) != grants:
                return False
        # Another thread may set it too: the grants are the same under either object.
        self.rights = policy.rights
        return True


class TracedCatalogue(Catalogue):
    """A catalogue that notes what is looked up in it.

    It has the collections and relations by their names and nothing else: what is noted is then all
    that the result depends on.
    """

    __slots__ = ("dependencies", "whole")

    dependencies: Dependencies
    whole: Catalogue

    def __init__(self, whole: Catalogue, policy: Policy) -> None:
        # The other attributes stay without a value, so that their use is an error.
        dependencies = Dependencies(rights=policy.rights)
        values = {
            "whole": whole,
            "dependencies": dependencies,
            "collections": _TracedMapping(whole.collections, dependencies.collections),
            "by_many": _TracedMapping(whole.by_many, dependencies.many),
            "by_one": _TracedMapping(whole.by_one, dependencies.one),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


class _TracedMapping(Mapping[K, V]):
    """A mapping that notes what is looked up, found or missing; it cannot be iterated over."""

    __slots__ = ("_names", "_values")

    def __init__(self, values: Mapping[K, V], names: set[K]) -> None:
        self._values = values
        self._names = names

    def __getitem__(self, key: K) -> V:
        self._names.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[K]:
        raise TypeError("what looks at all names depends on more than is noted here")

    def __len__(self) -> int:
        raise TypeError("what counts all names depends on more than is noted here")
