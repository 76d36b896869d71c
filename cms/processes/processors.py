"""Which processors the threads of this process run on.

The interpreter's lock lets one thread of a process run at a time. On several processors the threads
only hand the lock from one to another, which takes longer than the work for a short request. So a
web worker may keep its threads on one processor. What runs beside the lock (child processes, hashes
of passwords) uses them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_THIS_THREAD = 0

_all: frozenset[int] = frozenset()  # those of the process, while its threads are kept on one


def available_processors() -> tuple[int, ...]:
    """Return the numbers of the processors that this process may use; none if none can be chosen.

    Linux alone lets a program choose, and not in every sandbox.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    try:
        return tuple(sorted(_all or os.sched_getaffinity(_THIS_THREAD)))
    except OSError:
        return ()


def keep_on(processor: int) -> None:
    """Keep this thread, and all that it will start, on one processor, if the system allows it."""
    global _all
    available = frozenset(available_processors())
    with suppress(OSError):
        os.sched_setaffinity(_THIS_THREAD, (processor,))
        _all = available


@contextmanager
def all_processors() -> Iterator[None]:
    """Let this thread, and the processes and threads that it starts here, use all processors."""
    if not _all:
        yield
        return
    before = os.sched_getaffinity(_THIS_THREAD)
    # The system refuses if it has taken all of them away: then the thread stays where it is.
    with suppress(OSError):
        os.sched_setaffinity(_THIS_THREAD, _all)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(_THIS_THREAD, before)
