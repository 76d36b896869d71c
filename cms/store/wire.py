"""Statements straight to libpq: prepared once for a connection, with parameters as text and rows in the binary form.

psycopg does the same behind `Connection.execute`, but takes every parameter and every statement apart anew: for the
short statements of this service that costs more than PostgreSQL itself.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from cms.query.arrays import array

STATEMENTS_KEPT = 500

Row = tuple[Any, ...]


class Connection(psycopg.Connection[Row]):
    """A connection with the names of the statements that it has prepared."""

    wire: Wire


class Wire:
    """Runs statements on one connection, which one thread at a time has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = Transformer(connection)
        self._names: dict[str, bytes] = {}
        self._made = 0

    def run(
        self, text: str, values: Sequence[object], *, prepare: bool, meanwhile: Callable[[], None] | None = None
    ) -> list[Row]:
        """Run a statement and return its rows, none when it has no result; raises `psycopg.Error`.

        `meanwhile` is called while PostgreSQL works.
        """
        parameters: list[Any] = [_text(value) for value in values]
        pgconn = self._connection.pgconn
        name = (self._names.get(text) or self._prepare(text)) if prepare else None
        if meanwhile:
            if name:
                pgconn.send_query_prepared(name, parameters, None, Format.BINARY)
            else:
                pgconn.send_query_params(text.encode(), parameters, None, None, Format.BINARY)
            result = self._awaited(meanwhile)
        elif name:
            result = pgconn.exec_prepared(name, parameters, None, Format.BINARY)
        else:
            result = pgconn.exec_params(text.encode(), parameters, None, None, Format.BINARY)
        if result.status == ExecStatus.TUPLES_OK:
            self._reader.set_pgresult(result)
            return self._reader.load_rows(0, result.ntuples, tuple)
        if result.status != ExecStatus.COMMAND_OK:
            self._names.pop(text, None)  # its plan may be what is wrong: a column has another type than it had
            raise self._error(result)
        return []

    def _awaited(self, meanwhile: Callable[[], None]) -> PGresult:
        """Return the result of what was sent, once something else is done."""
        self._pass(select.POLLIN | select.POLLOUT, self._connection.pgconn.flush)
        try:
            meanwhile()
        finally:
            results = list(self._results())  # whatever has happened: libpq wants them taken to their end
        return results[0]

    def _results(self) -> Iterator[PGresult]:
        pgconn = self._connection.pgconn
        while True:
            self._pass(select.POLLIN, pgconn.is_busy)
            found = pgconn.get_result()
            if found is None:
                return
            yield found

    def _pass(self, events: int, lasts: Callable[[], int]) -> None:
        """Pass the time while something lasts, with an ear for the server; other threads run meanwhile."""
        pgconn, poll = self._connection.pgconn, select.poll()
        poll.register(pgconn.socket, events)
        while lasts():
            if any(found & ~select.POLLOUT for _, found in poll.poll()):
                pgconn.consume_input()

    def _prepare(self, text: str) -> bytes:
        if len(self._names) >= STATEMENTS_KEPT:
            self._forget(next(iter(self._names)))
        self._made += 1
        name = b"s%d" % self._made
        result = self._connection.pgconn.prepare(name, text.encode())
        if result.status != ExecStatus.COMMAND_OK:
            raise self._error(result)
        self._names[text] = name
        return name

    def _forget(self, text: str) -> None:
        self._connection.pgconn.exec_(b"DEALLOCATE " + self._names.pop(text))

    def _error(self, result: PGresult) -> psycopg.Error:
        if self._connection.pgconn.status != ConnStatus.OK and result.error_field(DiagnosticField.SQLSTATE) is None:
            return psycopg.OperationalError("the connection is lost")
        return psycopg.errors.error_from_result(result, encoding="utf-8")


def _text(value: object) -> bytes | None:
    """Return a parameter as PostgreSQL reads it; every statement says of which type it is."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case bool():
            return b"true" if value else b"false"
        case int():
            return b"%d" % value
        case bytes():
            return b"\\x" + value.hex().encode()
        case list() | tuple():
            return array([None if item is None else str(item) for item in value]).encode()
        case _:
            return str(value).encode()
