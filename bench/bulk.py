"""10,000 items in one POST, beside COPY of the same rows with their history; and what memory it all took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import orjson
import psutil
import psycopg

from bench.data import entry
from bench.floor import SOMEBODY, WRITTEN
from bench.serving import Running
from bench.wire import exchange, request

ROWS = 10_000
MEBIBYTE = 1 << 20

_COPIES = (
    f"COPY entries ({', '.join(WRITTEN)}) FROM STDIN",
    'COPY system_activity (action, "user", ip, collection, item) FROM STDIN',
    "COPY system_revisions (activity, collection, item, data, delta) FROM STDIN",
)


@dataclass(frozen=True, slots=True)
class Bulk:
    """Seconds for 10,000 rows by POST and by COPY; mebibytes of the larger worker before, and at the peak."""

    post: float
    copy: float
    before: float
    peak: float


@dataclass(slots=True)
class Peak:
    """The most memory that one of the workers has had since the watch began, in mebibytes."""

    workers: list[psutil.Process]
    most: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.done.wait(0.005):
            self.most = max(self.most, memory(self.workers))


def measure(service: Running, dsn: str, *, token: str, times: int) -> Bulk:
    """Create 10,000 items by one POST and by one COPY, in turns."""
    items = [entry(number) for number in range(ROWS)]
    message = request("POST", "/items/entries?fields=id", token=token, payload=items)
    rows = _rows(items)
    posts, copies = [], []
    before = memory(service.workers())
    with watched(service) as peak, psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(times):
            copies.append(_timed_copy(connection, rows))
            began = time.perf_counter()
            exchange(service.address, message)
            posts.append(time.perf_counter() - began)
    return Bulk(median(posts), median(copies), before, peak.most)


def memory(workers: list[psutil.Process]) -> float:
    """Return the resident memory of the larger worker in mebibytes."""
    return float(max(worker.memory_info().rss for worker in workers)) / MEBIBYTE


@contextmanager
def watched(service: Running) -> Iterator[Peak]:
    peak = Peak(service.workers())
    thread = threading.Thread(target=peak.watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        peak.done.set()
        thread.join()


def _rows(items: list[dict[str, object]]) -> tuple[list[list[object]], ...]:
    """Return the rows of the three tables; what they hold is as long as what the service writes."""
    written = [[item[name] for name in WRITTEN] for item in items]
    acts: list[list[object]] = [["create", SOMEBODY, "127.0.0.1", "entries", str(n)] for n in range(len(items))]
    data = [orjson.dumps({"id": n, **item}).decode() for n, item in enumerate(items)]
    revisions: list[list[object]] = [[n, "entries", str(n), found, found] for n, found in enumerate(data)]
    return written, acts, revisions


def _timed_copy(connection: psycopg.Connection[tuple[object, ...]], tables: tuple[list[list[object]], ...]) -> float:
    began = time.perf_counter()
    with connection.transaction(), connection.cursor() as cursor:
        for statement, rows in zip(_COPIES, tables, strict=True):
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
    return time.perf_counter() - began
