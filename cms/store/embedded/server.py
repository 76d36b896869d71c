"""Start, greet and stop the server of a cluster; whoever calls these holds the lock `start`."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psycopg

from cms.store.embedded.accounts import Account, can_enter, plain_environment, run_as
from cms.store.embedded.binaries import Binaries
from cms.store.embedded.error import EmbeddedError
from cms.store.embedded.locks import hold, is_held
from cms.store.embedded.places import Place
from cms.store.embedded.postmaster import PORT, Postmaster, listens, read_postmaster

KEEPER = Path(__file__).with_name("keeper.py")

# A socket's path with its closing NUL has 108 bytes on Linux and 104 on macOS.
LONGEST_SOCKET = 103

SOCKET_FILES = (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock")

PAUSE_SECONDS = 0.01

# Recovery after a crash replays at most max_wal_size, a shutdown writes at most shared_buffers.
PATIENCE_SECONDS = 300.0

SILENCE_SECONDS = 3.0


def is_running(place: Place) -> bool:
    """Tell whether a process of the server lives, be it one that its killed parent left behind."""
    return is_held(place.locks / "server")


def await_server(place: Place, launch: Callable[[], None], *, announce: Callable[[str], None]) -> Postmaster:
    """Return the server as soon as it accepts connections; `launch` it when it is not running, or no longer.

    Raises `EmbeddedError` with the server's last words when it ends, with its answer when it takes too long.
    """
    launched = announced = False
    answer = ""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE_SECONDS:
        if not is_running(place):
            if launched:
                raise EmbeddedError(f"The server of {place.cluster} did not start. {_last_words(place)}")
            launch()
            launched = True
            began = time.monotonic()
        try:
            return _greet(place)
        except psycopg.OperationalError as error:
            answer = str(error)
        if not announced and time.monotonic() > began + SILENCE_SECONDS:
            announce(f"Waiting for the server of {place.cluster}. {answer}")
            announced = True
        time.sleep(PAUSE_SECONDS)
    raise EmbeddedError(f"The server of {place.cluster} does not accept connections. {answer}")


def launch(place: Place, binaries: Binaries, *, settings: Mapping[str, str]) -> None:
    """Start the server under a keeper; returns as soon as it is a process."""
    _clear_leftovers(place.cluster)
    sockets = _socket_folder(place)
    if sockets != place.cluster:
        for name in SOCKET_FILES:
            (sockets / name).unlink(missing_ok=True)
    lock = hold(place.locks / "server")
    try:
        command = [*_keeper(place, lock, sockets=sockets), binaries.folder / "postgres", "-D", place.cluster]
        command += _given({**_private(sockets), **settings})
        keeper = subprocess.run(
            [str(word) for word in command],
            pass_fds=[lock],
            cwd="/",
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    finally:
        os.close(lock)  # and not release: the server has it now
    if keeper.stderr:
        raise EmbeddedError(f"The server of {place.cluster} cannot be started. {keeper.stderr.strip()}")


def stop(place: Place) -> None:
    """Stop the server with a fast shutdown: open transactions roll back, and there is nothing to recover."""
    postmaster = read_postmaster(place.cluster)
    if postmaster and listens(postmaster):
        # As the server's account, so that root signals no other program whatever number the file holds.
        run_as(place.account, ["/bin/sh", "-c", 'kill -INT "$0"', str(postmaster.pid)])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_running(place):
        if time.monotonic() > deadline:
            raise EmbeddedError(f"The server of {place.cluster} does not stop. {_last_words(place)}")
        time.sleep(PAUSE_SECONDS)


def ensure_database(postmaster: Postmaster, name: str) -> str:
    """Return the conninfo of the database `name`, which is made when it is not there."""
    with psycopg.connect(postmaster.conninfo("postgres"), autocommit=True) as session:
        if not session.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount:
            # template0 has no users that could be in the way
            session.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return postmaster.conninfo(name)


def _keeper(place: Place, lock: int, *, sockets: Path) -> list[str | Path]:
    early_log = place.locks / "start.log"
    early_log.unlink(missing_ok=True)
    ids = "-" if place.account.is_ours else f"{place.account.uid}:{place.account.gid}"
    scratch = "-" if sockets == place.cluster else sockets
    script: list[str | Path] = [sys.executable, "-I", "-S", KEEPER]
    return [*script, str(lock), place.locks / "users", early_log, ids, scratch]


def _private(sockets: Path) -> Mapping[str, str]:
    return {
        "listen_addresses": "",
        "port": PORT,
        "unix_socket_directories": str(sockets),
        "unix_socket_permissions": "0700",
    }


def _given(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _greet(place: Place) -> Postmaster:
    postmaster = read_postmaster(place.cluster)
    if postmaster is None:
        raise psycopg.OperationalError("It has not said yet where it listens.")
    psycopg.connect(postmaster.conninfo("postgres"), connect_timeout=5).close()
    return postmaster


def _clear_leftovers(cluster: Path) -> None:
    """Remove the files of a server that was killed.

    PostgreSQL does so itself, but not when the process number now belongs to another program of the same
    account. No process of a server that we started lives; one that somebody else started is refused. Where
    that one does not show itself, PostgreSQL finds it by its shared memory and does not start.
    """
    postmaster = read_postmaster(cluster)
    if postmaster and Path(postmaster.cluster) == cluster and listens(postmaster):
        raise EmbeddedError(
            f"{cluster} is served by process {postmaster.pid}, which was not started here. Stop it first."
        )
    for name in ("postmaster.pid", *SOCKET_FILES):
        (cluster / name).unlink(missing_ok=True)


def _socket_folder(place: Place) -> Path:
    """Return the folder of the socket: the cluster, or a private temporary one when that has no address.

    That is so when its path is too long, or holds the comma that separates hosts. Its name belongs to the cluster, so
    that a server that is started again has the same address.
    """
    path = place.cluster / f".s.PGSQL.{PORT}"
    if len(os.fsencode(path)) <= LONGEST_SOCKET and "," not in str(path):
        return place.cluster
    name = hashlib.sha256(os.fsencode(place.cluster)).hexdigest()[:8]
    folder = _temporary(place) / f"cms-{name}"
    _private_folder(folder, place.account)
    return folder


def _private_folder(folder: Path, account: Account) -> None:
    """Make a folder that only the account may enter; one that a killed server has left is used again."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if not account.is_ours:
            os.chown(folder, account.uid, account.gid)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != account.uid or status.st_mode & 0o077:
        raise EmbeddedError(f"{folder} is in the way of the database's socket. Remove it.")


def _temporary(place: Place) -> Path:
    folder = Path(tempfile.gettempdir())
    fits = len(os.fsencode(folder)) < LONGEST_SOCKET - len("/cms-12345678/.s.PGSQL.5432")
    return folder if fits and "," not in str(folder) and can_enter(place.account, folder) else Path("/tmp")


def _last_words(place: Place) -> str:
    """Return the end of the log that was written last."""
    logs = [path for path in (place.locks / "start.log", *place.cluster.glob("log/*.log")) if path.exists()]
    if not logs:
        return "It left no log."
    newest = max(logs, key=lambda path: path.stat().st_mtime_ns)
    return f"Its log {newest} ends with:\n" + "\n".join(newest.read_text(errors="replace").splitlines()[-5:])
