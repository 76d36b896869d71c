"""What the calling thread is in its process: one of a pool, or an event loop that must not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class ThisThread(threading.local):
    """`away` lets another thread take the slot of this one while its context lasts.

    It is None for a thread without a slot, which holds up others as long as it is busy. The event
    loop of a web worker `must_not_wait`: all clients would wait with it.
    """

    away: Callable[[], AbstractContextManager[None]] | None = None
    must_not_wait = False


this_thread = ThisThread()
