"""Counters in memory that the processes of one web server share: a table of a fixed size.

A key belongs to one bucket, and may be in any entry of it. When a bucket is full, a new key takes
the entry whose windows have ended, or else end first: so the table never grows, whoever sends
requests from millions of addresses.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from struct import Struct

from cms.rate_limits.windows import NEVER, Limit, Usage, Window, acquire

KEY_BYTES = 16

# The key, the counts of both windows, and their ends.
_ENTRY = Struct(f"<{KEY_BYTES}sIIdd")
_COUNTS_AT = KEY_BYTES
_ENDS_AT = KEY_BYTES + 8
_BUCKET_ENTRIES = 16
_BUCKET_BYTES = _BUCKET_ENTRIES * _ENTRY.size

BUCKETS = 8192
"""With 16 entries of 40 bytes each, 5 MiB: counters of 131,072 clients at a time."""


class SharedTable:
    """The table; processes that are forked after it was made share it.

    Keys are `KEY_BYTES` bytes of a keyed digest, so that nobody can choose the bucket. Each has two
    windows.
    """

    def __init__(
        self, *, buckets: int = BUCKETS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._buckets = buckets
        # The clock of the machine, which its processes share and nobody sets.
        self._clock = clock
        self._memory = mmap.mmap(-1, buckets * _BUCKET_BYTES)
        # Numbers are read and written by these, each in one step: a process that is killed in
        # between leaves no half of one.
        self._counts = memoryview(self._memory).cast("I")
        self._ends = memoryview(self._memory).cast("d")
        self.lock = ProcessLock()

    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits, of which there are one or two."""
        with self.lock:
            position = self._position_of(key)
            stored = self._windows_at(position)
            windows, usage = acquire(stored[: len(limits)], limits, self._clock())
            changed = windows + stored[len(limits) :]
            # A refused request takes no entry.
            if changed != stored:
                self._write(key, position, changed)
        return usage

    def keep(self, key: bytes, seconds: float) -> None:
        """Begin a window of so many seconds from now."""
        with self.lock:
            window = (1, self._clock() + seconds)
            self._write(key, self._position_of(key), (window, NEVER))

    def is_kept(self, key: bytes) -> bool:
        """Tell whether a window that `keep` began has not ended yet."""
        return self._clock() < self.windows(key)[0][1]

    def windows(self, key: bytes) -> tuple[Window, ...]:
        """Return the windows of a key; those of an unknown one are `NEVER`."""
        with self.lock:
            return self._windows_at(self._position_of(key))

    def close(self) -> None:
        """Do nothing: the table is that of the process, and may have other users."""

    def _start_of(self, key: bytes) -> int:
        return int.from_bytes(key[:4], "little") % self._buckets * _BUCKET_BYTES

    def _position_of(self, key: bytes) -> int:
        """Return where the entry of a key begins; a negative number for none."""
        start = self._start_of(key)
        return self._memory.find(key, start, start + _BUCKET_BYTES)

    def _windows_at(self, position: int) -> tuple[Window, ...]:
        if position < 0:
            return NEVER, NEVER
        count = (position + _COUNTS_AT) // 4
        end = (position + _ENDS_AT) // 8
        return (
            (self._counts[count], self._ends[end]),
            (self._counts[count + 1], self._ends[end + 1]),
        )

    def _write(self, key: bytes, position: int, windows: tuple[Window, ...]) -> None:
        """Write the windows of a key, whose entry is at `position` if it has one."""
        if position < 0:
            position = self._new_entry(key)
        self._write_windows(position, windows)

    def _write_windows(self, position: int, windows: tuple[Window, ...]) -> None:
        """Write the windows of an entry.

        The ends come last: a process that is killed before leaves a window that has ended, and not
        the count of an old window in a new one.
        """
        count = (position + _COUNTS_AT) // 4
        end = (position + _ENDS_AT) // 8
        for index, window in enumerate(windows):
            self._counts[count + index] = window[0]
        for index, window in enumerate(windows):
            self._ends[end + index] = window[1]

    def _new_entry(self, key: bytes) -> int:
        """Return the position of the entry that a new key of a bucket takes."""
        start = self._start_of(key)
        bucket = self._memory[start : start + _BUCKET_BYTES]
        ends = [max(entry[-2:]) for entry in _ENTRY.iter_unpack(bucket)]
        position = start + ends.index(min(ends)) * _ENTRY.size
        # The windows first: a process that is killed in between must not leave a key with the
        # counts of another one.
        self._write_windows(position, (NEVER, NEVER))
        self._memory[position : position + KEY_BYTES] = key
        return position


class ProcessLock:
    """A lock between threads and processes, which the system frees when its process ends.

    It is a lock on an empty file: processes that are forked after it was made share it.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):  # Linux: also where no folder can be written
            self._file = os.memfd_create("cms-lock")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        # A lock of a file belongs to the whole process, so this one keeps its threads apart.
        self._thread_lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew_thread_lock)

    def __enter__(self) -> None:
        self._thread_lock.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._thread_lock.release()

    def _renew_thread_lock(self) -> None:
        # A fork copies no other thread: whichever held the lock is not there to release it.
        self._thread_lock = threading.Lock()


PROCESS_TABLE = SharedTable()
"""The table of this process, and of all that are forked from it."""
