"""Start, await and stop the server of a cluster; callers hold the lock `start`."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cms.embedded import EmbeddedError
from cms.embedded.binaries import Binaries
from cms.embedded.cluster import SUPERUSER, write_settings
from cms.embedded.data_folder import DataFolder
from cms.embedded.file_locks import acquire, is_held
from cms.embedded.system_account import SystemAccount, can_enter, plain_environment, run_as
from cms.processes.machine import present_machine

WATCHDOG = Path(__file__).with_name("watchdog.py")

# The path of a socket and its closing NUL have at most 108 bytes on Linux and 104 on macOS.
MAX_SOCKET_PATH = 103

PORT = "5432"  # part of the name of the socket; no network port is opened

SOCKET_FILES = (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock")

POLL_SECONDS = 0.01

# Recovery after a crash replays at most max_wal_size, a shutdown writes at most shared_buffers.
TIMEOUT_SECONDS = 300.0

ANNOUNCE_AFTER_SECONDS = 3.0


def is_running(data_folder: DataFolder) -> bool:
    """Tell whether any process of the server lives, also one whose parent was killed."""
    return is_held(data_folder.locks / "server")


def await_server(
    data_folder: DataFolder, launch: Callable[[], None], *, announce: Callable[[str], None]
) -> Postmaster:
    """Return the server as soon as it accepts connections; calls `launch` if it does not run.

    Raises `EmbeddedError` with the end of the log if it ends, with its answer if it takes too long.
    """
    is_launched = False
    is_announced = False
    answer = ""
    began = time.monotonic()
    while time.monotonic() < began + TIMEOUT_SECONDS:
        if not is_running(data_folder):
            # It has ended: the lock went with the last of its processes.
            if is_launched:
                raise EmbeddedError(
                    f"The server of {data_folder.cluster} did not start. {_log_end(data_folder)}"
                )
            launch()
            is_launched = True
            began = time.monotonic()  # the time for making new data does not count
        try:
            return _connect_to(data_folder)
        except psycopg.OperationalError as error:
            answer = str(error)
        if not is_announced and time.monotonic() > began + ANNOUNCE_AFTER_SECONDS:
            announce(f"Waiting for the server of {data_folder.cluster}. {answer}")
            is_announced = True
        time.sleep(POLL_SECONDS)
    raise EmbeddedError(
        f"The server of {data_folder.cluster} does not accept connections. {answer}"
    )


def launch(data_folder: DataFolder, binaries: Binaries, *, settings: Mapping[str, str]) -> None:
    """Start the server under a watchdog; returns as soon as it is a process."""
    _clear_leftovers(data_folder.cluster)
    sockets = _socket_folder(data_folder)
    # A server that was killed leaves its files here as well.
    if sockets != data_folder.cluster:
        for name in SOCKET_FILES:
            (sockets / name).unlink(missing_ok=True)
    lock = acquire(data_folder.locks / "server")
    try:
        command = [
            *_watchdog_command(data_folder, lock, sockets=sockets),
            binaries.folder / "postgres",
            "-D",
            data_folder.cluster,
        ]
        # The file comes with the command: PostgreSQL finds the folder of its data by `-D` all the
        # same.
        config_file = write_settings(data_folder, present_machine())
        all_settings = {"config_file": str(config_file), **_socket_settings(sockets), **settings}
        for name, value in all_settings.items():
            command += ["-c", f"{name}={value}"]
        # This ends when the watchdog has closed its output: it does so when the server is started.
        watchdog = subprocess.run(
            [str(argument) for argument in command],
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
        # Closed, not released: the server has the lock now.
        os.close(lock)
    # Before it closes its output, the watchdog prints nothing but the error of a failed start.
    if watchdog.stderr:
        raise EmbeddedError(
            f"The server of {data_folder.cluster} cannot be started. {watchdog.stderr.strip()}"
        )


def stop(data_folder: DataFolder) -> None:
    """Stop the server by a fast shutdown: open transactions roll back, recovery is not needed."""
    is_signalled = False
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while is_running(data_folder):
        # A server that is starting is sent the signal as soon as it listens.
        if not is_signalled:
            is_signalled = _signal_shutdown(data_folder)
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"The server of {data_folder.cluster} does not stop. {_log_end(data_folder)}"
            )
        time.sleep(POLL_SECONDS)


def _signal_shutdown(data_folder: DataFolder) -> bool:
    """Send the server the signal of a shutdown; False if it does not listen."""
    postmaster = read_postmaster(data_folder.cluster)
    if postmaster is None or not is_listening(postmaster):
        return False
    # As the server's account, so that root signals no other program whatever number the file holds.
    run_as(data_folder.account, ["/bin/sh", "-c", 'kill -INT "$0"', str(postmaster.pid)])
    return True


def ensure_database(postmaster: Postmaster, name: str) -> str:
    """Return the conninfo of the database `name`; makes it if it does not exist."""
    with psycopg.connect(postmaster.conninfo("postgres"), autocommit=True) as session:
        if not session.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount:
            # Nobody is connected to template0, which would be in the way. The name is a constant of
            # this package, without a quote.
            session.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return postmaster.conninfo(name)


def _watchdog_command(data_folder: DataFolder, lock: int, *, sockets: Path) -> list[str | Path]:
    early_log = data_folder.locks / "start.log"
    early_log.unlink(missing_ok=True)
    account = data_folder.account
    ids = "-" if account.is_own else f"{account.uid}:{account.gid}"
    scratch = "-" if sockets == data_folder.cluster else sockets
    # Without site packages: the watchdog needs none, and starts sooner and smaller.
    script: list[str | Path] = [sys.executable, "-I", "-S", WATCHDOG]
    return [*script, str(lock), data_folder.locks / "users", early_log, ids, scratch]


def _socket_settings(sockets: Path) -> Mapping[str, str]:
    return {
        "listen_addresses": "",
        "port": PORT,
        "unix_socket_directories": str(sockets),
        "unix_socket_permissions": "0700",
    }


def _connect_to(data_folder: DataFolder) -> Postmaster:
    postmaster = read_postmaster(data_folder.cluster)
    if postmaster is None:
        raise psycopg.OperationalError("It has not said yet where it listens.")
    psycopg.connect(postmaster.conninfo("postgres"), connect_timeout=5).close()
    return postmaster


def _clear_leftovers(cluster: Path) -> None:
    """Remove the files of a server that was killed.

    PostgreSQL does so itself, unless the process number now belongs to another program of the same
    account. No server that was started here lives now; one that listens was started by somebody
    else, and is an error. One that does not listen PostgreSQL finds by its shared memory, and does
    not start.
    """
    postmaster = read_postmaster(cluster)
    if postmaster and Path(postmaster.cluster) == cluster and is_listening(postmaster):
        raise EmbeddedError(
            f"{cluster} is served by process {postmaster.pid}, which was not started here. "
            "Stop it first."
        )
    for name in ("postmaster.pid", *SOCKET_FILES):
        (cluster / name).unlink(missing_ok=True)


def _socket_folder(data_folder: DataFolder) -> Path:
    """Return the folder of the socket: the cluster, or a private temporary one.

    The cluster cannot be one if its path is too long, or holds a comma, which separates hosts. The
    name of the temporary folder depends on the cluster only: a server that is started again has the
    same address.
    """
    path = data_folder.cluster / f".s.PGSQL.{PORT}"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH and "," not in str(path):
        return data_folder.cluster
    name = hashlib.sha256(os.fsencode(data_folder.cluster)).hexdigest()[:8]
    folder = _temporary_folder(data_folder) / f"cms-{name}"
    _private_folder(folder, data_folder.account)
    return folder


def _private_folder(folder: Path, account: SystemAccount) -> None:
    """Make a folder that only the account may enter, or use one that a killed server left."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if not account.is_own:
            os.chown(folder, account.uid, account.gid)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != account.uid or status.st_mode & 0o077:
        raise EmbeddedError(f"{folder} is in the way of the database's socket. Remove it.")


def _temporary_folder(data_folder: DataFolder) -> Path:
    folder = Path(tempfile.gettempdir())
    is_short = len(os.fsencode(folder)) < MAX_SOCKET_PATH - len("/cms-12345678/.s.PGSQL.5432")
    if is_short and "," not in str(folder) and can_enter(data_folder.account, folder):
        return folder
    return Path("/tmp")  # short, and open to every account


def _log_end(data_folder: DataFolder) -> str:
    """Return the last lines of the newest log."""
    logs = [data_folder.locks / "start.log", *data_folder.cluster.glob("log/*.log")]
    logs = [path for path in logs if path.exists()]
    if not logs:
        return "It left no log."
    newest = max(logs, key=lambda path: path.stat().st_mtime_ns)
    lines = newest.read_text(errors="replace").splitlines()
    return f"Its log {newest} ends with:\n" + "\n".join(lines[-5:])


# The process that serves a cluster and its address, by the file `postmaster.pid`


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The contents of `postmaster.pid`; the server may have ended."""

    pid: int
    cluster: str
    port: str
    sockets: str

    def conninfo(self, database: str) -> str:
        return make_conninfo("", host=self.sockets, port=self.port, user=SUPERUSER, dbname=database)


def read_postmaster(cluster: Path) -> Postmaster | None:
    """Return the contents of `postmaster.pid`, None if it is missing or incomplete."""
    try:
        lines = (cluster / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    # The server adds lines as it starts. Of a single-user server the number is negative.
    if len(lines) < 6 or not lines[0].isdigit():
        return None
    # Below follow the network address, the key of the shared memory, and the status.
    pid, folder, _started, port, sockets, *_rest = lines
    return Postmaster(int(pid), folder, port, sockets)


def is_listening(postmaster: Postmaster) -> bool:
    """Tell whether the postmaster itself lives: its children do not listen."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(f"{postmaster.sockets}/.s.PGSQL.{postmaster.port}") == 0
