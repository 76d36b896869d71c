"""Lends connections of a pool, after looking whether they still work."""

from __future__ import annotations

import time

from psycopg_pool import ConnectionPool

from cms.database.wire import Connection
from cms.metrics.metrics import Metrics


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
