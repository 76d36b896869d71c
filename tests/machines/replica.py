"""A primary and a replica that streams from it, and can be made to stand still."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cms.embedded.lifetime import start
from tests.smoke.running import TIMEOUT_SECONDS
from tests.waiting import eventually

SETTINGS = {"wal_level": "replica", "max_wal_senders": "5", "hot_standby": "on", "fsync": "off"}


@dataclass(frozen=True)
class Servers:
    primary: str
    replica: str
    primary_data: Path

    def stand_still(self) -> None:
        """Let the replica receive what happens, and show none of it."""
        self.await_replica()
        self._on_replica("SELECT pg_wal_replay_pause()")
        state = "SELECT pg_get_wal_replay_pause_state()"
        eventually(lambda: self._on_replica(state) == "paused")

    def go_on(self) -> None:
        self._on_replica("SELECT pg_wal_replay_resume()")
        self.await_replica()

    def await_replica(self) -> None:
        """Wait until the replica has all that the primary has now."""
        with psycopg.connect(self.primary, autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{row[0]}'::pg_lsn"
        eventually(lambda: self._on_replica(caught_up) is True)

    def _on_replica(self, sql: str) -> object:
        with psycopg.connect(self.replica, autocommit=True) as connection:
            row = connection.execute(sql.encode()).fetchone()
            return row and row[0]


@contextmanager
def replicated() -> Iterator[Servers]:
    """Run a primary and its replica, made by pg_basebackup of the same binaries."""
    named = os.environ.get("POSTGRES_BIN") or debian_binaries()
    with TemporaryDirectory(prefix="cms-replica-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        programs = Path(named)
        primary = stack.enter_context(
            start(folder / "primary", binaries=programs, settings=SETTINGS)
        )
        copy_cluster(programs, primary.dsn, primary.cluster, folder / "replica" / "postgres")
        replica = stack.enter_context(
            start(folder / "replica", binaries=programs, settings=SETTINGS)
        )
        yield Servers(primary.dsn, replica.dsn, folder / "primary")


def debian_binaries() -> str:
    """Return a folder of PostgreSQL's programs with pg_basebackup, which the embedded ones lack."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "pg_basebackup").exists():
            return str(folder)
    pytest.skip("pg_basebackup is needed")


def copy_cluster(programs: Path, dsn: str, cluster: Path, target: Path) -> None:
    """Make the data of a replica as the account that owns the primary's."""
    owner = cluster.stat()
    target.parent.mkdir()
    if os.geteuid() == 0:
        os.chown(target.parent, owner.st_uid, owner.st_gid)
    parts = conninfo_to_dict(dsn)
    words = [programs / "pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-D", target]
    words += ["-h", str(parts["host"]), "-p", str(parts["port"]), "-U", str(parts["user"])]
    subprocess.run(
        [str(word) for word in words],
        user=pwd.getpwuid(owner.st_uid).pw_name if os.geteuid() == 0 else None,
        cwd="/",
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
