"""If-Match: writes of one item that take place only if it still has the version that was read."""

from __future__ import annotations

from cms.database.connections import single_value
from cms.errors import Problem, Refused, not_found
from cms.etags import matches_version
from cms.items.read.prepare import narrow_to_key
from cms.items.read.reads import NO_ROW_VERSION
from cms.items.write.transaction.executor import Executor
from cms.query.language.ast import Query, RowOutput, Slot
from cms.query.sql import locks
from cms.schema.model import VERSION_COLUMN, Collection


def check_match(
    executor: Executor, collection: Collection, *, key: str, if_match: str | None
) -> None:
    """Lock an item and compare its version with an If-Match header, when there is one.

    The lock stays until the transaction ends, so of several callers who name the same version only
    one can write. Raises `Refused`: PRECONDITION_FAILED, and NOT_FOUND for an item that the caller
    cannot see.
    """
    if if_match is None:
        return
    versions = _versions(executor, collection, key)
    # Not PRECONDITION_FAILED, which would reveal that a hidden item exists.
    if not versions:
        raise not_found()
    _compare(collection, if_match, versions[0])


def check_singleton(executor: Executor, collection: Collection, *, if_match: str | None) -> None:
    """Compare the version of a singleton as `check_match` does.

    A singleton without a row, or with a row that is hidden from the caller, has the version
    `NO_ROW_VERSION`. Raises `Refused` PRECONDITION_FAILED.
    """
    if if_match is None:
        return
    # There may be no row to lock: this lock keeps others from creating it.
    executor.transaction.run(locks.lock_collection(collection))
    rows = executor.transaction.run(locks.singleton_key(collection))
    versions: list[str | None] = []
    if rows:
        versions = _versions(executor, collection, str(single_value(rows)))
    _compare(collection, if_match, versions[0] if versions else NO_ROW_VERSION)


def _versions(executor: Executor, collection: Collection, key: str) -> list[str | None]:
    """Lock a row and return its version; nothing for a row that the caller cannot see.

    The version is None if rows of the collection have none.
    """
    # Locked before it is read, so that nobody changes the version in between.
    executor.transaction.run(locks.lock_row(collection, key))
    query = narrow_to_key(Query(), Slot(0))
    if collection.has_versions:
        return [*executor.read_row_texts(RowOutput.VERSION, collection.name, query, (key,))]
    keys = executor.read_row_texts(RowOutput.KEY, collection.name, query, (key,))
    return [None for _ in keys]


def _compare(collection: Collection, if_match: str, version: str | None) -> None:
    if matches_version(if_match, version):
        return
    message = "The item has changed since."
    if version is None:
        message = f'The rows of a view have a version only in a column "{VERSION_COLUMN}".'
    raise Refused(Problem("PRECONDITION_FAILED", message, {"collection": collection.name}))
