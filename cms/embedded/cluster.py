"""PostgreSQL's data folder, which is made whole or not at all, and the settings of its server."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cms.embedded import EmbeddedError
from cms.embedded.binaries import Binaries
from cms.embedded.data_folder import DataFolder
from cms.embedded.file_locks import acquire, release
from cms.embedded.system_account import SystemAccount, run_as
from cms.processes.machine import GIBIBYTE, MEBIBYTE, Machine

SUPERUSER = "postgres"

# Written into postgresql.conf once, where its owner may change them; what depends on the machine is
# not among them (`machine_settings`). The log says what happens to the server and never what people
# store: no statements, no rows. It has seven files, one for each day of the week, so that it does
# not grow for ever. PostgreSQL's own random_page_cost is that of turning disks: with it, plans for
# given values look so much cheaper than the prepared plan that each execution is planned anew,
# which takes longer than it saves.
INITIAL_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "jit": "off",
        "random_page_cost": "1.1",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "on",
        "log_directory": "log",
        "log_filename": "postgresql-%a.log",
        "log_truncate_on_rotation": "on",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_line_prefix": "%m [%p] %q%u@%d ",
        "log_error_verbosity": "terse",
        "log_min_error_statement": "panic",
    }
)

_INITDB_GUESSES = re.compile("^(?:max_connections|shared_buffers) *=", re.MULTILINE)
"""The settings that `initdb` has tried out, of those in `machine_settings`."""


def data_version(cluster: Path) -> int | None:
    """Return the major version of the data, None if there is no data."""
    try:
        return int((cluster / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None


def initialise(data_folder: DataFolder, binaries: Binaries, *, durable: bool) -> None:
    """Make a cluster in a temporary folder and move it into place when it is complete.

    So an unfinished one is never taken for data. Without `durable` it is not flushed to disk.
    Raises `EmbeddedError` with the message of `initdb`, and if other files are in the way.
    """
    unfinished = data_folder.home / "postgres.new"
    if data_folder.cluster.exists() and any(data_folder.cluster.iterdir()):
        raise EmbeddedError(
            f"{data_folder.cluster} holds something that is no PostgreSQL data. Move it away."
        )
    if unfinished.exists():
        # A start that was cut off has left it: callers hold the lock `start`.
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    if not data_folder.account.is_own:
        os.chown(unfinished, data_folder.account.uid, data_folder.account.gid)
    # `initdb` inherits the lock: while an orphaned one still writes, no other process begins.
    lock = acquire(data_folder.locks / "server")
    try:
        program = binaries.folder / "initdb"
        _initdb(unfinished, data_folder.account, program=program, durable=durable, lock=lock)
    finally:
        release(lock)
    _configure(unfinished / "postgresql.conf")
    # An empty folder in its place is replaced; anything in it was refused above.
    unfinished.rename(data_folder.cluster)
    if durable:
        _flush(data_folder.home)


def _initdb(
    cluster: Path, account: SystemAccount, *, program: Path, durable: bool, lock: int
) -> None:
    command: list[str | Path] = [program, "-D", cluster, "-U", SUPERUSER, "-E", "UTF8"]
    command += [*_locale(), "--data-checksums", "--no-instructions"]
    # Only the server's account can enter the folder of the socket, and no port is opened.
    command += ["--auth-local=trust", "--auth-host=reject"]
    result = run_as(account, command if durable else [*command, "--no-sync"], inherited=[lock])
    if result.returncode:
        raise EmbeddedError(
            f"A new database cannot be made in {cluster.parent}. {result.stderr.strip()}"
        )


def _locale() -> list[str]:
    """Return the options of a locale that sorts alike everywhere; old macOS lacks C.UTF-8."""
    if sys.platform == "darwin":
        return ["--locale=C", "--lc-ctype=en_US.UTF-8"]
    return ["--locale=C.UTF-8"]


def _configure(path: Path) -> None:
    """Add our settings, and take out those of `initdb` that depend on the machine."""
    lines = "".join(f"{name} = '{value}'\n" for name, value in INITIAL_SETTINGS.items())
    # The server's account owns the folder: a link there must not lead root elsewhere.
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    with open(descriptor, "r+", encoding="utf-8") as file:
        text = _INITDB_GUESSES.sub(r"#\g<0>", file.read())
        file.seek(0)
        file.write(text)
        file.write(f"\n# Set when this database was made; change what you like.\n{lines}")
        file.flush()
        os.fsync(file.fileno())


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Settings that depend on the machine, in a file of their own, which includes postgresql.conf: what
# is set there, or by ALTER SYSTEM, overrides them


def machine_settings(machine: Machine) -> dict[str, str]:
    """Return PostgreSQL's settings for a machine on which the service itself runs too.

    So the server takes an eighth of the memory for itself, where a machine of its own would give it
    a quarter. The kernel's cache of its files is in the rest.
    """
    memory = machine.memory
    cores = machine.cores
    return {
        # Each core has a web worker of up to a dozen connections, and 16 workers are usual at most.
        "max_connections": str(max(200, 40 + 15 * min(cores, 32))),
        "shared_buffers": _size(memory // 8, lowest=32 * MEBIBYTE, highest=8 * GIBIBYTE),
        "effective_cache_size": _size(memory // 2, lowest=128 * MEBIBYTE),
        # For each sort and hash of each query: all connections at once must not take everything.
        "work_mem": _size(memory // 512, lowest=4 * MEBIBYTE, highest=64 * MEBIBYTE),
        "maintenance_work_mem": _size(memory // 32, lowest=32 * MEBIBYTE, highest=GIBIBYTE),
        "max_worker_processes": str(max(8, cores)),
        "max_parallel_workers": str(cores),
        # Half of the cores are left to other requests; one core gains nothing by parallel work.
        "max_parallel_workers_per_gather": str(min(cores // 2, 4)),
    }


def write_settings(data_folder: DataFolder, machine: Machine) -> Path:
    """Write the file of settings that a server starts with, and return it."""
    # Beside the cluster: in there, which belongs to the server's account, a link could lead root
    # elsewhere.
    path = data_folder.home / "postgres.conf"
    lines = [f"{name} = '{value}'\n" for name, value in machine_settings(machine).items()]
    included = _quoted(data_folder.cluster / "postgresql.conf")
    text = (
        "# Written at each start, for the memory and the cores of this machine. "
        "Change nothing here:\n"
        "# what postgresql.conf sets, which is included last, counts instead.\n"
        f"{''.join(lines)}include {included}\n"
    )
    content = text.encode("utf-8", "surrogateescape")
    # Mostly it is there already: a full disk must not keep a server from starting again.
    if not path.exists() or path.read_bytes() != content:
        unfinished = path.with_name("postgres.conf.new")
        unfinished.unlink(missing_ok=True)
        unfinished.write_bytes(content)
        unfinished.chmod(0o644)  # for the server's account; there is nothing secret in it
        unfinished.replace(path)
    return path


def _quoted(path: Path) -> str:
    """Return a path as a value of PostgreSQL's settings, which know escapes."""
    text = str(path).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def _size(size: int, *, lowest: int, highest: int | None = None) -> str:
    size = max(size, lowest)
    if highest is not None:
        size = min(size, highest)
    return f"{size // MEBIBYTE}MB"
