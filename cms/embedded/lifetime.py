"""The embedded server, started or joined, for as long as it is in use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psycopg

from cms.embedded import EmbeddedError, file_locks, postgres_server
from cms.embedded.binaries import find_binaries, make_runnable
from cms.embedded.cluster import data_version, initialise
from cms.embedded.data_folder import (
    DataFolder,
    choose_folder,
    existing_folder,
    fallback_folder,
)
from cms.embedded.postgres_server import read_postmaster

DATABASE = "cms"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts a server with the arguments of `start`."""

    binaries: Path | None
    announce: Callable[[str], None]
    settings: Mapping[str, str]

    def __call__(self, data_folder: DataFolder) -> None:
        """Start the server of a folder; makes its data if there is none."""
        account = data_folder.account
        version = data_version(data_folder.cluster)
        binaries = find_binaries(self.binaries, data_version=version)
        copies = fallback_folder(data_folder.home, account)
        binaries = make_runnable(binaries, account, copies=copies, announce=self.announce)
        if version is None:
            self.announce(f"A new database is made in {data_folder.cluster}.")
            initialise(data_folder, binaries, durable=self.settings.get("fsync") != "off")
        postgres_server.launch(data_folder, binaries, settings=self.settings)


class EmbeddedServer:
    """A running server, in use until `stop` or the end of the process, however that ends.

    `dsn` is a libpq conninfo for a superuser's session on the database `cms`, `version` the major
    version, `cluster` PostgreSQL's data folder. Forked children use the server as long as their
    parent does; a program that replaces this one by exec does not.
    """

    __slots__ = ("_data_folder", "_launcher", "_lock", "_pid", "cluster", "dsn", "version")

    def __init__(
        self, data_folder: DataFolder, *, dsn: str, version: int, lock: int, launch: Launcher
    ) -> None:
        self.dsn = dsn
        self.version = version
        self.cluster = data_folder.cluster
        self._data_folder = data_folder
        self._launcher = launch
        self._lock: int | None = lock
        self._pid = os.getpid()

    def stop(self) -> None:
        """End this use; the last user stops the server and waits for it. Again it does nothing."""
        lock = self._lock
        self._lock = None
        if lock is None or self._pid != os.getpid():  # a forked child leaves it to its parent
            return
        try:
            # While this is held nobody joins, so the last user is still the last when it stops.
            with file_locks.locked(self._data_folder.locks / "start"):
                if file_locks.is_last_user(lock):
                    postgres_server.stop(self._data_folder)
        except FileNotFoundError:
            _log.warning("%s is gone; its server ends by itself.", self._data_folder.locks)
        finally:
            file_locks.release(lock)

    def await_end(self) -> None:
        """Return when the server has ended, whoever ended it."""
        try:
            file_locks.await_release(self._data_folder.locks / "server")
        except FileNotFoundError:
            return  # its folder is gone, and the server with it

    def restart(self) -> None:
        """Start an ended server again, with the same data and address; raises `EmbeddedError`."""
        try:
            with file_locks.locked(self._data_folder.locks / "start"):
                # Another user may have been faster: then this only waits until it answers.
                postmaster = postgres_server.await_server(
                    self._data_folder, self._start_again, announce=self._launcher.announce
                )
        except (OSError, psycopg.Error) as error:
            raise _not_started(self.cluster, error) from error
        # Connections are made with the address of the first start.
        if postmaster.conninfo(DATABASE) != self.dsn:
            raise EmbeddedError(
                f"The database server of {self.cluster} has another address than before."
            )

    def _start_again(self) -> None:
        if data_version(self.cluster) is None:
            raise EmbeddedError(
                f"{self.cluster} holds no database any more. Restore it from a backup."
            )
        self._launcher(self._data_folder)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    data: Path,
    *,
    binaries: Path | None = None,
    announce: Callable[[str], None] = _log.info,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> EmbeddedServer:
    """Return the server of the folder `data` when it accepts connections; starts it if needed.

    `binaries` is the folder of PostgreSQL's programs (POSTGRES_BIN; None: look for them).
    `announce` gets sentences that a person should read. `settings` are PostgreSQL's and count if
    the server is started here. The data is in `data/postgres`, or where `announce` says. Raises
    `EmbeddedError`.
    """
    try:
        data_folder = choose_folder(data, announce)
        data_folder.locks.mkdir(mode=0o700, exist_ok=True)
        with file_locks.locked(data_folder.locks / "start"):
            # First of all: from now on the watchdog does not stop the server. If it is doing so
            # just now, this waits until it is done.
            lock = file_locks.acquire_shared(data_folder.locks / "users")
            try:
                return _join(data_folder, lock, launch=Launcher(binaries, announce, settings))
            except BaseException:
                file_locks.release(lock)
                raise
    except (OSError, psycopg.Error) as error:
        raise _not_started(data, error) from error


def _not_started(folder: Path, error: Exception) -> EmbeddedError:
    return EmbeddedError(f"The database server of {folder} cannot be started. {error}")


def running_dsn(data: Path) -> str | None:
    """Return the `dsn` of the server of the folder `data` if it runs; starts and makes nothing.

    Raises `EmbeddedError` when this account cannot tell.
    """
    try:
        data_folder = existing_folder(data)
        if data_folder is None or not postgres_server.is_running(data_folder):
            return None
        postmaster = read_postmaster(data_folder.cluster)
    except OSError as error:
        raise EmbeddedError(
            f"It is unknown whether the database server of {data} runs. {error}"
        ) from error
    return postmaster.conninfo(DATABASE) if postmaster else None


def _join(data_folder: DataFolder, lock: int, *, launch: Launcher) -> EmbeddedServer:
    postmaster = postgres_server.await_server(
        data_folder, lambda: launch(data_folder), announce=launch.announce
    )
    version = data_version(data_folder.cluster)
    if version is None:
        raise EmbeddedError(
            f"{data_folder.cluster} has lost its PG_VERSION. Restore it from a backup."
        )
    dsn = postgres_server.ensure_database(postmaster, DATABASE)
    return EmbeddedServer(data_folder, dsn=dsn, version=version, lock=lock, launch=launch)
