"""How pools lend connections: those of the service, and that of a library which opens its own."""

from __future__ import annotations

import math
import select
import time
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from cms.database.wire import Connection
from cms.metrics.metrics import Metrics
from cms.processes.polled_descriptor import PolledDescriptor


class borrow:
    """Lends a connection; one that a restart of the server has ended is replaced first.

    A class, because a generator with `contextmanager` takes longer, and every statement borrows.
    """

    __slots__ = ("_connection", "_metrics", "_pool")

    def __init__(self, pool: ConnectionPool[Connection], metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics

    def __enter__(self) -> Connection:
        began = time.perf_counter()
        try:
            connection = self._pool.getconn()
            # A restart of the server ends all connections of a pool: the next one may be dead as
            # well.
            while connection.wire.is_closed_by_server():
                connection.close()
                # A pool counts a connection as lent until it is back, even one to throw away.
                self._pool.putconn(connection)
                connection = self._pool.getconn()
        finally:
            # In `finally`, as a wait that ends in an error is the longest of all.
            self._metrics.count_pool_wait(time.perf_counter() - began)
        self._connection = connection
        return connection

    def __exit__(self, *_: object) -> None:
        wire = self._connection.wire
        # libpq never gives back the memory of a connection that has become too large. One that is
        # read-only leads to a replica; after a failover the same address leads to the primary. The
        # pool opens another connection when it needs one.
        if wire.is_oversized or wire.is_read_only:
            self._connection.close()
        self._pool.putconn(self._connection)


CHECK_SECONDS = 1.0
"""How long a connection counts as alive after a check."""


class LibraryPool(AsyncConnectionPool[AsyncConnection[Any]]):
    """A pool that checks connections now and then, and those that something has come from.

    A check takes as long as a statement of the library, which runs one for each use. But the end of
    a connection that was idle has come from it before.
    """

    def __init__(self, **arguments: Any) -> None:
        # Weak, so that the pool's closed connections are forgotten. Before the constructor of the
        # base class, whose pool may check a connection as soon as it is open.
        self._checked: WeakKeyDictionary[AsyncConnection[Any], float] = WeakKeyDictionary()
        super().__init__(**{**arguments, "check": self._check_sometimes})

    async def _check_sometimes(self, connection: AsyncConnection[Any]) -> None:
        now = time.monotonic()
        is_old = now - self._checked.get(connection, -math.inf) > CHECK_SECONDS
        has_come = PolledDescriptor(connection.fileno(), select.POLLIN)
        if is_old or has_come.is_ready():
            await self.check_connection(connection)
            self._checked[connection] = now
