"""Assemble the catalogue from the answer of `load_catalogue`: only changed collections are new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from cms.mappings import without, without_none
from cms.schema.build_collections import LoadedLists, collections_of
from cms.schema.model import Catalogue, Collection, ForeignKey, Kind, Relation
from cms.schema.referential_actions import (
    ACTIONS_BY_CODE,
    CatalogueRow,
    KeyedCollection,
    actions_of,
)
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
    foreign_keys += [key for key in before.foreign_keys if key.table not in differing]
    foreign_keys.sort(key=lambda key: (key.name, key.table, key.column))
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


def _owners(collections: Mapping[str, Collection]) -> dict[str, KeyedCollection]:
    """Return the tables with a primary key of one column, as collections of items have it."""
    owners: dict[str, KeyedCollection] = {}
    for name, collection in collections.items():
        if collection.kind is Kind.TABLE and collection.primary_key:
            has_history = bool(collection.accountability)
            owners[name] = KeyedCollection(collection.primary_key, has_history)
    return owners


# Relations: recorded ones, and foreign keys without a record


def constraints_of(keys: Iterable[CatalogueRow]) -> list[ForeignKey]:
    """Return the foreign keys that have one column."""
    constraints: list[ForeignKey] = []
    for key in keys:
        if key["kind"] != "f" or len(key["columns"]) != 1:
            continue
        constraint = ForeignKey(
            name=key["name"],
            table=key["table_name"],
            column=key["columns"][0],
            foreign_table=key["foreign_table"],
            foreign_column=key["foreign_columns"][0],
            on_update=ACTIONS_BY_CODE[key["on_update"]],
            on_delete=ACTIONS_BY_CODE[key["on_delete"]],
        )
        constraints.append(constraint)
    return constraints


def relations_of(
    rows: Iterable[CatalogueRow],
    constraints: Mapping[tuple[str, str], ForeignKey],
    collections: Mapping[str, Collection],
) -> Iterable[Relation]:
    """Yield the recorded relations, then the foreign keys and references without a record."""
    # A record tells more than a foreign key (the field on the other side, the order), so it comes
    # first.
    recorded = {(row["many_collection"], row["many_field"]): row for row in rows}
    for many_side, row in recorded.items():
        if not row["dropped"] and _is_complete(row, collections):
            yield _relation(row, constraints.get(many_side), collections[row["many_collection"]])
    one_fields = _one_fields_of_system()
    for many_side, constraint in constraints.items():
        is_known = constraint.table in collections and constraint.foreign_table in collections
        # A record marked as dropped hides its foreign key too.
        if is_known and many_side not in recorded:
            yield _unrecorded(constraint, one_fields.get(many_side))
    # The history points to users and collections without foreign keys, because it outlives them.
    for system_name, system in SYSTEM_TABLES.items():
        for column, target in system.references.items():
            if system_name in collections and target in collections:
                one_field = one_fields.get((system_name, column))
                yield Relation(system_name, column, target, one_field)


def _unrecorded(constraint: ForeignKey, one_field: str | None) -> Relation:
    deselect_action = "nullify"
    # Rows that are deleted with the row above them, as operations with their flow, need one.
    if one_field is not None and constraint.on_delete == "CASCADE":
        deselect_action = "delete"
    return Relation(
        constraint.table,
        constraint.column,
        constraint.foreign_table,
        one_field,
        one_deselect_action=deselect_action,
        constraint=constraint,
    )


def _one_fields_of_system() -> dict[tuple[str, str], str]:
    """Return the to-many fields of system collections, by the columns that point to them."""
    one_fields: dict[tuple[str, str], str] = {}
    for system in SYSTEM_TABLES.values():
        for name, target in system.aliases.items():
            one_fields[target.many_collection, target.many_field] = name
    return one_fields


def _is_complete(row: CatalogueRow, collections: Mapping[str, Collection]) -> bool:
    owner = collections.get(row["many_collection"])
    if owner is None or row["many_field"] not in owner.fields:
        return False
    # A many-to-any relation has no single collection on the one side.
    one_collection = row["one_collection"]
    return one_collection is None or one_collection in collections


def _relation(row: CatalogueRow, constraint: ForeignKey | None, owner: Collection) -> Relation:
    allowed = row["one_allowed_collections"]
    sort_field = owner.fields.get(row["sort_field"] or "")
    order_field = None
    # The setting may name a field that is still to be made.
    if sort_field and sort_field.column:
        order_field = sort_field.name
    return Relation(
        many_collection=row["many_collection"],
        many_field=row["many_field"],
        one_collection=row["one_collection"],
        one_field=row["one_field"],
        one_collection_field=row["one_collection_field"],
        one_allowed_collections=None if allowed is None else tuple(allowed),
        junction_field=row["junction_field"],
        sort_field=row["sort_field"],
        order_field=order_field,
        one_deselect_action=row["one_deselect_action"],
        id=row["id"],
        constraint=constraint,
    )
