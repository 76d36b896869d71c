"""Indexes of the words in searched texts, as `cms index --words` makes them.

One index has the words of all texts: it finds the rows that have one word in one text and another
in another without a list of all rows with a frequent word. Where a text leaves it, which PostgreSQL
does not have, a job makes one of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from cms.database.connections import Database, Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused, invalid_query
from cms.jobs.task import Job, JobError, PermanentError, defer
from cms.schema.model import Catalogue, Collection
from cms.structure.index_builds import (
    await_running_build,
    load_catalogue,
    load_committed_catalogue,
)
from cms.structure.indexes import DeferredIndex, drop_while_used, failed_build, index_build_lock
from cms.structure.search_indexes import word_indexes

WORD_INDEX_TASK = "word_index_build"
"""The task of the queue that builds the index of words of one collection anew."""


def build_words_later(transaction: Transaction, table: str) -> None:
    """Have a worker build the indexes of words of a table once the transaction is committed."""
    defer(transaction.execute, WORD_INDEX_TASK, {"collection": table})


def run_word_index_job(database: Database, job: Job) -> None:
    """Do a job of the queue; raises `JobError` for a build that failed."""
    catalogue = load_catalogue(database)
    collection = catalogue.collections.get(str(job.payload["collection"]))
    # It may be gone meanwhile, or not be searched any more.
    if collection is None or not word_indexes(collection):
        return
    try:
        check_words_buildable(database, collection)
    except Refused as error:
        raise PermanentError(str(error)) from error
    try:
        make_word_indexes(database, catalogue, collection.name)
    except (Refused, Stale) as error:
        raise JobError(str(error)) from error


def check_words_buildable(database: Database, collection: Collection) -> None:
    """Raise `Refused` INVALID_QUERY where an index is missing, and the table is partitioned."""
    for index in _missing(database, collection.name, word_indexes(collection)):
        index.check_buildable(database)


def make_word_indexes(database: Database, catalogue: Catalogue, collection: str) -> list[str]:
    """Build the indexes of words that a collection lacks, and return the fields that get one.

    Others write meanwhile. Those of other fields are dropped afterwards, such as one without a new
    text, or one of each text, as earlier versions made them. Raises `Refused`: INVALID_QUERY where
    the collection has no searched texts or is not searchable, SERVICE_UNAVAILABLE if a build fails.
    """
    _needed(catalogue, collection)
    check_words_buildable(database, catalogue.collections[collection])
    with index_build_lock(database, collection):
        await_running_build(database, collection)
        return _build_missing(database, collection)


def _build_missing(database: Database, collection: str) -> list[str]:
    """Build until no text lacks an index, and drop all others; the caller holds the lock."""
    made: list[str] = []
    tried: set[DeferredIndex] = set()
    while True:
        # As it is now: another build may have made some of them while this one waited for the lock,
        # and changes of structure that were under way may not have seen those that this one makes.
        needed = _needed_now(load_committed_catalogue(database), collection)
        missing = [index for index in _missing(database, collection, needed) if index not in tried]
        if not missing:
            break
        _build(database, missing[0])
        tried.add(missing[0])
        made += missing[0].columns
    _drop_others(database, collection, needed)
    if not needed:
        # Raises, as the collection is gone or not searched any more.
        _needed(load_catalogue(database), collection)
    return [column for index in needed for column in index.columns if column in made]


def _build(database: Database, index: DeferredIndex) -> None:
    try:
        # What a build has left behind whose process was killed.
        index.drop_invalid(database)
        index.build(database)
    except (Refused, Stale) as error:
        words = f"The words of {index.table}.{index.column} have no index"
        raise failed_build(words, error) from error


def drop_word_indexes(database: Database, catalogue: Catalogue, collection: str) -> list[str]:
    """Drop the indexes of words of a collection, and return their names."""
    _collection(catalogue, collection)
    # No command builds another one meanwhile.
    with index_build_lock(database, collection):
        for index in word_indexes(_collection(load_catalogue(database), collection)):
            index.drop_invalid(database)
        dropped = list(_present(database, collection))
        drop_while_used(database, collection, dropped)
    return dropped


def _needed(catalogue: Catalogue, collection: str) -> list[DeferredIndex]:
    needed = word_indexes(_collection(catalogue, collection))
    if not needed:
        raise invalid_query(
            f'"{collection}" has no indexes for searches: set meta.searchable of a collection with '
            "texts that are searched"
        )
    return needed


def _needed_now(catalogue: Catalogue, name: str) -> list[DeferredIndex]:
    """Return the same; nothing where the collection is gone, or is not searched any more."""
    collection = catalogue.collections.get(name)
    return word_indexes(collection) if collection else []


def _missing(
    database: Database, table: str, needed: Sequence[DeferredIndex]
) -> list[DeferredIndex]:
    present = _present(database, table).values()
    return [index for index in needed if set(index.columns) not in present]


def _drop_others(database: Database, table: str, needed: Sequence[DeferredIndex]) -> None:
    columns = [set(index.columns) for index in needed]
    present = _present(database, table)
    others = [name for name in present if present[name] not in columns]
    if others:
        drop_while_used(database, table, others)


def _present(database: Database, table: str) -> dict[str, set[str]]:
    """Return the indexes of words of a table, and the columns of each."""
    columns: defaultdict[str, set[str]] = defaultdict(set)
    for name, column in database.fetch_primary(statement("find_word_indexes"), (table,)):
        columns[str(name)].add(str(column))
    return columns


def _collection(catalogue: Catalogue, name: str) -> Collection:
    collection = catalogue.collections.get(name)
    if collection is None:
        raise invalid_query(f'There is no collection "{name}"')
    return collection
