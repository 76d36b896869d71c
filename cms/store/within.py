"""Reads inside the transaction of a write, through the same door as every other: rights apply by themselves."""

from __future__ import annotations

from cms.query.ast import Query
from cms.query.bind import Context, bound
from cms.store.database import Transaction
from cms.store.reads import Item, statement_for
from cms.store.store import Scene, Store


def find(
    store: Store,
    transaction: Transaction,
    scene: Scene,
    collection: str,
    query: Query,
    *,
    literals: tuple[object, ...] = (),
) -> list[Item]:
    """Return the items of a query as the caller may see them, nested parts as ready JSON."""
    found = statement_for(store, scene, collection, query)
    context = Context(literals, scene.actor.user, scene.actor.role)
    return found.items(transaction.execute(found.text, bound(found.values, context)))
