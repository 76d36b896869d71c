"""Reads inside the transaction of a write, through the same door as every other: rights apply by themselves."""

from __future__ import annotations

from cms.errors import not_found
from cms.query.ast import VERSION, Query
from cms.store.database import Row, Transaction
from cms.store.nesting import Asked, Planner, parameters, portions_of
from cms.store.reads import Ask, Item, keyed, parse_key, prepared, shown, statement_for
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
    return found.items(fetch_within(store, transaction, scene, Asked(found, literals)))


def read(store: Store, transaction: Transaction, scene: Scene, ask: Ask, *, key: object = None) -> object:
    """Return what a read answers under `data`: of a list, of a singleton, or of the item of a key."""
    if key is None:
        found, literals = prepared(store, scene, ask)
        return shown(scene, ask.collection, found, fetch_within(store, transaction, scene, Asked(found, literals)))
    parsed = parse_key(keyed(scene, ask.collection), key)
    found, literals = prepared(store, scene, ask, keyed=True)
    items = found.items(fetch_within(store, transaction, scene, Asked(found, (*literals, parsed))))
    if not items:
        raise not_found()
    items[0].pop(VERSION, None)
    return items[0]


def fetch_within(store: Store, transaction: Transaction, scene: Scene, asked: Asked) -> list[Row]:
    """Run a statement within a transaction and return its rows."""
    planner = Planner(transaction.execute, transaction.run)
    allowance = transaction.allowance
    values = parameters(store, scene, asked, planner)
    portions = portions_of(store, asked, allowance.bytes_left if allowance else store.max_answer_size)
    return transaction.read(asked.statement.text, values, portions=portions)
