"""The collections on which a cached value depends, and those that differ in two catalogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from cms.schema.model import Catalogue

K = TypeVar("K", str, tuple[str, str])
V = TypeVar("V")


class RecordingCatalogue(Catalogue):
    """A catalogue that records for which collections anything is looked up in it.

    It offers lookups of collections and relations by name, and whether rows are deleted along, but
    nothing else: so `names` is complete. Missing collections are among them.
    """

    __slots__ = ("names", "whole")

    names: set[str]
    whole: Catalogue

    def __init__(self, whole: Catalogue) -> None:
        # The other attributes stay without a value, so that their use is an error.
        names: set[str] = set()
        values = {
            "whole": whole,
            "names": names,
            "collections": _RecordedMapping(whole.collections, names),
            "by_many": _RecordedMapping(whole.by_many, names),
            "by_one": _RecordedMapping(whole.by_one, names),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def deletes_along(self, collection: str) -> bool:
        """Tell whether other rows are deleted or changed with those of a collection."""
        self.names.add(collection)
        return self.whole.deletes_along(collection)


class _RecordedMapping(Mapping[K, V]):
    """A mapping that records the collections that are looked up; it cannot be iterated over."""

    __slots__ = ("_names", "_values")

    _values: Mapping[K, V]

    def __init__(self, values: Mapping[K, V], names: set[str]) -> None:
        self._values = values
        self._names = names

    def __getitem__(self, key: K) -> V:
        self._names.add(_collection_of(key))
        return self._values[key]

    def __iter__(self) -> Iterator[K]:
        raise TypeError("what looks at all names depends on more than is recorded here")

    def __len__(self) -> int:
        raise TypeError("what counts all names depends on more than is recorded here")


def changed_collections(before: Catalogue, after: Catalogue) -> set[str]:
    """Return the collections for which a lookup in two catalogues may have different results.

    They are those that appear, vanish or change, or have a relation that does, and those whose
    deletions begin or cease to change other rows.
    """
    names: set[str] = set()
    for name in before.collections.keys() | after.collections.keys():
        # A collection that has not changed is the same object (`build_structure`).
        if before.collections.get(name) is not after.collections.get(name):
            names.add(name)
    names |= _differing(before.by_many, after.by_many)
    names |= _differing(before.by_one, after.by_one)
    return names | (before.actions.root_tables_of.keys() ^ after.actions.root_tables_of.keys())


def _differing(before: Mapping[K, V], after: Mapping[K, V]) -> set[str]:
    names: set[str] = set()
    for key in before.keys() | after.keys():
        if before.get(key) != after.get(key):
            names.add(_collection_of(key))
    return names


def _collection_of(key: str | tuple[str, str]) -> str:
    """Return the collection of a key, which may be that of a collection and a field."""
    if isinstance(key, str):
        return key
    return key[0]
