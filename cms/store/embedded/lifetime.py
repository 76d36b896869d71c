"""Start the embedded server, or join it, for as long as somebody uses it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

import psycopg

from cms.store.embedded import locks, server
from cms.store.embedded.binaries import find_binaries, reachable
from cms.store.embedded.cluster import initialise, version_of
from cms.store.embedded.error import EmbeddedError
from cms.store.embedded.places import Place, choose_place, shelter

DATABASE = "cms"

_log = logging.getLogger(__name__)


class Embedded:
    """A running server, in use until `stop` or the end of the process, however it ends.

    `dsn` is a libpq conninfo for a superuser's session on the database `cms`, `version` the major version,
    `cluster` PostgreSQL's data folder. Forked children use the server as long as their parent does; a program
    that replaces this one by exec does not.
    """

    __slots__ = ("_lock", "_pid", "_place", "cluster", "dsn", "version")

    def __init__(self, place: Place, *, dsn: str, version: int, lock: int) -> None:
        self.dsn = dsn
        self.version = version
        self.cluster = place.cluster
        self._place = place
        self._lock: int | None = lock
        self._pid = os.getpid()

    def stop(self) -> None:
        """Leave; the last to leave stops the server and returns when it has ended. Again does nothing."""
        lock, self._lock = self._lock, None
        if lock is None or self._pid != os.getpid():
            return
        try:
            with locks.exclusively(self._place.locks / "start"):
                if locks.is_last(lock):
                    server.stop(self._place)
        finally:
            locks.release(lock)

    def __enter__(self) -> Embedded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(
    data: Path,
    *,
    binaries: Path | None = None,
    announce: Callable[[str], None] = _log.info,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Embedded:
    """Return the server of the folder `data`, started unless it runs, when it accepts connections.

    `binaries` is the folder of PostgreSQL's programs (POSTGRES_BIN; None: look for them), `announce` is told
    in sentences what a person should know, `settings` are PostgreSQL's and count when the server is started
    here. The data is in `data/postgres`, or where `announce` says. Raises `EmbeddedError`.
    Source: design, section 7.
    """
    try:
        place = choose_place(data, announce)
        place.locks.mkdir(mode=0o700, exist_ok=True)
        with locks.exclusively(place.locks / "start"):
            lock = locks.share(place.locks / "users")
            try:
                return _join(
                    place,
                    lock,
                    launch=lambda: _launch(place, binaries, announce=announce, settings=settings),
                    announce=announce,
                )
            except BaseException:
                locks.release(lock)
                raise
    except (OSError, psycopg.Error) as error:
        raise EmbeddedError(f"The database server of {data} cannot be started. {error}") from error


def _join(place: Place, lock: int, *, launch: Callable[[], None], announce: Callable[[str], None]) -> Embedded:
    postmaster = server.await_server(place, launch, announce=announce)
    version = version_of(place.cluster)
    if version is None:
        raise EmbeddedError(f"{place.cluster} has lost its PG_VERSION. Restore it from a backup.")
    return Embedded(place, dsn=server.ensure_database(postmaster, DATABASE), version=version, lock=lock)


def _launch(place: Place, named: Path | None, *, announce: Callable[[str], None], settings: Mapping[str, str]) -> None:
    wanted = version_of(place.cluster)
    found = find_binaries(named, wanted=wanted)
    binaries = reachable(found, place.account, beside=shelter(place.home, place.account), announce=announce)
    if wanted is None:
        announce(f"A new database is made in {place.cluster}.")
        initialise(place, binaries, durable=settings.get("fsync") != "off")
    server.launch(place, binaries, settings=settings)
