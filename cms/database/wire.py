"""Statements sent straight to libpq, prepared once for each connection.

Parameters go as text, rows come in binary. psycopg does the same behind `Connection.execute`, but
analyses every parameter and every statement anew: for the short statements of this service that
takes longer than PostgreSQL itself.
"""

from __future__ import annotations

import select
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from cms import jsontext
from cms.database.statement_meter import StatementMeter
from cms.database.text_parameters import parameter_texts
from cms.errors import Refused, answer_too_large
from cms.processes.memory import note_memory_use
from cms.processes.polled_descriptor import PolledDescriptor

MAX_PREPARED_STATEMENTS = 500
"""For each connection."""

_INVALID_PLAN_CODES = (
    b"0A000",  # FEATURE NOT SUPPORTED: a column has another type than in the plan
    b"26000",  # INVALID SQL STATEMENT NAME: the server no longer knows the prepared statement
)

_READ_ONLY_CODE = b"25006"

LARGE_ROW_BYTES = 4 * 2**20
"""Bytes of a row for which libpq keeps so much memory that the connection is better closed."""

_ROWS = (ExecStatus.TUPLES_OK, ExecStatus.TUPLES_CHUNK, ExecStatus.SINGLE_TUPLE)
_HAS_CHUNKED_ROWS = psycopg.capabilities.has_stream_chunked()
"""Whether libpq returns rows in portions: before its version 17 it returns one row, or all."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chunking:
    """How rows are fetched that may be too large: so many at a time, until they have `max_bytes`.

    `limit` is the size that the refusal names. It is the limit of the whole answer, of which other
    operations of a batch may have used a part.
    """

    rows: int
    max_bytes: int
    limit: int


class Call(NamedTuple):
    """A statement with the values of its parameters."""

    text: str
    values: Sequence[object]


class Connection(psycopg.Connection[Row]):
    """A connection with the `Wire` that runs its statements."""

    wire: Wire


class Epoch(NamedTuple):
    """The time between two changes of the structure, in which prepared statements hold.

    Of those that were prepared in the epoch before, the ones in `kept` may be used again.
    """

    number: int = 0
    kept: Set[str] = frozenset()


class Epochs:
    """The present epoch of all connections, which is replaced as a whole."""

    def __init__(self) -> None:
        self.present = Epoch()

    def begin(self, kept: Set[str] = frozenset()) -> None:
        """Begin the next one; `kept` are texts of statements that the change does not concern."""
        self.present = Epoch(self.present.number + 1, kept)


class Wire:
    """Runs statements on one connection, which one thread at a time uses.

    A plan takes up to a megabyte of the server's memory. So the wire deallocates prepared
    statements at its first use in a new epoch, but for those that the epoch keeps, and beyond
    `MAX_PREPARED_STATEMENTS` those that were used longest ago.
    """

    def __init__(self, connection: Connection, epochs: Epochs, meter: StatementMeter) -> None:
        self._connection = connection
        self._meter = meter
        self._reader = Transformer(connection)
        # A server sends nothing to an idle connection: if it is readable, the server has closed it.
        polled = PolledDescriptor(connection.fileno(), select.POLLIN)
        self.is_closed_by_server = polled.is_ready
        """Tells, without a round trip, whether the server has closed the connection."""
        # The text of a statement and its name on the server; the one used longest ago is first.
        self._names: OrderedDict[str, bytes] = OrderedDict()
        self._prepared_count = 0
        self._epochs = epochs
        self._prepared_in: int | None = epochs.present.number
        """The epoch of the prepared statements; None when all must be prepared anew."""
        self.is_oversized = False
        """Whether a row of `LARGE_ROW_BYTES` came through this connection."""
        self.is_read_only = False
        """Whether the server has refused a write, as a replica does."""

    def run(
        self,
        text: str,
        values: Sequence[object],
        *,
        prepare: bool,
        while_waiting: Callable[[], None] | None = None,
        chunking: Chunking | None = None,
    ) -> list[Row]:
        """Run a statement and return its rows, none when it has no result; raises `psycopg.Error`.

        `while_waiting` is called while PostgreSQL works. With `chunking` the rows are taken in
        portions, as they may be too many.
        """
        began = time.perf_counter()
        # Without `measured`: every statement comes here.
        try:
            if chunking:
                rows = self._run_in_chunks(text, values, chunking, prepare=prepare)
            else:
                rows = self._run(text, values, prepare=prepare, while_waiting=while_waiting)
        except BaseException as error:
            self._meter.note((text,), time.perf_counter() - began, error)
            raise
        self._meter.note((text,), time.perf_counter() - began)
        return rows

    def _run(
        self,
        text: str,
        values: Sequence[object],
        *,
        prepare: bool,
        while_waiting: Callable[[], None] | None,
    ) -> list[Row]:
        parameters = parameter_texts(values)
        pgconn = self._connection.pgconn
        name = self._name(text) if prepare else None
        # Only a call with something to do meanwhile is sent without waiting: libpq's own waiting
        # takes fewer calls than ours.
        if while_waiting:
            if name:
                pgconn.send_query_prepared(name, parameters, None, Format.BINARY)
            else:
                pgconn.send_query_params(text.encode(), parameters, None, None, Format.BINARY)
            result = self._result_after(while_waiting)
        elif name:
            result = pgconn.exec_prepared(name, parameters, None, Format.BINARY)
        else:
            result = pgconn.exec_params(text.encode(), parameters, None, None, Format.BINARY)
        if result.status == ExecStatus.COMMAND_OK:
            return []
        if result.status != ExecStatus.TUPLES_OK:
            raise self._failure(result)
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def run_all(self, calls: Sequence[Call], *, prepare: bool) -> list[list[Row] | psycopg.Error]:
        """Run statements in one round trip; return the rows of each, or its error.

        Each statement is a transaction of its own: an error leaves the others as they are.
        """
        with self._meter.measured(*(call.text for call in calls)):
            return self._run_pipeline(calls, prepare=prepare)

    def _run_pipeline(
        self, calls: Sequence[Call], *, prepare: bool
    ) -> list[list[Row] | psycopg.Error]:
        # A pipeline cannot wait for a statement to be prepared.
        names: list[bytes | None] = [None] * len(calls)
        if prepare:
            names = [self._name(call.text) for call in calls]
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        # A blocked sender would never read the results that the server must send before it reads
        # on.
        pgconn.nonblocking = 1
        try:
            for call, name in zip(calls, names, strict=True):
                self._send(call, name)
                pgconn.pipeline_sync()
            self._wait_while(select.POLLIN | select.POLLOUT, pgconn.flush)
            return [self._pipeline_rows() for _ in calls]
        finally:
            pgconn.nonblocking = 0
            # Raises in the midst of a pipeline, whose connection the pool then throws away.
            with suppress(psycopg.Error):
                pgconn.exit_pipeline_mode()

    def _send(self, call: Call, name: bytes | None) -> None:
        parameters = parameter_texts(call.values)
        pgconn = self._connection.pgconn
        if name:
            pgconn.send_query_prepared(name, parameters, None, Format.BINARY)
        else:
            pgconn.send_query_params(call.text.encode(), parameters, None, None, Format.BINARY)

    def _pipeline_rows(self) -> list[Row] | psycopg.Error:
        """Return the rows of the next statement of a pipeline, or its error."""
        pgconn = self._connection.pgconn
        rows: list[Row] = []
        error: psycopg.Error | None = None
        while True:
            self._wait_while(select.POLLIN, pgconn.is_busy)
            result = pgconn.get_result()
            # libpq returns None between statements, for some versions twice.
            if result is None:
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                return error or rows
            # In portions, if the connection took those of an earlier statement so.
            if result.status in _ROWS:
                self._reader.set_pgresult(result)
                rows += self._reader.load_rows(0, result.ntuples, tuple)
            elif result.status != ExecStatus.COMMAND_OK:
                error = self._failure(result)

    def _run_in_chunks(
        self, text: str, values: Sequence[object], chunking: Chunking, *, prepare: bool
    ) -> list[Row]:
        """Run a statement as `run` does; raises `Refused` once its rows are too large.

        PostgreSQL is then told to stop.
        """
        parameters = parameter_texts(values)
        pgconn = self._connection.pgconn
        if prepare:
            pgconn.send_query_prepared(self._name(text), parameters, None, Format.BINARY)
        else:
            pgconn.send_query_params(text.encode(), parameters, None, None, Format.BINARY)
        # libpq takes the mode between the sending of a statement and its first result only.
        _set_chunk_rows(pgconn, chunking.rows)
        self._wait_while(select.POLLIN | select.POLLOUT, pgconn.flush)
        results = self._results()
        try:
            return self._collect(results, chunking)
        except Refused:
            # If the request to stop fails, the other rows come and are thrown away.
            with suppress(psycopg.Error):
                pgconn.get_cancel().cancel()
            raise
        finally:
            # libpq takes no other statement before all results are fetched.
            for _ in results:
                pass

    def _collect(self, results: Iterator[PGresult], chunking: Chunking) -> list[Row]:
        rows: list[Row] = []
        size = 0
        for result in results:
            if result.status not in _ROWS:
                raise self._failure(result)
            portion = []
            # A single row may be so large that it is measured before its values are in memory.
            # Several rows together are measured as the JSON that they become.
            if chunking.rows == 1:
                size += self._row_bytes(result)
            if size <= chunking.max_bytes:
                self._reader.set_pgresult(result)
                portion = self._reader.load_rows(0, result.ntuples, tuple)
            if chunking.rows > 1:
                size += len(jsontext.dumps(portion))
            if size > chunking.max_bytes:
                # The rows so far are given up here, and nobody else knows how large they were.
                note_memory_use(size)
                raise answer_too_large(chunking.limit)
            rows += portion
        return rows

    def _row_bytes(self, result: PGresult) -> int:
        """Return the bytes of one row without making all of its values at once."""
        columns = range(result.nfields) if result.ntuples else ()
        width = sum(len(result.get_value(0, column) or b"") for column in columns)
        self.is_oversized |= width > LARGE_ROW_BYTES
        return width

    def is_answered(self, *, seconds: float) -> bool:
        """Tell whether the server sends anything within some seconds."""
        poll = select.poll()
        poll.register(self._connection.pgconn.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _result_after(self, while_waiting: Callable[[], None]) -> PGresult:
        """Return the result of the statement that was sent, after calling `while_waiting`."""
        self._wait_while(select.POLLIN | select.POLLOUT, self._connection.pgconn.flush)
        try:
            while_waiting()
        finally:
            # After an error as well: libpq takes no other statement before all results are fetched.
            results = list(self._results())
        # Without a pipeline, a statement that was sent by itself has exactly one result.
        return results[0]

    def _results(self) -> Iterator[PGresult]:
        pgconn = self._connection.pgconn
        while True:
            self._wait_while(select.POLLIN, pgconn.is_busy)
            result = pgconn.get_result()
            if result is None:
                return
            yield result

    def _wait_while(self, events: int, is_waiting: Callable[[], int]) -> None:
        """Wait for the server as long as `is_waiting` says; other threads run meanwhile.

        A thread of an executor that waits in libpq would take twice as long for a round trip.
        """
        pgconn = self._connection.pgconn
        poll = select.poll()
        poll.register(pgconn.socket, events)
        while is_waiting():
            # One event at most. If the socket takes more, libpq writes; all else is to be read.
            for _, event in poll.poll():
                if event & ~select.POLLOUT:
                    pgconn.consume_input()

    def _name(self, text: str) -> bytes:
        """Return the name of a prepared statement; prepares it at its first use."""
        if self._prepared_in != self._epochs.present.number:
            self._begin_epoch()
        name = self._names.get(text)
        if name is None:
            return self._prepare(text)
        self._names.move_to_end(text)
        return name

    def _prepare(self, text: str) -> bytes:
        self._prepared_count += 1
        name = b"s%d" % self._prepared_count
        result = self._connection.pgconn.prepare(name, text.encode())
        if result.status != ExecStatus.COMMAND_OK:
            raise self._error(result)
        self._names[text] = name
        if len(self._names) > MAX_PREPARED_STATEMENTS:
            self._deallocate_oldest()
        return name

    def _begin_epoch(self) -> None:
        """Deallocate statements that are hardly used again, or all if all must be prepared anew."""
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            return  # a failed transaction takes no statement
        epoch = self._epochs.present
        # If this connection has missed an epoch, the statements that it kept are not known here.
        kept = epoch.kept if self._prepared_in == epoch.number - 1 else frozenset()
        self._prepared_in = epoch.number
        dropped = [text for text in self._names if text not in kept]
        # The count goes on, so that a name never stands for two statements.
        if len(dropped) == len(self._names):
            self._names.clear()
            self._connection.pgconn.exec_(b"DEALLOCATE ALL")
        elif dropped:
            self._deallocate([self._names.pop(text) for text in dropped])

    def _deallocate_oldest(self) -> None:
        """Deallocate a sixteenth of the statements at once: each time takes a round trip."""
        count = max(MAX_PREPARED_STATEMENTS // 16, 1)
        self._deallocate([self._names.popitem(last=False)[1] for _ in range(count)])

    def _deallocate(self, names: Sequence[bytes]) -> None:
        self._connection.pgconn.exec_(b";".join(b"DEALLOCATE " + name for name in names))

    def _failure(self, result: PGresult) -> psycopg.Error:
        """Return the error of a statement; all are prepared anew if its plan is invalid."""
        if result.error_field(DiagnosticField.SQLSTATE) in _INVALID_PLAN_CODES:
            self._prepared_in = None
        return self._error(result)

    def _error(self, result: PGresult) -> psycopg.Error:
        has_code = result.error_field(DiagnosticField.SQLSTATE) is not None
        if self._connection.pgconn.status != ConnStatus.OK and not has_code:
            # The server did not send this error: libpq reports that the connection is gone.
            return psycopg.OperationalError("the connection is lost")
        self.is_read_only |= result.error_field(DiagnosticField.SQLSTATE) == _READ_ONLY_CODE
        return psycopg.errors.error_from_result(result, encoding="utf-8")


def _set_chunk_rows(pgconn: PGconn, rows: int) -> None:
    if _HAS_CHUNKED_ROWS:
        pgconn.set_chunked_rows_mode(rows)
    else:
        pgconn.set_single_row_mode()
