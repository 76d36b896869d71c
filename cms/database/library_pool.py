"""The pool of connections of a library that opens one itself."""

from __future__ import annotations

import math
import select
import time
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from cms.processes.polled_descriptor import PolledDescriptor

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
