"""Indexes of the words in searched texts, as `cms index --words` makes them."""

from __future__ import annotations

from cms.database.connections import Database
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused, invalid_query
from cms.schema import ddl
from cms.schema.model import Catalogue, Collection
from cms.structure.index_builds import load_catalogue
from cms.structure.indexes import DeferredIndex, failed_build, index_build_lock
from cms.structure.search_indexes import word_indexes


def make_word_indexes(database: Database, catalogue: Catalogue, collection: str) -> list[str]:
    """Build the indexes of words that a collection lacks, and return the fields that get one.

    Others write meanwhile. Raises `Refused`: INVALID_QUERY where the collection has no searched
    texts or is not searchable, SERVICE_UNAVAILABLE if a build fails.
    """
    for index in _needed(catalogue, collection):
        index.check_buildable(database)
    made: list[str] = []
    with index_build_lock(database, collection):
        # As it is now: another build may have made some of them while this one waited for the lock.
        for index in _missing(load_catalogue(database), collection):
            try:
                # What a build has left behind whose process was killed.
                index.drop_invalid(database)
                index.build(database)
            except (Refused, Stale) as error:
                words = f"The words of {collection}.{index.column} have no index"
                raise failed_build(words, error) from error
            made.append(index.column)
    return made


def drop_word_indexes(database: Database, catalogue: Catalogue, collection: str) -> list[str]:
    """Drop the indexes of words of a collection, and return their names."""
    _collection(catalogue, collection)
    dropped: list[str] = []
    # No command builds another one meanwhile.
    with index_build_lock(database, collection), database.autocommit_connection() as connection:
        present = _collection(load_catalogue(database), collection)
        for index in word_indexes(present):
            index.drop_invalid(database)
        for field in present.columns:
            if field.column is not None and field.column.word_index is not None:
                connection.execute_ddl(ddl.drop_index(field.column.word_index, concurrently=True))
                dropped.append(field.column.word_index)
        connection.execute(statement("advance_structure"))
    return dropped


def _needed(catalogue: Catalogue, collection: str) -> list[DeferredIndex]:
    needed = word_indexes(_collection(catalogue, collection))
    if not needed:
        raise invalid_query(
            f'"{collection}" has no indexes for searches: set meta.searchable of a collection with '
            "texts that are searched"
        )
    return needed


def _missing(catalogue: Catalogue, collection: str) -> list[DeferredIndex]:
    fields = _collection(catalogue, collection).fields
    missing: list[DeferredIndex] = []
    for index in _needed(catalogue, collection):
        column = fields[index.column].column
        if column is None or column.word_index is None:
            missing.append(index)
    return missing


def _collection(catalogue: Catalogue, name: str) -> Collection:
    collection = catalogue.collections.get(name)
    if collection is None:
        raise invalid_query(f'There is no collection "{name}"')
    return collection
