"""Reading statements on the connections of one server: the replica's, or the primary's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import psycopg

from cms.database.error_mapping import cause_of, map_error, mapped_errors
from cms.database.statement_meter import StatementMeter
from cms.database.wire import Call, Chunking, Connection, Row

Borrow = Callable[[], AbstractContextManager[Connection]]


class Reader:
    """Runs reading statements; `borrow` lends a connection for one, `borrow_long` for a stream."""

    def __init__(
        self, borrow: Borrow, *, borrow_long: Borrow, prepare: bool, meter: StatementMeter
    ) -> None:
        self._borrow = borrow
        self._borrow_long = borrow_long
        self._prepare = prepare
        self._meter = meter

    def fetch(
        self, text: str, values: Sequence[object] = (), *, chunking: Chunking | None = None
    ) -> list[Row]:
        """Run one reading statement: one round trip, no BEGIN."""
        try:
            with self._borrow() as connection:
                wire = connection.wire
                try:
                    return wire.run(text, values, prepare=self._prepare, chunking=chunking)
                except psycopg.errors.FeatureNotSupported:
                    # A column has another type than when this connection prepared the statement.
                    # Unprepared it selects the counters, which tell whether the structure has
                    # changed.
                    return wire.run(text, values, prepare=False, chunking=chunking)
        # Without `mapped_errors`: every statement comes here.
        except psycopg.Error as error:
            raise map_error(error) from cause_of(error)

    def fetch_unprepared(
        self, text: str, values: Sequence[object], *, chunking: Chunking | None = None
    ) -> list[Row]:
        """Run one reading statement, planned for its values where a plan for any would be poor."""
        with mapped_errors(), self._borrow() as connection:
            return connection.wire.run(text, values, prepare=False, chunking=chunking)

    def fetch_all(self, calls: Sequence[Call]) -> list[list[Row] | Exception]:
        """Run reading statements in one round trip; return the rows of each, or its error."""
        with mapped_errors(), self._borrow() as connection:
            results = connection.wire.run_all(calls, prepare=self._prepare)
        answers: list[list[Row] | Exception] = []
        for result in results:
            if isinstance(result, psycopg.Error):
                answers.append(map_error(result))
            else:
                answers.append(result)
        return answers

    def stream(self, text: str, values: Sequence[object], *, rows: int) -> Iterator[list[Row]]:
        """Run one reading statement and yield its rows in batches, one in memory at a time.

        Streams last as long as their readers take, and so have connections of their own. Raises
        `Refused` SERVICE_UNAVAILABLE, without waiting, when all of these are in use.
        """
        with (
            mapped_errors(),
            self._borrow_long() as connection,
            connection.transaction(),  # a cursor of the server lives in a transaction
            psycopg.RawServerCursor(connection, "stream") as cursor,
        ):
            with self._meter.measured(text):
                cursor.execute(text, values, binary=True)
            while batch := cursor.fetchmany(rows):
                yield batch
