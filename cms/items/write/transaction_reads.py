"""Reads that a write needs.

They use the same statements as all other reads, and so show a caller only what it may see.
"""

from __future__ import annotations

from cms.database.connections import Fetch, Row, Transaction
from cms.errors import not_found
from cms.items.read.prepare import ReadRequest, prepare_read, statement_for
from cms.items.read.reads import Item, data_of, keyed, parse_key
from cms.items.read.row_limits import Estimator, ReadRun, checked_parameters, chunking_for
from cms.query.language.ast import Query, RowOutput
from cms.query.plan.bindings import Bindings, bind_values
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
    statement = statement_for(store, context, collection, query)
    return items_of(store, transaction, context, ReadRun(statement, literals))


def find_unlimited(
    store: Store,
    context: RequestContext,
    fetch: Fetch,
    collection: str,
    query: Query,
    literals: tuple[object, ...],
) -> list[Item]:
    """Return the items of a query that the service itself asks, without the limits of answers."""
    statement = statement_for(store, context, collection, query)
    bindings = Bindings(literals, context.actor.user, context.actor.role)
    return statement.items(fetch(statement.text, bind_values(statement.values, bindings)))


def read(
    store: Store,
    transaction: Transaction,
    context: RequestContext,
    request: ReadRequest,
    *,
    key: object = None,
) -> object:
    """Return the `data` of a read: of a list, of a singleton, or of the item of a key."""
    if key is None:
        statement, literals = prepare_read(store, context, request)
        rows = fetch_within(store, transaction, context, ReadRun(statement, literals))
        return data_of(context, request.collection, statement, rows)
    parsed_key = parse_key(keyed(context, request.collection), key)
    statement, literals = prepare_read(store, context, request, keyed=True)
    run = ReadRun(statement, (*literals, parsed_key))
    items = items_of(store, transaction, context, run)
    if not items:
        raise not_found()
    # The version is for the ETag of an HTTP answer.
    items[0].pop(RowOutput.VERSION, None)
    return items[0]


def items_of(
    store: Store, transaction: Transaction, context: RequestContext, run: ReadRun
) -> list[Item]:
    """Run a statement within a transaction and return its items."""
    return run.statement.items(fetch_within(store, transaction, context, run))


def fetch_within(
    store: Store, transaction: Transaction, context: RequestContext, run: ReadRun
) -> list[Row]:
    """Run a statement within a transaction and return its rows."""
    estimator = Estimator(transaction.execute, transaction.run)
    parameters = checked_parameters(store, context, run, estimator)
    allowance = transaction.allowance
    # The operations of a batch share what one answer may take.
    max_bytes = allowance.bytes_left if allowance else store.max_answer_size
    chunking = chunking_for(store, run, max_bytes)
    return transaction.read(run.statement.text, parameters, chunking=chunking)
