"""The pool of connections of a library that opens one itself."""

from __future__ import annotations

import math
import time
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

CHECK_SECONDS = 1.0
"""How long a connection counts as alive after a check."""


class LibraryPool(AsyncConnectionPool[AsyncConnection[Any]]):
    """A pool that checks connections now and then, and not before each use.

    A check takes as long as a statement of the library, which runs one for each use.
    """

    def __init__(self, **arguments: Any) -> None:
        # Weak, so that the pool's closed connections are forgotten. Before the constructor of the
        # base class, whose pool may check a connection as soon as it is open.
        self._checked: WeakKeyDictionary[AsyncConnection[Any], float] = WeakKeyDictionary()
        super().__init__(**{**arguments, "check": self._check_sometimes})

    async def _check_sometimes(self, connection: AsyncConnection[Any]) -> None:
        now = time.monotonic()
        if now - self._checked.get(connection, -math.inf) > CHECK_SECONDS:
            await self.check_connection(connection)
            self._checked[connection] = now
