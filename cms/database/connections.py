"""Connections: a read-only pool for reads, a second one for transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from psycopg import sql
from psycopg_pool import ConnectionPool

from cms.config import Config, ConfigError
from cms.database.allowance import Allowance
from cms.database.background_threads import BackgroundThreads
from cms.database.borrowing import borrow
from cms.database.error_mapping import mapped_errors
from cms.database.own_schema import schema_of
from cms.database.reader import Reader
from cms.database.session_setup import (
    CONNECTION_ARGUMENTS,
    address_arguments,
    configure,
    session_options,
)
from cms.database.statement_meter import StatementMeter
from cms.database.statements import statement
from cms.database.stopwatch import Stopwatch
from cms.database.wire import Chunking, Connection, Epochs
from cms.database.wire import Row as Row
from cms.errors import unavailable
from cms.fragment import Fragment
from cms.metrics.metrics import Metrics
from cms.processes.forks import register_for_forks

_BORROW_SECONDS = 5.0
"""How long a request waits for a connection of a pool before it is answered 503."""

_RECONNECT_SECONDS = 0.25
"""How long a pool tries to connect before it asks whether somebody still waits for it."""

Fetch = Callable[[str, Sequence[object]], list[Row]]
"""Runs one reading statement and returns its rows."""


def single_values(rows: Sequence[Row]) -> list[Any]:
    """Return the values of rows that have one column."""
    return [value for (value,) in rows]


def single_value(rows: Sequence[Row]) -> Any:
    """Return the value of the one row of one column."""
    ((value,),) = rows
    return value


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction on one connection, which `Database.transaction` commits or rolls back."""

    connection: Connection
    prepare: bool
    after_commit: list[Callable[[Database], None]] = field(default_factory=list)
    """Called after the commit."""
    allowance: Allowance | None = None
    """The time and bytes that a batch in it may use."""
    filter_time: Stopwatch = field(default_factory=Stopwatch)
    """The time that filter flows take in it."""
    loaded: dict[str, object] = field(default_factory=dict)
    """What has been loaded since the last statement that may have changed something."""
    last_loaded: dict[str, object] = field(default_factory=dict)
    """What has been loaded last, also before such a statement."""
    while_changing: Callable[[], None] | None = None
    """Called while PostgreSQL works on a statement of DDL."""

    def run(self, fragment: Fragment) -> list[Row]:
        """Run a statement and return its rows, none when it has no result."""
        text, values = fragment.numbered()
        return self.execute(text, values)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block does if it raises; the rest of the transaction stays."""
        try:
            with mapped_errors(), self.connection.transaction():
                yield
        finally:
            self.loaded.clear()

    @contextmanager
    def read_committed(self) -> Iterator[None]:
        """Begin a transaction whose statements each have a snapshot of their own."""
        self.connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        with mapped_errors(), self.connection.transaction():
            yield

    def rest(self) -> None:
        """Give up the last snapshot, and any limit on the time without a statement."""
        # Sent without parameters: a statement with parameters keeps its snapshot until the next
        # statement.
        with mapped_errors():
            self.connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    def execute_ddl(self, fragment: Fragment) -> None:
        """Run a statement of DDL, which takes no parameters: libpq quotes the values instead."""
        quoted = [sql.quote(value, self.connection) for value in fragment.values]
        text = ""
        # A fragment has one part more than values: each value stands between two parts.
        for part, value in zip(fragment.parts, [*quoted, ""], strict=True):
            text += part + value
        self.loaded.clear()
        with mapped_errors(with_values=False):
            if self.while_changing is None:
                self.connection.execute(text)
            else:
                wire = self.connection.wire
                wire.run(text, (), prepare=False, while_waiting=self.while_changing)

    def execute(
        self,
        text: str,
        values: Sequence[object] = (),
        *,
        while_waiting: Callable[[], None] | None = None,
    ) -> list[Row]:
        """Run a statement and return its rows; `while_waiting` is called while PostgreSQL works."""
        self.loaded.clear()
        with mapped_errors():
            self._limit_time()
            return self.connection.wire.run(
                text, values, prepare=self.prepare, while_waiting=while_waiting
            )

    def read(
        self, text: str, values: Sequence[object] = (), *, chunking: Chunking | None = None
    ) -> list[Row]:
        """Run a reading statement and return its rows, in portions where they may be too large."""
        with mapped_errors():
            self._limit_time()
            return self.connection.wire.run(text, values, prepare=self.prepare, chunking=chunking)

    def _limit_time(self) -> None:
        """Lower the statement timeout to the rest of the batch's time."""
        if self.allowance is None:
            return
        timeout = self.allowance.next_timeout()
        if timeout:
            self.connection.wire.run(statement("limit_time"), (timeout,), prepare=self.prepare)


@dataclass(frozen=True, slots=True)
class _Pools:
    """Connections for short reads, for writes, and for streams.

    Three pools: reads may go to a replica, and neither a slow export nor a write that waits for a
    lock takes a connection from them.
    """

    read: ConnectionPool[Connection]
    write: ConnectionPool[Connection]
    stream: ConnectionPool[Connection]

    @property
    def all(self) -> tuple[ConnectionPool[Connection], ...]:
        return self.read, self.write, self.stream


def max_streams(size: int) -> int:
    """Return how many streams a process with pools of this size may have open at the same time.

    Each holds a connection of the server for as long as its client takes to read it.
    """
    return (size + 1) // 2


class Database:
    """The pools of one process, opened at their first use.

    Processes must not share a connection: a process that is forked later opens pools of its own.
    """

    def __init__(self, config: Config) -> None:
        if config.database_url is None:
            raise ConfigError(
                "DATABASE_URL is not set: name a database, or let `cms serve` bring one."
            )
        self._write_dsn = config.database_url
        self._read_dsn = config.database_read_url or config.database_url
        self.has_replica = config.database_read_url is not None
        self._direct_dsn = config.database_direct_url or config.database_url
        self.pool_size = config.database_pool_size
        self.statement_timeout = config.db_statement_timeout
        self._prepare = config.database_prepare
        self.metrics = Metrics(config.data_dir / "metrics")
        """The metrics of this process, which count its statements as well."""
        self.meter = StatementMeter(self.metrics)
        self.background = BackgroundThreads()
        """Threads that go on behind the answers of requests."""
        self._lock = threading.Lock()
        self._epochs = Epochs()
        self._pools: _Pools | None = None
        self._pools_of_parent: _Pools | None = None
        # Beside the pool of streams, which has as many connections but would wait for a free one.
        self._streams = threading.BoundedSemaphore(max_streams(self.pool_size))
        self.reader = self._reader(of_primary=False)
        """Reads, on the replica where there is one."""
        self.primary = self._reader(of_primary=True)
        """The same on the primary."""
        register_for_forks(self)

    def fetch(self, text: str, values: Sequence[object] = ()) -> list[Row]:
        """Run one reading statement on the read-only pool: one round trip, no BEGIN."""
        return self.reader.fetch(text, values)

    def fetch_primary(self, text: str, values: Sequence[object] = ()) -> list[Row]:
        """Run one statement on the primary, where it sees all writes."""
        return self.primary.fetch(text, values)

    def run_primary(self, fragment: Fragment) -> list[Row]:
        """Run one statement on the primary, unprepared because it will hardly come again."""
        text, values = fragment.numbered()
        with mapped_errors(), self._borrowed(self._open().write) as connection:
            return connection.wire.run(text, values, prepare=False)

    def _reader(self, *, of_primary: bool) -> Reader:
        def borrow_short() -> borrow:
            pools = self._pools or self._open()
            return borrow(pools.write if of_primary else pools.read, self.metrics)

        @contextmanager
        def borrow_long() -> Iterator[Connection]:
            pools = self._open()
            with (
                self._stream_slot(),
                self._borrowed(pools.write if of_primary else pools.stream) as connection,
            ):
                yield connection

        return Reader(
            borrow_short, borrow_long=borrow_long, prepare=self._prepare, meter=self.meter
        )

    @contextmanager
    def _stream_slot(self) -> Iterator[None]:
        # Without waiting: a client may take hours to read its export.
        if not self._streams.acquire(blocking=False):
            reason = "It has no connection left for another export; try again when one has ended"
            raise unavailable("database", reason)
        try:
            yield
        finally:
            self._streams.release()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commit what the block does, or nothing if it raises; then call `after_commit`."""
        with (
            mapped_errors(),
            self._borrowed(self._open().write) as connection,
            # A COMMIT does not count as a statement, but its time does: it waits for the disk.
            self.meter.transaction(connection.transaction()),
        ):
            transaction = Transaction(connection, self._prepare)
            yield transaction
        # The connection is back in its pool: such a step may need one itself.
        for step in transaction.after_commit:
            step(self)

    @contextmanager
    def autocommit_connection(self) -> Iterator[Transaction]:
        """Open a connection for statements outside any transaction, without any time limit."""
        # The connection comes from no pool, because building an index may take hours. It is direct,
        # because a pooler would lend another session to the next statement.
        with (
            mapped_errors(),
            Connection.connect(
                self._direct_dsn, **CONNECTION_ARGUMENTS, **address_arguments(self._direct_dsn)
            ) as connection,
            self.background.interruptible(connection),
        ):
            schema = schema_of(self._direct_dsn)
            configure(connection, epochs=self._epochs, meter=self.meter, schema=schema)
            session = Transaction(connection, prepare=False)
            session.execute(statement("lift_time_limits"))
            yield session

    def discard_prepared(self, kept: Set[str] = frozenset()) -> None:
        """Have every connection discard its prepared statements at its next use, but for `kept`."""
        # Each connection does so itself: another thread may be using it now.
        self._epochs.begin(kept)

    def close(self) -> None:
        """End background threads and close the connections; a later use opens them again."""
        self.background.stop()
        with self._lock:
            pools = self._pools
            self._pools = None
        if pools:
            for pool in pools.all:
                pool.close()
        self.metrics.close()

    def reset_after_fork(self) -> None:
        """Begin anew in a process that was just forked from one that has open pools."""
        # Kept, as to close them would take the threads of the parent.
        self._pools_of_parent = self._pools
        self._pools = None
        # Threads are those of the parent, and may hold a lock.
        self.background = BackgroundThreads()
        self._lock = threading.Lock()
        self._streams = threading.BoundedSemaphore(max_streams(self.pool_size))

    def _borrowed(self, pool: ConnectionPool[Connection]) -> borrow:
        return borrow(pool, self.metrics)

    def _open(self) -> _Pools:
        # Looked at without the lock first, which every statement would have to take otherwise.
        if self._pools is None:
            with self._lock:
                if self._pools is None:
                    self._pools = self._open_pools()
        return self._pools

    def _open_pools(self) -> _Pools:
        streams = max_streams(self.pool_size)
        return _Pools(
            read=self._pool(self._read_dsn, size=self.pool_size, read_only=True),
            write=self._pool(self._write_dsn, size=self.pool_size),
            stream=self._pool(self._read_dsn, size=streams, read_only=True),
        )

    def _pool(self, dsn: str, *, size: int, read_only: bool = False) -> ConnectionPool[Connection]:
        options = session_options(self.statement_timeout, read_only=read_only)
        address = address_arguments(dsn, options, in_pool=True, read_only=read_only)
        return ConnectionPool(
            dsn,
            connection_class=Connection,
            min_size=0,  # an idle service gives its connections back
            max_size=size,
            timeout=_BORROW_SECONDS,
            kwargs={**CONNECTION_ARGUMENTS, **address},
            configure=partial(
                configure, epochs=self._epochs, meter=self.meter, schema=schema_of(dsn)
            ),
            reconnect_timeout=_RECONNECT_SECONDS,
            reconnect_failed=_retry_for_waiting,
            open=True,
        )


def _retry_for_waiting(pool: ConnectionPool[Any]) -> None:
    """Make a pool that has given up connecting try again, if requests are waiting for it.

    The pool's own pauses double (1, 2, 4, 8 seconds), so that it would notice late that the server
    is back. A pool that no request waits for connects when the next request comes.
    """
    if pool.get_stats()["requests_waiting"]:
        pool.check()


@contextmanager
def standalone_transaction(dsn: str) -> Iterator[Transaction]:
    """Open one connection for one transaction, for the command line, which has no pools."""
    with (
        mapped_errors(),
        Connection.connect(dsn, **CONNECTION_ARGUMENTS, **address_arguments(dsn)) as connection,
        connection.transaction(),  # statements that go straight to libpq begin none by themselves
    ):
        configure(connection, epochs=Epochs(), meter=StatementMeter(), schema=schema_of(dsn))
        yield Transaction(connection, prepare=False)
