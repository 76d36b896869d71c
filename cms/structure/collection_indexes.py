"""The indexes that the settings of a collection ask for: for its manual order, and for searches."""

from __future__ import annotations

from cms.database.connections import Transaction, single_values
from cms.database.statements import statement
from cms.schema import ddl
from cms.schema.model import Collection, Field, Kind
from cms.schema.types.field_type import IndexKind
from cms.structure.index_requests import (
    build_later,
    ensure_index,
    interrupt_builds,
)
from cms.structure.indexes import is_large
from cms.structure.search_indexes import (
    missing_search_indexes,
    search_indexes,
    useless_search_indexes,
)


def update_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Create the indexes that a collection needs for its manual order and its searches."""
    field = collection.fields.get(collection.sort_field or "")
    column = field.column if field and collection.kind is Kind.TABLE else None
    # These have an index already.
    if field and column and not column.is_unique and not column.is_primary_key:
        ensure_index(transaction, collection.name, column, field.type.index_kind)
    update_search_indexes(transaction, collection, extensions)


def update_search_indexes(
    transaction: Transaction, collection: Collection, extensions: frozenset[str]
) -> None:
    """Create the indexes for searches in a collection, or drop them if it is not searchable.

    All searched fields get one: a search looks for a word in any of them, and so a single field
    without an index makes it scan the table. Those of a large table are built in the background.
    """
    if collection.kind is not Kind.TABLE:
        return
    needed = search_indexes(collection, extensions)
    texts = {index.column for index in needed if index.kind is IndexKind.TRIGRAMS}
    # An index that serves no search any more would only slow down writes.
    useless = useless_search_indexes(collection)
    for field in collection.columns:
        if field.name not in texts and field.column and field.column.search_index:
            useless.add(field.column.search_index)
    for name in sorted(useless):
        _drop_beside_builds(transaction, collection, name)
    missing = missing_search_indexes(collection, extensions)
    if missing and is_large(transaction, collection.name):
        build_later(transaction, collection.name)
        return
    for index in missing:
        index.create(transaction)


def _drop_beside_builds(transaction: Transaction, collection: Collection, index: str) -> None:
    """Drop an index; to drop any of a table waits for builds of others on it."""
    interrupt_builds(transaction, collection.name)
    transaction.execute_ddl(ddl.drop_index(index))


def drop_search_indexes(transaction: Transaction, field: Field) -> None:
    """Drop the indexes for searches in a field that are there now."""
    rows = transaction.read(statement("find_search_indexes"), (field.collection, field.name))
    for index in single_values(rows):
        transaction.execute_ddl(ddl.drop_index(index))
