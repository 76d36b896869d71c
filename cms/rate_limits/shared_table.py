"""Counters in memory that the processes of one web server share: a table of a fixed size.

A key belongs to one bucket, and may be in any entry of it. When a bucket is full, a new key takes
the entry whose windows have ended, or else end first: so the table never grows, whoever sends
requests from millions of addresses.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from struct import Struct
from typing import TypeVar

from cms.rate_limits.process_locks import ProcessLocks, process_locks
from cms.rate_limits.windows import NEVER, Window

KEY_BYTES = 16

# The key, the counts of both windows, and their ends.
_ENTRY = Struct(f"<{KEY_BYTES}sIIdd")
_COUNTS_AT = KEY_BYTES
_ENDS_AT = KEY_BYTES + 8
_BUCKET_ENTRIES = 16
_BUCKET_BYTES = _BUCKET_ENTRIES * _ENTRY.size

Windows = tuple[Window, Window]
"""The windows of a key: an entry has two."""

BUCKETS = 8192
"""With 16 entries of 40 bytes each, 5 MiB: counters of 131,072 clients at a time."""

LOCKS = 64
"""Locks of all buckets together."""

T = TypeVar("T")


class SharedTable:
    """The table; processes that are forked after it was made share it.

    Keys are `KEY_BYTES` bytes of a keyed digest, so that nobody can choose the bucket.
    """

    def __init__(self, *, buckets: int = BUCKETS, locks: ProcessLocks | None = None) -> None:
        self._buckets = buckets
        self._memory = mmap.mmap(-1, buckets * _BUCKET_BYTES)
        # Numbers are read and written by these, each in one step: a process that is killed in
        # between leaves no half of one.
        self._counts = memoryview(self._memory).cast("I")
        self._ends = memoryview(self._memory).cast("d")
        self._locks = locks or process_locks(LOCKS)

    def change(self, key: bytes, change: Callable[[Windows], tuple[Windows, T]]) -> T:
        """Replace the windows of a key by those that `change` returns, and return its result.

        Nobody else changes them meanwhile. The windows of a new key are `NEVER`.
        """
        bucket = int.from_bytes(key[:4], "little") % self._buckets
        start = bucket * _BUCKET_BYTES
        lock = bucket % LOCKS
        self._locks.acquire(lock)
        try:
            position = self._memory.find(key, start, start + _BUCKET_BYTES)
            stored = self._windows_at(position)
            windows, result = change(stored)
            # Only to look at the windows of a new key takes no entry.
            if windows != stored:
                if position < 0:
                    position = self._entry_for(key, start)
                self._write(position, windows)
            return result
        finally:
            self._locks.release(lock)

    def clear(self) -> None:
        """Forget all counters; requests that are counted at this moment may stay."""
        self._memory[:] = bytes(len(self._memory))

    def _windows_at(self, position: int) -> Windows:
        if position < 0:
            return NEVER, NEVER
        count = (position + _COUNTS_AT) // 4
        end = (position + _ENDS_AT) // 8
        return (
            (self._counts[count], self._ends[end]),
            (self._counts[count + 1], self._ends[end + 1]),
        )

    def _write(self, position: int, windows: Windows) -> None:
        """Write the windows of an entry.

        The ends come last: a process that is killed before leaves a window that has ended, and not
        the count of an old window in a new one.
        """
        count = (position + _COUNTS_AT) // 4
        end = (position + _ENDS_AT) // 8
        first, second = windows
        self._counts[count], first_end = first
        self._counts[count + 1], second_end = second
        self._ends[end] = first_end
        self._ends[end + 1] = second_end

    def _entry_for(self, key: bytes, start: int) -> int:
        """Return the position of the entry that a new key of a bucket takes."""
        bucket = self._memory[start : start + _BUCKET_BYTES]
        ends = []
        for *_, end, other_end in _ENTRY.iter_unpack(bucket):
            ends.append(max(end, other_end))
        position = start + ends.index(min(ends)) * _ENTRY.size
        # The windows first: a process that is killed in between must not leave a key with the
        # counts of another one.
        self._write(position, (NEVER, NEVER))
        self._memory[position : position + KEY_BYTES] = key
        return position


class _ProcessTable:
    """The table of this process, which is that of the process that it was forked from."""

    def __init__(self) -> None:
        self._table: SharedTable | None = None
        self._lock = threading.Lock()

    def get(self) -> SharedTable:
        with self._lock:
            if self._table is None:
                self._table = SharedTable()
            return self._table


_PROCESS_TABLE = _ProcessTable()


def process_table() -> SharedTable:
    """Return the table of this process; made before a fork, it is shared by what is forked."""
    return _PROCESS_TABLE.get()
