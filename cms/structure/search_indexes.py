"""Which indexes the searches in a collection need."""

from __future__ import annotations

from dataclasses import replace

from cms.database.connections import Transaction
from cms.schema.model import Catalogue, Collection, Column, Field, Kind
from cms.schema.types.field_type import IndexKind, Search
from cms.structure.indexes import DeferredIndex, large_tables

MAX_INDEX_COLUMNS = 32
"""How many columns an index of PostgreSQL may have."""


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
            index = DeferredIndex(collection.name, field.name, IndexKind.TRIGRAMS)
            indexes.append(replace(index, nondeterministic=_nondeterministic(collection)))
    return indexes


def _nondeterministic(collection: Collection) -> frozenset[str]:
    return frozenset(
        field.name
        for field in collection.columns
        if field.column is not None and field.column.is_nondeterministic
    )


def searched_texts(collection: Collection) -> list[str]:
    """Return the fields in which searches look for words, with indexes or without."""
    return [
        field.name
        for field in collection.columns
        if field.is_searchable
        and field.type.search is Search.CONTAINED
        and not field.type.is_text_form
    ]


def word_indexes(collection: Collection) -> list[DeferredIndex]:
    """Return the indexes that pages by relevance may have: one of the words of all searched texts.

    More texts than an index has room for have several. Only `cms index` makes them, because not
    everybody sorts by relevance, and writes pay for them.
    """
    if not is_searchable(collection):
        return []
    texts = searched_texts(collection)
    indexes: list[DeferredIndex] = []
    for start in range(0, len(texts), MAX_INDEX_COLUMNS):
        first, *others = texts[start : start + MAX_INDEX_COLUMNS]
        more_columns = tuple(others)
        index = DeferredIndex(collection.name, first, IndexKind.WORDS, more_columns=more_columns)
        indexes.append(replace(index, nondeterministic=_nondeterministic(collection)))
    return indexes


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
