"""A CSV of 1,000,000 rows by one import, beside COPY of the same rows with their history; and what memory it took."""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.bulk import memory, watched
from bench.data import entry
from bench.floor import WRITTEN
from bench.serving import Running
from bench.wire import exchange, upload

ROWS, QUICK_ROWS = 1_000_000, 100_000
PATIENCE_SECONDS = 1_800.0

_CHUNK = 1 << 18
_ENTRIES = f"COPY entries ({', '.join(WRITTEN)}) FROM STDIN (FORMAT csv, HEADER)"
_HISTORY = (
    (
        'COPY (SELECT action, "user", ip, collection, item FROM system_activity ORDER BY id DESC LIMIT {}) TO STDOUT',
        'COPY system_activity (action, "user", ip, collection, item) FROM STDIN',
    ),
    (
        "COPY (SELECT activity, collection, item, data, delta FROM system_revisions ORDER BY id DESC LIMIT {}) "
        "TO STDOUT",
        "COPY system_revisions (activity, collection, item, data, delta) FROM STDIN",
    ),
)
"""What reads the newest rows of the history, and what copies them into it once more."""

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Imported:
    """Seconds for so many rows by an import and by COPY; mebibytes of the larger worker before, and at the peak."""

    rows: int
    post: float
    copy: float
    before: float
    peak: float


def measure(service: Running, dsn: str, folder: Path, *, token: str, rows: int) -> Imported:
    """Import a file of new items; then copy the same file, and the history that the import has left."""
    file = _written(folder / "entries.csv", rows)
    message = upload("/utils/import/entries", file.read_bytes(), token=token, media_type="text/csv")
    before = memory(service.workers())
    with watched(service) as peak:
        began = time.perf_counter()
        exchange(service.address, message, patience=PATIENCE_SECONDS)
        post = time.perf_counter() - began
    with psycopg.connect(dsn) as connection:
        tables = {_ENTRIES: file}
        for number, (out, back) in enumerate(_HISTORY):
            tables[back] = _kept(connection, folder / f"history{number}", out.format(rows))
        copy = _timed_copy(connection, tables)
    return Imported(rows, post, copy, before, peak.most)


def _written(path: Path, rows: int) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, WRITTEN)
        writer.writeheader()
        writer.writerows(entry(number) for number in range(rows))
    return path


def _kept(connection: Connection, path: Path, statement: str) -> Path:
    with path.open("wb") as file, connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for chunk in copy:
            file.write(chunk)
    return path


def _timed_copy(connection: Connection, tables: dict[str, Path]) -> float:
    began = time.perf_counter()
    with connection.cursor() as cursor:
        for statement, path in tables.items():
            with path.open("rb") as file, cursor.copy(statement.encode()) as copy:
                while chunk := file.read(_CHUNK):
                    copy.write(chunk)
    connection.commit()
    return time.perf_counter() - began
