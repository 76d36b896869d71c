"""Runs statements in the transaction of a write."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from cms.database.connections import Row, Transaction
from cms.database.error_mapping import Conflict
from cms.errors import answer_too_large, not_found
from cms.fragment import Fragment
from cms.items.read.prepare import ReadRequest, prepare_read, statement_for
from cms.items.read.reads import Item, data_of, portions_of, prepare_item_read, with_summed_fields
from cms.query.language.ast import OperatorTest, ParsedQuery, Query, RowOutput, Slot
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql.statement import Statement
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.fetching import cached_statement, fetch_statement
from cms.store.identity import ClientInfo
from cms.store.snapshot import CachedStatement
from cms.store.store import Store


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs the statements of a write in its transaction, for its caller.

    Reads use the same statements as all other reads, and so show a caller only what it may see.
    `history_action` is what the history calls the write, None for create, update or delete.
    `while_waiting` is called while the database writes: an import parses its next batch then.
    """

    store: Store
    context: RequestContext
    transaction: Transaction
    client: ClientInfo
    history_action: str | None = None
    while_waiting: Callable[[], None] | None = None

    # Reads

    def read(
        self,
        collection: str,
        query: Query,
        literals: Sequence[object] = (),
        *,
        row_count: int | None = None,
    ) -> list[Item]:
        """Return the items of a query as the caller may see them, nested parts as ready JSON.

        `row_count` is their number where it is known.
        """
        statement = statement_for(self.store, self.context, collection, query)
        return statement.items(self._fetch(statement, literals, row_count=row_count))

    def read_by_key(
        self,
        collection: str,
        query: Query,
        literals: Sequence[object],
        *,
        row_count: int | None = None,
        of_one_item: bool = False,
    ) -> dict[str, Item]:
        """Return what `read` returns, each item under its primary key."""
        # An output of its own: the caller may not have asked for the key, or under another name.
        query = replace(query, row_outputs=(RowOutput.KEY,))
        statement = statement_for(
            self.store, self.context, collection, query, of_one_item=of_one_item
        )
        return statement.items_by_key(self._fetch(statement, literals, row_count=row_count))

    def read_answer(self, collection: str, parsed: ParsedQuery, keys: Sequence[str]) -> list[Item]:
        """Return the items of keys in their order, shaped by a query; hidden ones are left out.

        Filter, sort and page of the query are for lists: here they would hide items.
        """
        operand: object = tuple(keys)
        if parsed.of_one_item:
            (operand,) = keys
        literals = (*parsed.literals, operand)
        by_key = self.read_by_key(
            collection,
            _answer_query(parsed),
            literals,
            row_count=len(keys),
            of_one_item=parsed.of_one_item,
        )
        return [by_key[key] for key in keys if key in by_key]

    def require_possible_answer(self, collection: str, parsed: ParsedQuery, count: int) -> None:
        """Raise `Refused` where `read_answer` of so many items is too large whatever they hold."""
        query = replace(_answer_query(parsed), row_outputs=(RowOutput.KEY,))
        statement = statement_for(
            self.store, self.context, collection, query, of_one_item=parsed.of_one_item
        )
        if statement.least_size(count) > self.store.max_answer_size:
            raise answer_too_large(self.store.max_answer_size)

    def readable_keys(self, collection: str, keys: Sequence[str]) -> frozenset[str]:
        """Return those keys whose items the caller can read."""
        query = Query(key_test=OperatorTest("_in", (Slot(0),)))
        return frozenset(self.read_row_texts(RowOutput.KEY, collection, query, (tuple(keys),)))

    def read_row_texts(
        self, output: RowOutput, collection: str, query: Query, literals: Sequence[object]
    ) -> list[str]:
        """Return one output of each row that a query selects, such as its key or its version."""
        query = replace(query, picks=(), row_outputs=(output,))
        statement = statement_for(self.store, self.context, collection, query)
        return statement.row_texts(output, self._fetch(statement, literals))

    def read_unlimited(
        self, collection: str, query: Query, literals: Sequence[object]
    ) -> dict[str, Item]:
        """Return the items of a query that the service itself makes, each under its primary key.

        The caller's permissions apply. The limits of answers do not: nothing of it is answered.
        """
        query = replace(query, row_outputs=(RowOutput.KEY,))
        statement = statement_for(self.store, self.context, collection, query)
        bindings = self.context.bindings(literals)
        return statement.items_by_key(
            fetch_statement(self.transaction.execute, statement, bindings)
        )

    def answer(self, request: ReadRequest, *, key: object = None) -> object:
        """Return the `data` of a read: of a list, of a singleton, or of the item of a key."""
        # No key was named: batches.py refuses null.
        if key is None:
            statement, literals = prepare_read(self.store, self.context, request)
            rows = self._fetch(statement, literals)
            return data_of(statement, rows)
        statement, literals = prepare_item_read(self.store, self.context, request, key=key)
        items = statement.items(self._fetch(statement, literals))
        if not items:
            raise not_found()
        return items[0]

    def _fetch(
        self, statement: Statement, literals: Sequence[object], *, row_count: int | None = None
    ) -> list[Row]:
        values = bind_values(statement.values, self.context.bindings(literals))
        allowance = self.transaction.allowance
        # The operations of a batch share what one answer may take.
        max_bytes = allowance.bytes_left if allowance else self.store.max_answer_size
        chunking = portions_of(self.store, statement, max_bytes=max_bytes, row_count=row_count)
        try:
            return self.transaction.read(statement.text, values, chunking=chunking)
        except Conflict as conflict:
            raise with_summed_fields(conflict, statement) from conflict

    # Writes

    def run_cached(
        self,
        cache_key: Hashable,
        make_fragment: Callable[[], Fragment],
        values: Sequence[object],
        *,
        collection: Collection | None = None,
    ) -> list[Row]:
        """Run a statement of a write, which is printed once for each `cache_key`.

        Its arguments are the author of the write, for the history, and then `values`. It is printed
        of the key and the `collection` alone; without one it may be of all of the structure.
        """
        cached = cached_statement(self.store, self.context.snapshot, cache_key)
        if cached is None:
            cached = number_parameters(make_fragment())
            looked_up = {collection.name} if collection else None
            statements = self.context.snapshot.write_statements
            statements[cache_key] = CachedStatement(cached, looked_up)
        literals = [*self.client.author(self.context.actor.user), *values]
        return self.transaction.execute(
            cached.text,
            bind_values(cached.values, Bindings(literals)),
            while_waiting=self.while_waiting,
        )


def _answer_query(parsed: ParsedQuery) -> Query:
    """Return the query of the items of keys, which are its last literal, shaped by another one."""
    operator = "_eq" if parsed.of_one_item else "_in"
    return Query(
        picks=parsed.query.picks,
        deep=parsed.query.deep,
        checked_only=parsed.query.checked_only,
        key_test=OperatorTest(operator, (Slot(len(parsed.literals)),)),
    )


def fetch_unlimited(
    store: Store,
    context: RequestContext,
    collection: str,
    query: Query,
    literals: Sequence[object],
) -> list[Item]:
    """Return the items of a query, fetched where the context fetches, without limits of answers."""
    statement = statement_for(store, context, collection, query)
    return statement.items(fetch_statement(context.fetch, statement, context.bindings(literals)))


def number_parameters(fragment: Fragment) -> Statement:
    """Return a statement that answers no items, for the cache of statements."""
    text, values = fragment.numbered()
    return Statement(text, values, (), ())
