"""Start the embedded server, or join it, for as long as somebody uses it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType

import psycopg

from cms.store.embedded import locks, server
from cms.store.embedded.binaries import find_binaries, reachable
from cms.store.embedded.cluster import initialise, version_of
from cms.store.embedded.error import EmbeddedError
from cms.store.embedded.places import Place, choose_place, existing_place, shelter
from cms.store.embedded.postmaster import read_postmaster

DATABASE = "cms"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """Starts a server as `start` was asked to."""

    binaries: Path | None
    announce: Callable[[str], None]
    settings: Mapping[str, str]

    def __call__(self, place: Place) -> None:
        """Start the server of a place, whose data is made when there is none."""
        wanted = version_of(place.cluster)
        named = find_binaries(self.binaries, wanted=wanted)
        beside = shelter(place.home, place.account)
        binaries = reachable(named, place.account, beside=beside, announce=self.announce)
        if wanted is None:
            self.announce(f"A new database is made in {place.cluster}.")
            initialise(place, binaries, durable=self.settings.get("fsync") != "off")
        server.launch(place, binaries, settings=self.settings)


class Embedded:
    """A running server, in use until `stop` or the end of the process, however it ends.

    `dsn` is a libpq conninfo for a superuser's session on the database `cms`, `version` the major version,
    `cluster` PostgreSQL's data folder. Forked children use the server as long as their parent does; a program
    that replaces this one by exec does not.
    """

    __slots__ = ("_launch", "_lock", "_pid", "_place", "cluster", "dsn", "version")

    def __init__(self, place: Place, *, dsn: str, version: int, lock: int, launch: Launch) -> None:
        self.dsn = dsn
        self.version = version
        self.cluster = place.cluster
        self._place = place
        self._launch = launch
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
        except FileNotFoundError:
            _log.warning("%s is gone; its server ends by itself.", self._place.locks)
        finally:
            locks.release(lock)

    def await_end(self) -> None:
        """Return when the server has ended, by whomever it was ended."""
        try:
            locks.await_release(self._place.locks / "server")
        except FileNotFoundError:
            return  # its folder is gone, and with it whatever could be served

    def restart(self) -> None:
        """Start a server that has ended again, over the same data and at the same address; raises `EmbeddedError`."""
        try:
            with locks.exclusively(self._place.locks / "start"):
                postmaster = server.await_server(self._place, self._start_again, announce=self._launch.announce)
        except (OSError, psycopg.Error) as error:
            raise EmbeddedError(f"The database server of {self.cluster} cannot be started. {error}") from error
        if postmaster.conninfo(DATABASE) != self.dsn:
            raise EmbeddedError(f"The database server of {self.cluster} has another address than before.")

    def _start_again(self) -> None:
        if version_of(self.cluster) is None:
            raise EmbeddedError(f"{self.cluster} holds no database any more. Restore it from a backup.")
        self._launch(self._place)

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
                return _join(place, lock, launch=Launch(binaries, announce, settings))
            except BaseException:
                locks.release(lock)
                raise
    except (OSError, psycopg.Error) as error:
        raise EmbeddedError(f"The database server of {data} cannot be started. {error}") from error


def address_of_running(data: Path) -> str | None:
    """Return the `dsn` of the server of the folder `data` when it runs, else None; starts and makes nothing.

    Raises `EmbeddedError` when this account cannot tell.
    """
    try:
        place = existing_place(data)
        if place is None or not server.is_running(place):
            return None
        postmaster = read_postmaster(place.cluster)
    except OSError as error:
        raise EmbeddedError(f"Whether the database server of {data} runs cannot be told. {error}") from error
    return postmaster.conninfo(DATABASE) if postmaster else None


def _join(place: Place, lock: int, *, launch: Launch) -> Embedded:
    postmaster = server.await_server(place, lambda: launch(place), announce=launch.announce)
    version = version_of(place.cluster)
    if version is None:
        raise EmbeddedError(f"{place.cluster} has lost its PG_VERSION. Restore it from a backup.")
    dsn = server.ensure_database(postmaster, DATABASE)
    return Embedded(place, dsn=dsn, version=version, lock=lock, launch=launch)
