"""Assemble the catalogue from the answer of `load_catalogue`: only changed collections are new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from cms.mappings import without, without_none
from cms.schema.build_collections import LoadedLists, collections_of
from cms.schema.build_relations import constraints_of, relations_of
from cms.schema.model import Catalogue, Collection, ForeignKey, Kind
from cms.schema.referential_actions import KeyedCollection, actions_of
from cms.schema.system import SYSTEM_TABLES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Structure:
    """A catalogue, with the data that is needed to load only the changes of a newer one.

    `fingerprints` are digests of the collections: one changes with any of the rows that its
    collection is made of. `foreign_keys` are those with one column.
    """

    catalogue: Catalogue
    fingerprints: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    foreign_keys: tuple[ForeignKey, ...] = ()


def build_structure(version: int, loaded: LoadedLists, before: Structure) -> Structure:
    """Return the structure of the lists in the answer of `load_catalogue`.

    `version` is the counter of structure. `before` has the fingerprints that the statement was
    given: the answer has the collections whose fingerprints differ. One that no longer exists has
    the fingerprint None.
    """
    differing = loaded("fingerprints")
    fingerprints = without(before.fingerprints, differing)
    fingerprints |= without_none(differing)
    collections = without(before.catalogue.collections, differing) | collections_of(loaded)
    # All parts are in the order of their names, so that the catalogue is the same whether it was
    # loaded at once or in changes.
    collections = dict(sorted(collections.items()))
    foreign_keys = constraints_of(loaded("keys"))
    for key in before.foreign_keys:
        if key.table not in differing:
            foreign_keys.append(key)
    foreign_keys.sort(key=_key_order)
    constraints = {(key.table, key.column): key for key in foreign_keys}
    relations = relations_of(loaded("relations"), constraints, collections)
    catalogue = Catalogue.of(
        version,
        collections,
        tuple(relations),
        extensions=frozenset(loaded("extensions")),
        actions=actions_of(loaded("parts"), loaded("actions"), _owners(collections)),
    )
    reserved = tuple(name for name in loaded("service_tables") if name not in SYSTEM_TABLES)
    return Structure(
        replace(catalogue, reserved_tables=reserved), fingerprints, tuple(foreign_keys)
    )


NO_STRUCTURE = Structure(Catalogue(0, {}, ()))
"""The empty structure, before anything is loaded."""


def _key_order(key: ForeignKey) -> tuple[str, str, str]:
    return key.name, key.table, key.column


def _owners(collections: Mapping[str, Collection]) -> dict[str, KeyedCollection]:
    """Return the tables with a primary key of one column, as collections of items have it."""
    owners: dict[str, KeyedCollection] = {}
    for name, collection in collections.items():
        if collection.kind is Kind.TABLE and collection.primary_key:
            has_history = bool(collection.accountability)
            owners[name] = KeyedCollection(collection.primary_key, has_history)
    return owners
