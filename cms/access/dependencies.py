"""The dependencies of a cached value: lookups in the catalogue, and the grants of the caller.

The value stays valid across changes that leave all of these as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cms.access.policy import GrantKey, Policy, StoredGrant
from cms.schema.model import Catalogue, Collection, Relation

K = TypeVar("K")
V = TypeVar("V")

FieldKey = tuple[str, str]
"""A collection and a field."""


@dataclass(slots=True)
class Dependencies:
    """The objects looked up in one catalogue, None for missing ones, and the caller's grants.

    `deletes_along` says for collections whether other rows are deleted with theirs. `grants` is
    None for a value made for an administrator. `lasting` is false for a value that depends on more
    than single names. `rights` and `catalogue` are the identities of the rights and the catalogue
    with which the dependencies were compared last.
    """

    collections: dict[str, Collection | None] = field(default_factory=dict)
    many: dict[FieldKey, Relation | None] = field(default_factory=dict)
    one: dict[FieldKey, Relation | None] = field(default_factory=dict)
    deletes_along: dict[str, bool] = field(default_factory=dict)
    grants: dict[GrantKey, tuple[StoredGrant, ...]] = field(default_factory=dict)
    lasting: bool = True
    rights: object = None
    catalogue: object = None

    def add(self, others: Dependencies) -> None:
        """Add the dependencies of a part."""
        self.collections |= others.collections
        self.many |= others.many
        self.one |= others.one
        self.deletes_along |= others.deletes_along
        self.grants |= others.grants
        self.lasting = self.lasting and others.lasting

    def hold_in(self, catalogue: Catalogue) -> bool:
        """Tell whether all lookups have the same results in a catalogue."""
        if self.catalogue is catalogue.identity:
            return True
        if not self.lasting or not self._are_in(catalogue):
            return False
        # Another thread may set another catalogue meanwhile: the comparison is true of that one,
        # too.
        self.catalogue = catalogue.identity
        return True

    def _are_in(self, catalogue: Catalogue) -> bool:
        # A collection that has not changed is the same object (`build_structure`).
        for name, collection in self.collections.items():
            if catalogue.collections.get(name) is not collection:
                return False
        if not _are_equal(self.many, catalogue.by_many):
            return False
        if not _are_equal(self.one, catalogue.by_one):
            return False
        deletes_along = self.deletes_along.items()
        return all(catalogue.deletes_along(name) == deletes for name, deletes in deletes_along)

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


def _are_equal(known: Mapping[FieldKey, Relation | None], now: Mapping[FieldKey, Relation]) -> bool:
    return all(now.get(key) == relation for key, relation in known.items())


class TracedCatalogue(Catalogue):
    """A catalogue that notes what is looked up in it.

    It offers lookups of collections and relations by name, and whether rows are deleted along, but
    nothing else: so the notes are complete.
    """

    __slots__ = ("dependencies", "whole")

    dependencies: Dependencies
    whole: Catalogue

    def __init__(self, whole: Catalogue, policy: Policy) -> None:
        # The other attributes stay without a value, so that their use is an error.
        dependencies = Dependencies(rights=policy.rights, catalogue=whole.identity)
        values = {
            "whole": whole,
            "dependencies": dependencies,
            "collections": _TracedMapping(whole.collections, dependencies.collections),
            "by_many": _TracedMapping(whole.by_many, dependencies.many),
            "by_one": _TracedMapping(whole.by_one, dependencies.one),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def deletes_along(self, collection: str) -> bool:
        """Note and tell whether other rows are deleted or changed with those of a collection."""
        deletes = self.whole.deletes_along(collection)
        self.dependencies.deletes_along[collection] = deletes
        return deletes


class _TracedMapping(Mapping[K, V]):
    """A mapping that notes what is looked up, found or missing; it cannot be iterated over."""

    __slots__ = ("_known", "_values")

    def __init__(self, values: Mapping[K, V], known: dict[K, V | None]) -> None:
        self._values = values
        self._known = known

    def __getitem__(self, key: K) -> V:
        value = self._known[key] = self._values.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        raise TypeError("what looks at all names depends on more than is noted here")

    def __len__(self) -> int:
        raise TypeError("what counts all names depends on more than is noted here")
