"""Assemble the catalogue from the answer of `load_catalogue`: only changed collections are new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count
from types import MappingProxyType
from typing import TypeVar

from cms.mappings import without, without_none
from cms.schema.build_collections import LoadedLists, collections_of
from cms.schema.keys import compound_key, is_reference, reference_field
from cms.schema.model import Catalogue, Collection, Field, ForeignKey, Kind, Relation
from cms.schema.referential_actions import (
    ACTIONS_BY_CODE,
    CatalogueRow,
    actions_of,
)
from cms.schema.system import SYSTEM_TABLES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Structure:
    """A catalogue, with the data that is needed to load only the changes of a newer one.

    `fingerprints` are digests of the collections: one changes with any of the rows that its
    collection is made of.
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
    foreign_keys.sort(key=lambda key: (key.name, key.table, key.columns))
    collections, constraints = _with_references(collections, foreign_keys)
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


def _owners(collections: Mapping[str, Collection]) -> dict[str, bool]:
    """Return the tables with a primary key, and whether their items have a history."""
    owners: dict[str, bool] = {}
    for name, collection in collections.items():
        if collection.kind is Kind.TABLE and collection.primary_key:
            owners[name] = bool(collection.accountability)
    return owners


# Relations: recorded ones, and foreign keys without a record


def constraints_of(keys: Iterable[CatalogueRow]) -> list[ForeignKey]:
    """Return the foreign keys."""
    constraints: list[ForeignKey] = []
    for key in keys:
        if key["kind"] != "f":
            continue
        constraint = ForeignKey(
            name=key["name"],
            table=key["table_name"],
            columns=tuple(key["columns"]),
            foreign_table=key["foreign_table"],
            foreign_columns=tuple(key["foreign_columns"]),
            on_update=ACTIONS_BY_CODE[key["on_update"]],
            on_delete=ACTIONS_BY_CODE[key["on_delete"]],
        )
        constraints.append(constraint)
    return constraints


def _with_references(
    collections: Mapping[str, Collection], foreign_keys: Iterable[ForeignKey]
) -> tuple[dict[str, Collection], dict[tuple[str, str], ForeignKey]]:
    """Return the foreign keys by their fields, and the collections with all of these fields.

    The field of a foreign key of several columns is an alias with the name of the table that it
    points to, and a number where the collection has such a field already (section 18).
    """
    constraints: dict[tuple[str, str], ForeignKey] = {}
    own_fields: dict[str, dict[str, Field]] = {}
    for name, collection in collections.items():
        own_fields[name] = {
            key: field for key, field in collection.fields.items() if not is_reference(field)
        }
    for key in foreign_keys:
        if len(key.columns) == 1:
            constraints[key.table, key.columns[0]] = key
            continue
        key = _in_order_of_target(key, collections.get(key.foreign_table))
        fields = own_fields.get(key.table, {})
        parts = tuple(fields[column] for column in key.columns if column in fields)
        if len(parts) == len(key.columns) and key.foreign_table in collections:
            name = _unused_name(key.foreign_table, fields)
            former = collections[key.table].fields.get(name)
            fields[name] = reference_field(key.table, name, parts, former)
            constraints[key.table, name] = key
    complete = dict(collections)
    for name, fields in own_fields.items():
        # A collection that has not changed stays the same object.
        if fields != collections[name].fields:
            complete[name] = replace(collections[name], fields=fields)
    return complete, constraints


def _in_order_of_target(key: ForeignKey, target: Collection | None) -> ForeignKey:
    """Return a foreign key whose columns are in the order of the primary key that it points to."""
    if target is None or {*key.foreign_columns} != {*target.key_names}:
        return key
    by_target = dict(zip(key.foreign_columns, key.columns, strict=True))
    columns = tuple(by_target[name] for name in target.key_names)
    return replace(key, columns=columns, foreign_columns=target.key_names)


def _unused_name(table: str, taken: Iterable[str]) -> str:
    names = chain([table], (f"{table}_{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


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
            yield _relation(row, constraints.get(many_side), collections)
    one_fields = _one_fields_of_system()
    for many_side, constraint in constraints.items():
        is_known = constraint.table in collections and constraint.foreign_table in collections
        # A record marked as dropped hides its foreign key too.
        if is_known and many_side not in recorded:
            yield _unrecorded(many_side, constraint, collections, one_fields.get(many_side))
    # The history points to users and collections without foreign keys, because it outlives them.
    for system_name, system in SYSTEM_TABLES.items():
        for column, target in system.references.items():
            if system_name in collections and target in collections:
                one_field = one_fields.get((system_name, column))
                yield Relation(system_name, column, target, one_field)


def _unrecorded(
    many_side: tuple[str, str],
    constraint: ForeignKey,
    collections: Mapping[str, Collection],
    one_field: str | None,
) -> Relation:
    deselect_action = "nullify"
    # Rows that are deleted with the row above them, as operations with their flow, need one.
    if one_field is not None and constraint.on_delete == "CASCADE":
        deselect_action = "delete"
    return Relation(
        *many_side,
        constraint.foreign_table,
        one_field,
        one_deselect_action=deselect_action,
        constraint=constraint,
        key=_target_key(constraint, collections),
    )


def _target_key(
    constraint: ForeignKey | None, collections: Mapping[str, Collection]
) -> Field | None:
    """Return what a foreign key points to, None without one."""
    if constraint is None:
        return None
    target = collections.get(constraint.foreign_table)
    if target is None:
        return None
    if constraint.foreign_columns == target.key_names:
        return target.key
    fields = [target.fields.get(column) for column in constraint.foreign_columns]
    parts = tuple(field for field in fields if field)
    # Internal columns are no fields.
    if len(parts) < len(fields):
        return None
    return parts[0] if len(parts) == 1 else compound_key(target.name, parts)


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


def _relation(
    row: CatalogueRow, constraint: ForeignKey | None, collections: Mapping[str, Collection]
) -> Relation:
    owner = collections[row["many_collection"]]
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
        key=_target_key(constraint, collections),
    )
