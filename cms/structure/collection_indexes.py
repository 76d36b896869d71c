"""The indexes that the settings of a collection ask for: for its manual order, and for searches."""

from __future__ import annotations

from cms.database.connections import Transaction
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
from cms.structure.search_indexes import missing_search_indexes, search_indexes, word_indexes
from cms.structure.word_indexes import build_words_later


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
    _drop_useless_words(transaction, collection)
    for field in collection.columns:
        column = field.column
        # An index that serves no search any more would only slow down writes.
        if field.name not in texts and column and column.search_index:
            _drop_beside_builds(transaction, collection, column.search_index)
        if column and column.spoiled_search_index:
            _drop_beside_builds(transaction, collection, column.spoiled_search_index)
    missing = missing_search_indexes(collection, extensions)
    if missing and is_large(transaction, collection.name):
        build_later(transaction, collection.name)
        return
    for index in missing:
        index.create(transaction)


def _drop_useless_words(transaction: Transaction, collection: Collection) -> None:
    """Drop indexes of words of which a text is not searched; what is left gets one in a job."""
    searched = {column for index in word_indexes(collection) for column in index.columns}
    useless: set[str] = set()
    present: set[str] = set()
    for field in collection.columns:
        index = field.column.word_index if field.column else None
        if index is not None:
            (present if field.name in searched else useless).add(index)
    for index in sorted(useless):
        _drop_beside_builds(transaction, collection, index)
    if useless & present:
        build_words_later(transaction, collection.name)


def _drop_beside_builds(transaction: Transaction, collection: Collection, index: str) -> None:
    """Drop an index; to drop any of a table waits for builds of others on it."""
    interrupt_builds(transaction, collection.name)
    transaction.execute_ddl(ddl.drop_index(index))


def drop_search_index(transaction: Transaction, field: Field, *, has_new_type: bool) -> None:
    """Drop the indexes for searches for words and parts of words in a field that are there now.

    What is left of an index of words gets one in a job: other fields, or this one with a new type.
    """
    rows = transaction.read(statement("find_search_indexes"), (field.collection, field.name))
    for index, of_words, is_shared in rows:
        transaction.execute_ddl(ddl.drop_index(index))
        if is_shared or (of_words and has_new_type):
            build_words_later(transaction, field.collection)
