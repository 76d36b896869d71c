"""Which indexes the searches in a collection need."""

from __future__ import annotations

from cms.database.connections import Transaction
from cms.schema.model import Catalogue, Collection, Column, Field, Kind
from cms.schema.types.field_type import IndexKind, Search
from cms.structure.indexes import DeferredIndex, large_tables


def search_indexes(collection: Collection, extensions: frozenset[str]) -> list[DeferredIndex]:
    """Return the indexes that searches in a collection need."""
    if collection.kind is not Kind.TABLE or not (
        collection.meta and collection.meta.get("searchable")
    ):
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
            indexes.append(DeferredIndex(collection.name, field.name, IndexKind.TRIGRAMS))
    return indexes


def missing_search_indexes(
    collection: Collection, extensions: frozenset[str]
) -> list[DeferredIndex]:
    """Return the indexes that searches in a collection need and do not have."""
    return [
        index
        for index in search_indexes(collection, extensions)
        if not _is_present(index, collection.fields[index.column].column)
    ]


def _is_present(index: DeferredIndex, column: Column | None) -> bool:
    if column is None or index.kind is IndexKind.TRIGRAMS:
        return column is None or column.is_search_indexed
    return column.is_indexed


SLOW_SEARCH_BYTES = 100 * 2**20
"""Size of a table from which a search without an index takes about a second."""


def slow_searches(transaction: Transaction, catalogue: Catalogue) -> list[str]:
    """Return the large collections of which a search reads the whole table."""
    names = [
        collection.name for collection in catalogue.collections.values() if _is_scanned(collection)
    ]
    return large_tables(transaction, names, min_bytes=SLOW_SEARCH_BYTES)


def _is_scanned(collection: Collection) -> bool:
    if collection.kind is not Kind.TABLE or collection.is_system:
        return False
    texts = [field for field in collection.columns if _is_searched_text(field)]
    return any(field.column and not field.column.is_search_indexed for field in texts)


def _is_searched_text(field: Field) -> bool:
    return field.is_searchable and field.type.search is Search.CONTAINED
