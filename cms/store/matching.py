"""If-Match: a change of one item by somebody who has seen its present version (decisions, section 5)."""

from __future__ import annotations

from cms.errors import Problem, Refused, not_found
from cms.query import locks
from cms.query.ast import VERSION, Name, Pick, Query, Slot
from cms.schema.model import Collection
from cms.store.database import Transaction
from cms.store.reads import by_key
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
    transaction.run(locks.lock_row(collection, key))
    name = str(collection.primary_key)
    query = by_key(Query(picks=(Pick(VERSION, Name(name)),)), Slot(0))
    items = find(store, transaction, scene, collection.name, query, literals=(key,))
    if not items:
        raise not_found()
    if not names_version(if_match, items[0][VERSION]):
        raise Refused(Problem("PRECONDITION_FAILED", "The item has changed since.", {"collection": collection.name}))
