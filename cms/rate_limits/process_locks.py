"""Locks between processes, which the system frees when a process ends, however that happens."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
import threading
from typing import Protocol


class ProcessLocks(Protocol):
    """Numbered locks; processes that are forked after they were made share them."""

    def acquire(self, number: int) -> None:
        """Hold a lock; wait while another thread or process does."""

    def release(self, number: int) -> None:
        """Free a lock that this thread holds."""


_MUTEX_BYTES = 64
"""At least as many as a pthread_mutex_t or a pthread_mutexattr_t has: 40 to 48 in Linux."""

_SHARED = 1  # PTHREAD_PROCESS_SHARED
_ROBUST = 1  # PTHREAD_MUTEX_ROBUST

_Mutex = ctypes.c_char * _MUTEX_BYTES


class MutexLocks:
    """The robust mutexes of POSIX, in shared memory; a free one is taken without a system call.

    Raises AttributeError or OSError on systems without them.
    """

    def __init__(self, count: int) -> None:
        # Calls by PyDLL keep the interpreter's lock. To give it up for a call of 0.1 µs would let
        # another thread run first, which takes a hundred times as long.
        library = ctypes.PyDLL(None)
        self._try = library.pthread_mutex_trylock
        self._unlock = library.pthread_mutex_unlock
        self._make_consistent = library.pthread_mutex_consistent
        self._wait = ctypes.CDLL(None).pthread_mutex_lock
        attributes = _Mutex()
        _check(library.pthread_mutexattr_init(attributes))
        _check(library.pthread_mutexattr_setpshared(attributes, _SHARED))
        _check(library.pthread_mutexattr_setrobust(attributes, _ROBUST))
        memory = mmap.mmap(-1, count * _MUTEX_BYTES)
        self._mutexes = []
        for number in range(count):
            mutex = _Mutex.from_buffer(memory, number * _MUTEX_BYTES)
            _check(library.pthread_mutex_init(mutex, attributes))
            self._mutexes.append(ctypes.byref(mutex))

    def acquire(self, number: int) -> None:
        mutex = self._mutexes[number]
        result = self._try(mutex)
        if not result:
            return  # nearly always
        if result == errno.EBUSY:
            result = self._wait(mutex)
        # Its holder was killed. What it was writing is usable: see `SharedTable`.
        if result == errno.EOWNERDEAD:
            result = self._make_consistent(mutex)
        _check(result)

    def release(self, number: int) -> None:
        self._unlock(self._mutexes[number])


class FileLocks:
    """Locks on the bytes of an empty file, for systems without robust mutexes."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())
        # A lock of a file belongs to the whole process, so this one keeps its threads apart. There
        # is one for all numbers: if one thread held a lock and another waited for a second one, the
        # system would see a process that holds a lock while it waits, and report a deadlock.
        self._thread_lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew_thread_lock)

    def acquire(self, number: int) -> None:
        self._thread_lock.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, number)

    def release(self, number: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
        self._thread_lock.release()

    def _renew_thread_lock(self) -> None:
        # A fork copies no other thread: whichever held the lock is not there to release it.
        self._thread_lock = threading.Lock()


def process_locks(count: int) -> ProcessLocks:
    """Return so many locks of the better kind that the system has."""
    try:
        return MutexLocks(count)
    except (AttributeError, OSError):
        return FileLocks()


def _check(result: int) -> None:
    if result:
        raise OSError(result, os.strerror(result))
