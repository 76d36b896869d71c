"""How the calling thread lets another one of its pool work meanwhile, where it has a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class ThisThread(threading.local):
    """`away` lets another thread take the slot of this one while its context lasts.

    It is None for a thread without a slot, which holds up others as long as it is busy.
    """

    away: Callable[[], AbstractContextManager[None]] | None = None


this_thread = ThisThread()
