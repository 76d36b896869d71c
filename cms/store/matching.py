"""If-Match: a change of one item by somebody who has seen its present version (decisions, section 5)."""

from __future__ import annotations

from cms.errors import Problem, Refused, not_found
from cms.query import locks
from cms.query.ast import VERSION, Name, Pick, Query, Slot
from cms.schema.model import Collection
from cms.store.database import Transaction
from cms.store.reads import NO_ROW, by_key
from cms.store.store import Scene, Store
from cms.store.within import find
from cms.tags import names_version


def check_match(
    store: Store, transaction: Transaction, scene: Scene, collection: Collection, *, key: str, if_match: str | None
) -> None:
    """Lock an item and compare its version with what an If-Match header names, when there is one.

    The lock stays until the transaction ends, so that of several who name the same version one is let through.
    Raises `Refused`: PRECONDITION_FAILED, and NOT_FOUND for an item that the caller cannot see.
    """
    if if_match is None:
        return
    version = _version(store, transaction, scene, collection, key)
    if version is None:
        raise not_found()
    _compare(collection, if_match, version)


def check_singleton(
    store: Store, transaction: Transaction, scene: Scene, collection: Collection, *, if_match: str | None
) -> None:
    """Compare the version of a singleton as `check_match` does; one without a row, or with a hidden one, has its own.

    Raises `Refused` PRECONDITION_FAILED.
    """
    if if_match is None:
        return
    transaction.run(locks.lock_of(collection))  # nobody else makes the row meanwhile
    rows = transaction.run(locks.first(collection))
    version = _version(store, transaction, scene, collection, str(rows[0][0])) if rows else None
    _compare(collection, if_match, version or NO_ROW)


def _version(store: Store, transaction: Transaction, scene: Scene, collection: Collection, key: str) -> str | None:
    """Lock a row and return its version, None for a row that the caller cannot see."""
    transaction.run(locks.lock_row(collection, key))
    query = by_key(Query(picks=(Pick(VERSION, Name(str(collection.primary_key))),)), Slot(0))
    items = find(store, transaction, scene, collection.name, query, literals=(key,))
    return str(items[0][VERSION]) if items else None


def _compare(collection: Collection, if_match: str, version: str) -> None:
    if not names_version(if_match, version):
        raise Refused(Problem("PRECONDITION_FAILED", "The item has changed since.", {"collection": collection.name}))
