"""Which indexes the searches in a collection need."""

from __future__ import annotations

from cms.database.connections import Transaction
from cms.schema.model import Catalogue, Collection, Column, Field, Kind
from cms.schema.types.field_type import IndexKind, Search
from cms.structure.indexes import DeferredIndex, large_tables


def is_searchable(collection: Collection) -> bool:
    """Tell whether searches in a collection have indexes."""
    if collection.kind is not Kind.TABLE or collection.meta is None:
        return False
    return bool(collection.meta.get("searchable"))


def search_indexes(collection: Collection, extensions: frozenset[str]) -> list[DeferredIndex]:
    """Return the indexes that searches in a collection need."""
    if not is_searchable(collection):
        return []
    indexes = []
    for field in collection.columns:
        # No index helps with a value that is searched in its text form.
        if not field.is_searchable or field.type.is_text_form:
            continue
        if field.type.search is not Search.CONTAINED:
            indexes.append(DeferredIndex(collection.name, field.name))
        # Without the extension searches still work, but read the whole table.
        elif "pg_trgm" in extensions:
            indexes.append(_trigram_index(field))
    return indexes


def _trigram_index(field: Field) -> DeferredIndex:
    return DeferredIndex(
        field.collection,
        field.name,
        IndexKind.TRIGRAMS,
        is_nondeterministic=field.column is not None and field.column.is_nondeterministic,
    )


def useless_search_indexes(collection: Collection) -> set[str]:
    """Return the names of indexes for searches that serve none any more."""
    names: set[str] = set()
    for field in collection.columns:
        if field.column is not None and field.column.useless_search_index is not None:
            names.add(field.column.useless_search_index)
    return names


def missing_search_indexes(
    collection: Collection, extensions: frozenset[str]
) -> list[DeferredIndex]:
    """Return the indexes that searches in a collection need and do not have."""
    missing: list[DeferredIndex] = []
    for index in search_indexes(collection, extensions):
        column = collection.fields[index.column].column
        if column is not None and not _is_present(index, column):
            missing.append(index)
    return missing


def _is_present(index: DeferredIndex, column: Column) -> bool:
    if index.kind is IndexKind.TRIGRAMS:
        return column.is_search_indexed
    return column.is_indexed


SLOW_SEARCH_BYTES = 100 * 2**20
"""Size of a table from which a search without an index takes about a second."""


def slow_searches(transaction: Transaction, catalogue: Catalogue) -> list[str]:
    """Return the large collections of which a search reads the whole table."""
    scanned = filter(_is_scanned, catalogue.collections.values())
    names = [collection.name for collection in scanned]
    return large_tables(transaction, names, min_bytes=SLOW_SEARCH_BYTES)


def _is_scanned(collection: Collection) -> bool:
    if collection.kind is not Kind.TABLE or collection.is_system:
        return False
    return any(map(_lacks_search_index, collection.columns))


def _lacks_search_index(field: Field) -> bool:
    """Tell whether a search reads all texts of a field."""
    if not field.is_searchable or field.type.search is not Search.CONTAINED:
        return False
    return field.column is not None and not field.column.is_search_indexed
