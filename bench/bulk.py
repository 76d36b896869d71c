"""Many rows in one call beside COPY of the same rows, with a history and without, and its memory.

Both sides write the same tables: indexes, foreign key and history are the same.
"""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
import psycopg

from bench.data import entry
from bench.floor import WRITTEN
from bench.serving import RunningServer
from bench.wire import exchange, request

ROWS = 10_000
MEBIBYTE = 1 << 20
BARE = "records"
RECORDED = "entries"
"""The same fields twice: a collection without a history, and one that records activities and
revisions.
"""

TIMEOUT_SECONDS = 1_800.0

_CHUNK = 1 << 18
_COPY = f"COPY {{}} ({', '.join(WRITTEN)}) FROM STDIN (FORMAT csv, HEADER)"
_HISTORY = (
    (
        'COPY (SELECT action, "user", ip, collection, item FROM system_activity '
        "ORDER BY id DESC LIMIT {}) TO STDOUT",
        'COPY system_activity (action, "user", ip, collection, item) FROM STDIN',
    ),
    (
        "COPY (SELECT activity, collection, item, data, delta FROM system_revisions "
        "ORDER BY id DESC LIMIT {}) TO STDOUT",
        "COPY system_revisions (activity, collection, item, data, delta) FROM STDIN",
    ),
)
"""Statements that read the newest rows of the history, and that copy them into it again."""

Connection = psycopg.Connection[tuple[object, ...]]
Files = Mapping[str, Path]
"""COPY statements, each with the file that it reads."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Median seconds of a call, and of COPY of the rows that it leaves."""

    post: float
    copy: float

    @property
    def ratio(self) -> float:
        return self.post / self.copy


@dataclass(frozen=True, slots=True)
class Bulk:
    """Writing `rows` rows without a history and with it.

    `before` and `peak` are the memory of the larger worker, in MiB.
    """

    rows: int
    bare: Comparison
    recorded: Comparison
    before: float
    peak: float

    @property
    def cost_of_history(self) -> float:
        """The time of a call with a history, as a multiple of a COPY without one."""
        return self.recorded.post / self.bare.copy

    @property
    def grown(self) -> float:
        return self.peak - self.before


@dataclass(frozen=True, slots=True)
class BulkLoad:
    """Rows as a file for COPY and as a call to a collection, and how often each is measured."""

    rows: int
    file: Path
    make_request: Callable[[str], bytes]
    bare_turns: int
    recorded_turns: int


@dataclass(slots=True)
class Peak:
    """The most memory of any worker since the watch began, in MiB."""

    workers: list[psutil.Process]
    highest: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.done.wait(0.005):
            self.highest = max(self.highest, memory(self.workers))


def post_load(folder: Path, *, token: str, times: int) -> BulkLoad:
    """Return 10,000 items for one POST."""
    items = [entry(number) for number in range(ROWS)]

    def make_request(collection: str) -> bytes:
        return request("POST", f"/items/{collection}?fields=id", token=token, payload=items)

    return BulkLoad(ROWS, write_items(folder / "items.csv", ROWS), make_request, times, times)


def measure(service: RunningServer, dsn: str, folder: Path, load: BulkLoad) -> Bulk:
    """Send the rows by calls and by COPY, in turns."""
    before = memory(service.workers())
    with peak_memory(service) as peak, psycopg.connect(dsn, autocommit=True) as connection:
        bare = _without_history(service, connection, load)
        recorded = _with_history(service, connection, folder, load)
    return Bulk(load.rows, bare, recorded, before, peak.highest)


def _without_history(service: RunningServer, connection: Connection, load: BulkLoad) -> Comparison:
    """Fill the collection without a history; both sides find it empty."""
    files = {_COPY.format(BARE): load.file}
    message = load.make_request(BARE)
    posts = []
    copies = []
    for _ in range(load.bare_turns):
        connection.execute(f"TRUNCATE {BARE}".encode())
        copies.append(_timed_copy(connection, files))
        connection.execute(f"TRUNCATE {BARE}".encode())
        posts.append(_timed_call(service, message))
    return Comparison(median(posts), median(copies))


def _with_history(
    service: RunningServer, connection: Connection, folder: Path, load: BulkLoad
) -> Comparison:
    """Fill the collection with a history; COPY takes the history that the first call has left."""
    files = {_COPY.format(RECORDED): load.file}
    message = load.make_request(RECORDED)
    posts = []
    copies = []
    for turn in range(load.recorded_turns):
        posts.append(_timed_call(service, message))
        if not turn:
            # Only now is there a history of this many rows to copy.
            for number, (copy_out, copy_in) in enumerate(_HISTORY):
                files[copy_in] = _save_copy(
                    connection, folder / f"history{number}", copy_out.format(load.rows)
                )
        copies.append(_timed_copy(connection, files))
    return Comparison(median(posts), median(copies))


def memory(workers: list[psutil.Process]) -> float:
    """Return the resident memory of the larger worker in mebibytes."""
    return float(max(worker.memory_info().rss for worker in workers)) / MEBIBYTE


@contextmanager
def peak_memory(service: RunningServer) -> Iterator[Peak]:
    peak = Peak(service.workers())
    thread = threading.Thread(target=peak.watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        peak.done.set()
        thread.join()


def write_items(path: Path, rows: int) -> Path:
    """Write so many items as a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, WRITTEN)
        writer.writeheader()
        writer.writerows(entry(number) for number in range(rows))
    return path


def _save_copy(connection: Connection, path: Path, statement: str) -> Path:
    with (
        path.open("wb") as file,
        connection.cursor() as cursor,
        cursor.copy(statement.encode()) as copy,
    ):
        for chunk in copy:
            file.write(chunk)
    return path


def _timed_call(service: RunningServer, message: bytes) -> float:
    began = time.perf_counter()
    exchange(service.address, message, timeout=TIMEOUT_SECONDS)
    return time.perf_counter() - began


def _timed_copy(connection: Connection, files: Files) -> float:
    # In one transaction, as the call writes rows and history.
    began = time.perf_counter()
    with connection.transaction(), connection.cursor() as cursor:
        for statement, path in files.items():
            with path.open("rb") as file, cursor.copy(statement.encode()) as copy:
                while chunk := file.read(_CHUNK):
                    copy.write(chunk)
    return time.perf_counter() - began
