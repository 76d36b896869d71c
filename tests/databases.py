"""What tests do to whole databases: send everybody away, and drop them, for
each takes as much as an empty one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


def end_connections(dsn: str) -> None:
    """End every other connection to the database and wait until they are gone, as after a
    restart.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        others = (
            "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        # Without a time to wait it only sends a signal, and who asks next may still be answered.
        ended = connection.execute(f"SELECT pid, pg_terminate_backend(pid, 60000) {others}")
        # Those that had ended by themselves cannot be ended.
        unended = [pid for pid, gone in ended if not gone]
        left = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid = ANY (%s)", [unended]
        )
        assert not left.fetchall()


def run_sql(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """Run SQL past the service, and return its rows; there are none without an answer."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


UNTIL_NOW = "until_now"


def channels_until_now(listener: psycopg.Connection, dsn: str) -> list[str]:
    """Return the channels of all that a connection was notified of; it listens to UNTIL_NOW too."""
    run_sql(dsn, f"NOTIFY {UNTIL_NOW}")
    channels: list[str] = []
    for note in listener.notifies(timeout=60):
        if note.channel == UNTIL_NOW:
            return channels
        channels.append(note.channel)
    raise AssertionError(f"the last notification did not come, after {channels}")


class SideDoor:
    """A connection past the service, kept open: to begin one takes longer than most statements."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._kept: psycopg.Connection | None = None
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """Yield a connection that commits by itself: the kept one, or another while that is
        busy.
        """
        if not self._lock.acquire(blocking=False):
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                yield connection
            return
        try:
            yield self._usable()
        finally:
            self._lock.release()

    def _usable(self) -> psycopg.Connection:
        """Return the kept connection, or a new one where a test has ended that."""
        try:
            if self._kept is not None:
                self._kept.execute("SELECT")
                return self._kept
        except psycopg.OperationalError:
            self._kept = None
        self._kept = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)
        return self._kept

    def close(self) -> None:
        """End the kept connection; the next use begins another."""
        if self._kept is not None:
            self._kept.close()


_side_doors: dict[str, SideDoor] = {}


@contextmanager
def maintenance(dsn: str) -> Iterator[psycopg.Connection]:
    """Yield a connection to the database `postgres` of a dsn's server, which is kept for the next
    databases that are made and dropped.
    """
    address = make_conninfo(dsn, dbname="postgres")
    with _side_doors.setdefault(address, SideDoor(address)).connection() as connection:
        yield connection


def end_maintenance() -> None:
    """End all connections that `maintenance` keeps."""
    while _side_doors:
        _, side_door = _side_doors.popitem()
        side_door.close()


def drop_database(dsn: str) -> None:
    """Drop the database that a dsn names, whoever is still connected."""
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with maintenance(dsn) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
