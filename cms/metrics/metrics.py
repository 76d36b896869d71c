"""What a process counts: a method for each event, and numbers in files that all processes read.

A process has two files in the folder, `N.names` and `N.values`, and holds a lock on the first. The
next process takes the files of a dead one over and counts on: no number ever goes backwards, and
there are no more files than there were processes at one time.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import mmap
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from cms.metrics.families import (
    FAMILIES,
    FLOW_RUNS,
    LAYOUT,
    PLAN_CACHE_HITS,
    PLAN_CACHE_MISSES,
    POOL_WAIT,
    REQUEST_DURATION,
    REQUESTS,
    STATEMENTS,
    TRANSFORMS,
    Family,
)
from cms.processes.forks import register_for_forks
from cms.processes.slots import locked_file

log = logging.getLogger("cms")

CAPACITY = 32_768
"""Numbers of one process. A route takes some fifty; a series beyond them is not counted."""
_BYTES = CAPACITY * 8
_FIRST = 1
"""The number before the first series is the id of the process."""
_NOWHERE = -1

Labels = tuple[str, ...]


class SeriesKey(NamedTuple):
    """Names one series: its family, and the values of the family's labels."""

    family: str
    labels: Labels


_WIDTHS = {family.name: family.width for family in FAMILIES}


class Metrics:
    """The metrics of one process, whose files are opened at the first event, or by `open`.

    Both come after the fork: processes must not share their files. An event takes about a
    microsecond.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._values: ProcessValues | None = None
        register_for_forks(self)

    def open(self) -> ProcessValues:
        """Return the values of this process, which from now on is among the running ones."""
        with self._lock:
            if self._values is None:
                try:
                    self._values = ProcessValues.in_folder(self.folder)
                except OSError as error:
                    # Requests must not fail for their numbers.
                    log.warning("metrics are those of one process only: %s", error)
                    self._values = ProcessValues.private()
            return self._values

    def count_request(self, method: str, route: str, status: str, seconds: float) -> None:
        """Count an answered request; `route` is the template of its path."""
        values = self._values or self.open()
        values.add(REQUESTS, (method, route, status))
        values.observe(REQUEST_DURATION, seconds, (method, route))

    def count_statement(self) -> None:
        (self._values or self.open()).add(STATEMENTS)

    def count_pool_wait(self, seconds: float) -> None:
        (self._values or self.open()).observe(POOL_WAIT, seconds)

    def count_plan_cache_hit(self) -> None:
        (self._values or self.open()).add(PLAN_CACHE_HITS)

    def count_plan_cache_miss(self) -> None:
        (self._values or self.open()).add(PLAN_CACHE_MISSES)

    def count_transform(self) -> None:
        (self._values or self.open()).add(TRANSFORMS)

    def count_flow_run(self) -> None:
        (self._values or self.open()).add(FLOW_RUNS)

    def close(self) -> None:
        """Leave the files to the next process; a later event opens them again."""
        with self._lock:
            values = self._values
            self._values = None
        if values is not None:
            values.close()

    def reset_after_fork(self) -> None:
        """Begin anew in a child of a process that has counted: these files are its parent's."""
        self._lock = Lock()
        self._values = None


class ProcessValues:
    """The series of this process; threads may count at the same time."""

    def __init__(self, descriptor: int | None, numbers: memoryview[float]) -> None:
        self._descriptor = descriptor
        self._numbers = numbers
        # By plain tuples, which are equal to a `SeriesKey` and made in a third of the time.
        self._starts: dict[tuple[str, Labels], int] = {}
        self._next = _FIRST
        self._lock = Lock()

    @classmethod
    def in_folder(cls, folder: Path) -> ProcessValues:
        """Take over the files of a dead process, or make new ones; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path, descriptor = _first_unused(folder)
        try:
            values = cls(descriptor, _mapped(path.with_suffix(".values")))
            values._take_over()
        except BaseException:
            os.close(descriptor)
            raise
        return values

    @classmethod
    def private(cls) -> ProcessValues:
        """Return values that no other process reads."""
        return cls(None, memoryview(bytearray(_BYTES)).cast("d"))

    @property
    def room(self) -> float:
        """The part of the numbers that no series has taken yet."""
        return 1 - self._next / CAPACITY

    @property
    def is_private(self) -> bool:
        return self._descriptor is None

    def add(self, family: Family, labels: Labels = ()) -> None:
        """Add one to a counter."""
        with self._lock:
            start = self._starts.get((family.name, labels)) or self._add_series(family, labels)
            if start != _NOWHERE:
                self._numbers[start] += 1.0

    def observe(self, family: Family, seconds: float, labels: Labels = ()) -> None:
        """Add a time to a histogram."""
        bounds = family.bounds
        with self._lock:
            start = self._starts.get((family.name, labels)) or self._add_series(family, labels)
            if start != _NOWHERE:
                self._numbers[start + bisect_left(bounds, seconds)] += 1.0
                # Behind the buckets, of which the last one is infinite.
                self._numbers[start + len(bounds) + 1] += seconds

    def series(self) -> dict[SeriesKey, list[float]]:
        """Return the numbers of each series."""
        with self._lock:
            return {
                SeriesKey(family, labels): list(self._numbers[start : start + _WIDTHS[family]])
                for (family, labels), start in self._starts.items()
                if start != _NOWHERE
            }

    def close(self) -> None:
        """Leave the files to the next process."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
            # A thread that counts after the end finds no series: the numbers are another's now.
            self._starts.clear()
            self._next = CAPACITY

    def _take_over(self) -> None:
        assert self._descriptor is not None
        names = _Names.parse(_content(self._descriptor))
        if names is None:
            # Of another version, or none: its numbers mean something else.
            os.ftruncate(self._descriptor, 0)
            self._numbers.obj[:] = bytes(_BYTES)  # type: ignore[index]  # a writable map
            os.write(self._descriptor, f"{LAYOUT}\n".encode())
            names = _Names({}, _FIRST, len(LAYOUT) + 1)
        # A process that was killed may have left half a line.
        os.ftruncate(self._descriptor, names.size)
        for key, start in names.starts.items():
            self._starts[key] = start
        self._next = names.end
        self._numbers[0] = os.getpid()

    def _add_series(self, family: Family, labels: Labels) -> int:
        key = SeriesKey(family.name, labels)
        start = _NOWHERE
        if self._next + family.width <= CAPACITY and self._write_name(key):
            start = self._next
            self._next += family.width
        self._starts[key] = start
        return start

    def _write_name(self, key: SeriesKey) -> bool:
        """Write the name of the next series; tell whether there was room for it on the disk."""
        if self._descriptor is None:
            return True
        line = json.dumps(key).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            return False
        if written < len(line):
            os.ftruncate(self._descriptor, size)
        return written == len(line)


class _Names(NamedTuple):
    """The series of a file of names, the number behind the last one, and the bytes that count."""

    starts: dict[SeriesKey, int]
    end: int
    size: int

    @classmethod
    def parse(cls, content: bytes) -> _Names | None:
        """Return the series, None where the file is of another version or damaged."""
        complete, _, _ = content.rpartition(b"\n")
        header, *lines = complete.split(b"\n")
        if header != LAYOUT.encode():
            return None
        starts = {}
        end = _FIRST
        for line in lines:
            try:
                family, labels = json.loads(line)
                width = _WIDTHS[family]
            except (ValueError, KeyError, TypeError):
                return None  # a crash of the machine has left other bytes than were written
            starts[SeriesKey(family, tuple(labels))] = end
            end += width
        return cls(starts, end, len(complete) + 1)


class StoredValues(NamedTuple):
    """What one process has counted, or several of them one after the other.

    `process` is the id of the one that counts now, None where there is none.
    """

    process: int | None
    series: dict[SeriesKey, list[float]]


def stored_values(folder: Path) -> Iterator[StoredValues]:
    """Yield the values of each process of this machine, dead ones included."""
    for path in folder.glob("*.names"):
        try:
            stored = _stored(path)
        except OSError:
            continue  # another version is replacing it
        if stored is not None:
            yield stored


def _stored(path: Path) -> StoredValues | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        is_alive = _is_locked(descriptor)
        # The names first: then each of them has its numbers.
        names = _Names.parse(_content(descriptor))
    finally:
        os.close(descriptor)
    content = path.with_suffix(".values").read_bytes()
    if names is None or len(content) != _BYTES:
        return None
    numbers = array("d", content)
    series = {
        key: numbers[start : start + _WIDTHS[key.family]].tolist()
        for key, start in names.starts.items()
    }
    return StoredValues(int(numbers[0]) if is_alive else None, series)


def _first_unused(folder: Path) -> tuple[Path, int]:
    """Return the first file of names that no process counts in, and its locked descriptor."""
    for number in itertools.count():
        path = folder / f"{number}.names"
        descriptor = locked_file(path, os.O_APPEND)
        if descriptor is not None:
            return path, descriptor
    raise AssertionError("unreachable: numbers do not end")


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _mapped(path: Path) -> memoryview[float]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Room on the disk now: without it, a full disk would end the process at a later write.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, _BYTES)
        else:
            os.ftruncate(descriptor, _BYTES)
        return memoryview(mmap.mmap(descriptor, _BYTES)).cast("d")
    finally:
        os.close(descriptor)
