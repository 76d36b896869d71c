"""How the calling thread lets another one of its pool work meanwhile, where it has a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class ThisThread(threading.local):
    """`away` is None for a thread that holds up others as long as it is busy."""

    away: Callable[[], AbstractContextManager[None]] | None = None


this_thread = ThisThread()
