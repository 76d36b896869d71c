"""What tables need that is built in the background, and which of it they lack."""

from __future__ import annotations

from cms.schema.model import Catalogue, ConstraintRequest
from cms.structure.foreign_key_checks import DeferredForeignKey
from cms.structure.indexes import DeferredIndex
from cms.structure.search_indexes import missing_search_indexes, search_indexes

Build = DeferredIndex | DeferredForeignKey
"""What a table lacks."""


def needed_builds(catalogue: Catalogue, table: str) -> set[Build]:
    """Return what a table should have, whether it has it or not."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return set()
    return {
        *requested_indexes(catalogue, table),
        *_constraints(catalogue, table),
        *search_indexes(collection, catalogue.extensions),
    }


def requested_indexes(catalogue: Catalogue, table: str) -> list[DeferredIndex]:
    """Return the indexes over the values of fields that were asked for."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    indexes: list[DeferredIndex] = []
    for field in collection.columns:
        if field.column is not None and field.column.is_index_requested:
            indexes.append(DeferredIndex(table, field.name, field.type.index_kind))
    return indexes


def _constraints(catalogue: Catalogue, table: str) -> list[Build]:
    """Return what is needed for the constraints that were asked for, but for violated ones."""
    builds: list[Build] = []
    for field in catalogue.collections[table].columns:
        if field.column is None:
            continue
        if field.column.unique_request is ConstraintRequest.PENDING:
            builds.append(DeferredIndex(table, field.name, is_unique=True))
        if field.column.foreign_key_request is ConstraintRequest.PENDING:
            builds.append(DeferredForeignKey(table, field.name))
    return builds


def missing_builds(catalogue: Catalogue, table: str) -> list[Build]:
    """Return what a table should have and does not, each once."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    built = built_columns(catalogue, table)
    requested = [
        index for index in requested_indexes(catalogue, table) if index.column not in built
    ]
    searched = missing_search_indexes(collection, catalogue.extensions)
    return list(dict.fromkeys([*requested, *searched, *_constraints(catalogue, table)]))


def built_columns(catalogue: Catalogue, table: str) -> list[str]:
    """Return the columns whose indexes were asked for and are there."""
    columns: list[str] = []
    for index in requested_indexes(catalogue, table):
        column = catalogue.collections[table].fields[index.column].column
        if column is not None and column.is_indexed:
            columns.append(column.name)
    return columns


def met_indexes(catalogue: Catalogue, table: str) -> list[DeferredIndex]:
    """Return the indexes that were asked for of columns that seem to have them."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return []
    built = built_columns(catalogue, table)
    indexes = [index for index in requested_indexes(catalogue, table) if index.column in built]
    for field in collection.columns:
        if field.column and field.column.unique_request and field.column.is_unique:
            indexes.append(DeferredIndex(table, field.name, is_unique=True))
    return indexes


def has_met_foreign_key(catalogue: Catalogue, table: str) -> bool:
    """Tell whether a request is left for the check of a foreign key that is checked or gone."""
    collection = catalogue.collections.get(table)
    if collection is None:
        return False
    columns = [field.column for field in collection.columns if field.column is not None]
    return any(
        column.foreign_key_request is not None and not column.has_unchecked_key
        for column in columns
    )
