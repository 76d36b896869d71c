"""Data of an older major version copied into a new cluster; the old one is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from cms.embedded import file_locks, postgres_server
from cms.embedded.binaries import Binaries, find_binaries
from cms.embedded.cluster import SUPERUSER, data_version
from cms.embedded.data_folder import (
    DataFolder,
    completion_marker,
    existing_folder,
    unfinished_home,
)
from cms.embedded.error import EmbeddedError
from cms.embedded.lifetime import DATABASE, Launcher
from cms.embedded.programs import find_program
from cms.embedded.system_account import plain_environment

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A finished upgrade: the major versions, and the folder of the old data."""

    before: int
    after: int
    former_data: Path


def upgrade(data: Path, *, binaries: Path | None, announce: Announce) -> Upgrade | None:
    """Upgrade the data of the folder `data` to the installed version; None if it has that already.

    The new version is that of POSTGRES_BIN (`binaries`), else the one that new data would get. The
    programs of the old version must be installed too. Raises `EmbeddedError`, and then the data is
    as it was.
    """
    data_folder = existing_folder(data)
    if data_folder is None:
        raise EmbeddedError(f"There is no database in {data}: nothing to upgrade.")
    try:
        data_folder.locks.mkdir(mode=0o700, exist_ok=True)
        # A service that starts meanwhile waits, and then finds the new data.
        with file_locks.locked(data_folder.locks / "start"):
            return _upgrade(data_folder, binaries, announce)
    except (OSError, psycopg.Error) as error:
        raise EmbeddedError(f"The data in {data} cannot be upgraded. {error}") from error


def _upgrade(
    data_folder: DataFolder, postgres_bin: Path | None, announce: Announce
) -> Upgrade | None:
    version = data_version(data_folder.cluster)
    new = find_binaries(postgres_bin, data_version=None)
    if version is None or version == new.major:
        return None
    if version > new.major:
        raise EmbeddedError(
            f"The data is of PostgreSQL {version}, which is newer than {new.major} in {new.folder}."
        )
    if postgres_server.is_running(data_folder):
        raise EmbeddedError("The database is in use. Stop the service first.")
    old = find_binaries(None, data_version=version)
    unfinished = _new_folder(data_folder)
    try:
        with (
            _served(data_folder, old, announce) as old_dsn,
            _served(unfinished, new, announce, is_new=True) as new_dsn,
        ):
            _announce_rest(old_dsn, announce)
            _copy(old_dsn, new_dsn, new)
            _compare(old_dsn, new_dsn)
    except BaseException:
        postgres_server.stop(unfinished, immediately=True)
        shutil.rmtree(unfinished.home)
        raise
    return Upgrade(version, new.major, _exchange(data_folder, unfinished, version))


def _new_folder(data_folder: DataFolder) -> DataFolder:
    """Make the folder of the new cluster, after removing the remains of an interrupted upgrade."""
    unfinished = DataFolder(unfinished_home(data_folder.home), data_folder.account)
    if postgres_server.is_running(unfinished):
        raise EmbeddedError("Another upgrade ends just now. Try again in a moment.")
    if unfinished.home.exists():
        shutil.rmtree(unfinished.home)
    unfinished.home.mkdir(mode=0o755)
    unfinished.locks.mkdir(mode=0o700)
    return unfinished


@contextmanager
def _served(
    data_folder: DataFolder, binaries: Binaries, announce: Announce, *, is_new: bool = False
) -> Iterator[str]:
    """Yield the address of a server that runs meanwhile; makes its data if there is none."""
    # As long as this is held, the watchdog does not stop the server; it does if we are killed.
    lock = file_locks.acquire_shared(data_folder.locks / "users")
    launch = Launcher(binaries.folder, announce, {})
    try:
        postmaster = postgres_server.await_server(
            data_folder, lambda: launch(data_folder), announce=announce
        )
        yield postgres_server.ensure_database(postmaster, DATABASE)
    except BaseException:
        postgres_server.stop(data_folder, immediately=is_new)
        raise
    else:
        postgres_server.stop(data_folder)
    finally:
        file_locks.release(lock)


def _announce_rest(dsn: str, announce: Announce) -> None:
    """Name the objects of others in the server: only the service's database is copied."""
    query = """
        SELECT 'database ' || datname FROM pg_database
        WHERE NOT datistemplate AND datname NOT IN ('postgres', %s)
        UNION ALL
        SELECT 'role ' || rolname FROM pg_roles
        WHERE rolname !~ '^pg_' AND rolname <> %s
        UNION ALL
        SELECT 'setting ' || split_part(setting, '=', 1)
        FROM pg_db_role_setting, unnest(setconfig) AS setting
        ORDER BY 1
    """
    with psycopg.connect(dsn) as session:
        rest = [name for (name,) in session.execute(query, [DATABASE, SUPERUSER])]
    if rest:
        announce(f"Not copied, and kept in the old folder: {', '.join(rest)}.")


def _copy(old_dsn: str, new_dsn: str, new: Binaries) -> None:
    """Copy the database with the programs of the new version, as one stream."""
    dump = find_program("pg_dump", postgres_bin=new.folder, major=new.major)
    restore = find_program("pg_restore", postgres_bin=new.folder, major=new.major)
    # Roles are not copied; the service's is the superuser, whom every cluster has.
    options = ["--no-owner", "--no-privileges"]
    read = [str(dump), "--format=custom", "--compress=0", f"--dbname={old_dsn}", *options]
    write = [
        str(restore),
        "--exit-on-error",
        "--single-transaction",
        f"--dbname={new_dsn}",
        *options,
    ]
    with tempfile.TemporaryFile() as errors:
        reader = subprocess.Popen(
            read,
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        writer = subprocess.run(
            write, env=plain_environment(), stdin=reader.stdout, stderr=errors, check=False
        )
        # Without this end the reader would wait for ever for a writer that has failed.
        assert reader.stdout is not None
        reader.stdout.close()
        if reader.wait() or writer.returncode:
            errors.seek(0)
            reason = errors.read().decode(errors="replace").strip()
            raise EmbeddedError(f"The data could not be copied, and is as it was. {reason}")


def _compare(old_dsn: str, new_dsn: str) -> None:
    """Raise `EmbeddedError` unless all tables have the same number of rows in both."""
    if _counts(old_dsn) != _counts(new_dsn):
        raise EmbeddedError("The copy is not complete, and was given up. The data is as it was.")
    with psycopg.connect(new_dsn, autocommit=True) as session:
        # The planner does not know the new rows yet.
        session.execute("ANALYZE")


def _counts(dsn: str) -> dict[tuple[str, str], int]:
    # Neither materialized views, which are filled anew, nor tables that extensions fill.
    query = """
        SELECT nspname, relname
        FROM pg_class AS class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE relkind = 'r' AND relpersistence <> 't'
          AND nspname !~ '^(pg_|information_schema$)'
          AND NOT EXISTS (
            SELECT
            FROM pg_depend
            WHERE classid = 'pg_class'::regclass AND objid = class.oid AND deptype = 'e'
          )
    """
    counts = {}
    with psycopg.connect(dsn) as session:
        for schema, name in session.execute(query).fetchall():
            table = sql.Identifier(schema, name)
            row = session.execute(sql.SQL("SELECT count(*) FROM ONLY {}").format(table)).fetchone()
            assert row is not None
            counts[schema, name] = int(row[0])
    return counts


def _exchange(data_folder: DataFolder, unfinished: DataFolder, version: int) -> Path:
    """Exchange the old data for the new, and return where the old is now."""
    former_data = _free_name(data_folder.home / f"postgres-{version}")
    # A start between the two renames makes no new data: see `Launcher`.
    completion_marker(data_folder.home).touch()
    data_folder.cluster.rename(former_data)
    unfinished.cluster.rename(data_folder.cluster)
    descriptor = os.open(data_folder.home, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    shutil.rmtree(unfinished.home)
    return former_data


def _free_name(path: Path) -> Path:
    """Return the path, or one with a number behind it if something is there."""
    number = 2
    free = path
    while free.exists():
        free = path.with_name(f"{path.name}.{number}")
        number += 1
    return free
