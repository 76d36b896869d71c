"""Gives memory that large requests have used back to the system.

The C library does not do so by itself: it keeps what was freed, in a pool for nearly every thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from contextlib import suppress

LARGE = 2**20
"""Bytes of a body, an answer or a result from which it is worth while."""
_FIRST_WAIT_SECONDS = 1.0  # until an answer is sent
_SECOND_WAIT_SECONDS = 9.0  # until it is sent to a slow client

_M_ARENA_MAX = -8
_ARENAS = 2


def limit_arenas() -> None:
    """Let all threads of this process share two pools of memory.

    The interpreter's lock keeps them from contending. By default glibc makes eight pools for each
    processor, and imports in four threads then held twice the memory that one needs.
    """
    with suppress(OSError, AttributeError):  # other C libraries have no mallopt
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def _trim_of_library() -> ctypes._NamedFuncPointer | None:
    """Return glibc's malloc_trim; other C libraries have none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None


class _Trimmer:
    """The thread that gives memory back; all applications of a process share the allocator."""

    def __init__(self) -> None:
        self._trim = _trim_of_library()
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._process = 0

    def schedule(self) -> None:
        if self._trim is None or self._requested.is_set():
            return
        self._requested.set()
        if self._process != os.getpid():  # threads do not survive a fork
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._run, name="memory", daemon=True).start()

    def _run(self) -> None:
        assert self._trim
        while self._requested.wait():
            time.sleep(_FIRST_WAIT_SECONDS)
            self._requested.clear()
            # First, because values that refer to each other are freed by it only.
            gc.collect()
            self._trim(0)
            if not self._requested.wait(_SECOND_WAIT_SECONDS):
                self._trim(0)


_TRIMMER = _Trimmer()


def note_memory_use(size: int) -> None:
    """Note that a request held so many bytes; after many of them memory is given back soon."""
    if size >= LARGE:
        _TRIMMER.schedule()
