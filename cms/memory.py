"""Memory that large requests have used goes back to the system.

The C library by itself does not see to it: it keeps what was freed, and a pool of it for nearly every thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from contextlib import suppress

LARGE = 2**20
"""Bytes of a body, an answer or a result after which it is worth while."""
_FIRST_WAIT, _SECOND_WAIT = 1.0, 9.0
"""Seconds to wait: until an answer is sent, and until it is sent to a slow client."""

_M_ARENA_MAX = -8
_ARENAS = 2


def limit_arenas() -> None:
    """Have all threads of this process share two pools of memory; the interpreter's lock keeps them from contending.

    By default glibc makes eight for each processor: imports in four threads held twice the memory that one needs.
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
    """The thread of a process that gives memory back; the allocator is one for all applications in it."""

    def __init__(self) -> None:
        self._trim = _trim_of_library()
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._process = 0

    def schedule(self) -> None:
        if self._trim is None or self._requested.is_set():
            return
        self._requested.set()
        if self._process != os.getpid():  # no thread lives on behind a fork
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._run, name="memory", daemon=True).start()

    def _run(self) -> None:
        assert self._trim
        while self._requested.wait():
            time.sleep(_FIRST_WAIT)
            self._requested.clear()
            gc.collect()
            self._trim(0)
            if not self._requested.wait(_SECOND_WAIT):
                self._trim(0)


_TRIMMER = _Trimmer()


def note_memory_use(size: int) -> None:
    """Note that a request has held so many bytes at a time; after many of them memory is given back soon."""
    if size >= LARGE:
        _TRIMMER.schedule()
