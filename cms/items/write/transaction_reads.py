"""Reads inside the transaction of a write, through the same door as every other: rights apply by themselves."""

from __future__ import annotations

from cms.database.connections import Row, Transaction
from cms.errors import not_found
from cms.items.read.prepare import ReadRequest, prepare_read, statement_for
from cms.items.read.reads import Item, data_of, keyed, parse_key
from cms.items.read.row_limits import Estimator, ReadRun, checked_parameters, chunking_for
from cms.query.language.ast import INTERNAL_VERSION, Query
from cms.store.context import RequestContext
from cms.store.store import Store


def find(
    store: Store,
    transaction: Transaction,
    context: RequestContext,
    collection: str,
    query: Query,
    *,
    literals: tuple[object, ...] = (),
) -> list[Item]:
    """Return the items of a query as the caller may see them, nested parts as ready JSON."""
    found = statement_for(store, context, collection, query)
    return found.items(fetch_within(store, transaction, context, ReadRun(found, literals)))


def read(
    store: Store,
    transaction: Transaction,
    context: RequestContext,
    request: ReadRequest,
    *,
    key: object = None,
) -> object:
    """Return what a read answers under `data`: of a list, of a singleton, or of the item of a key."""
    if key is None:
        found, literals = prepare_read(store, context, request)
        return data_of(
            context,
            request.collection,
            found,
            fetch_within(store, transaction, context, ReadRun(found, literals)),
        )
    parsed = parse_key(keyed(context, request.collection), key)
    found, literals = prepare_read(store, context, request, keyed=True)
    items = found.items(
        fetch_within(store, transaction, context, ReadRun(found, (*literals, parsed)))
    )
    if not items:
        raise not_found()
    items[0].pop(INTERNAL_VERSION, None)
    return items[0]


def fetch_within(
    store: Store, transaction: Transaction, context: RequestContext, asked: ReadRun
) -> list[Row]:
    """Run a statement within a transaction and return its rows."""
    estimator = Estimator(transaction.execute, transaction.run)
    allowance = transaction.allowance
    values = checked_parameters(store, context, asked, estimator)
    chunking = chunking_for(
        store, asked, allowance.bytes_left if allowance else store.max_answer_size
    )
    return transaction.read(asked.statement.text, values, chunking=chunking)
