"""What the tests of the embedded server share: another process that
uses it, and questions about it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cms import embedded
from cms.embedded.data_folder import DataFolder
from cms.embedded.postgres_server import is_running, read_postmaster
from cms.embedded.system_account import SystemAccount, own_account, run_as
from tests.waiting import eventually

FAST = {"fsync": "off"}

USER = """
import os, signal, sys
from pathlib import Path
from cms.embedded import EmbeddedError
from cms.embedded.lifetime import start
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[3] else signal.default_int_handler)
try:
    programs = Path(sys.argv[2]) if sys.argv[2] else None
    server = start(Path(sys.argv[1]), binaries=programs, settings={"fsync": "off"})
except EmbeddedError as error:
    sys.exit(print(error))
print(server.dsn, flush=True)
for line in sys.stdin:
    if line == "fork and stop\\n":
        if not os.fork():
            server.stop()
            os._exit(0)
        os.wait()
    if line == "stop\\n":
        server.stop()
    print("done", flush=True)
"""


class User:
    """Another process that uses the server of a folder; deaf to
    interrupts like a shell's background job.
    """

    def __init__(
        self,
        data: Path,
        *,
        account: str | None = None,
        programs: Path | None = None,
        deaf: bool = False,
    ) -> None:
        entry = pwd.getpwnam(account) if account else None
        self.process = subprocess.Popen(
            [
                (entry and python_of(entry)) or sys.executable,
                "-c",
                USER,
                str(data),
                str(programs or ""),
                "deaf" if deaf else "",
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            user=entry.pw_uid if entry else None,
            group=entry.pw_gid if entry else None,
            extra_groups=[] if entry else None,
        )

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def do(self, what: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.hear() == "done"

    def end(self, number: int) -> None:
        os.killpg(self.process.pid, number)
        self.process.wait(timeout=30)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def python_of(entry: pwd.struct_passwd) -> str | None:
    """Return a Python with which the account can use the package, None
    when root keeps them to himself.
    """
    account = SystemAccount(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        test = ["/bin/sh", "-c", 'test -x "$0" && test -r "$1"', python, embedded.__file__]
        if run_as(account, test).returncode == 0:
            return python
    return None


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that the server's account can enter when root runs
    the tests, unlike pytest's own.
    """
    folder = Path(tempfile.mkdtemp(prefix="cms-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    eventually(lambda: not any(running(locks.parent) for locks in folder.rglob("postgres.run")))
    shutil.rmtree(folder)


@contextmanager
def moved(cluster: Path, data: Path) -> Iterator[Path]:
    """Let the cluster be that of the folder `data` for a while, with an empty log."""
    owner = cluster.stat()
    data.mkdir(parents=True)
    shutil.rmtree(cluster / "log", ignore_errors=True)
    cluster.rename(data / "postgres")
    try:
        yield data
        eventually(lambda: not running(data))
    finally:
        os.chown(data / "postgres", owner.st_uid, owner.st_gid)
        (data / "postgres").rename(cluster)


def words(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as session:
        return [row[0] for row in session.execute("SELECT words FROM notes")]


def value(dsn: str, expression: str) -> str:
    with psycopg.connect(dsn) as session:
        row = session.execute(f"SELECT ({expression})::text".encode()).fetchone()
    assert row
    return str(row[0])


def started(dsn: str) -> str:
    """Return what no two servers have in common."""
    return value(dsn, "pg_postmaster_start_time()")


def postmaster(data: Path) -> int:
    postmaster = read_postmaster(data / "postgres")
    assert postmaster
    return postmaster.pid


def running(data: Path) -> bool:
    return is_running(DataFolder(data, own_account()))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def process_info(pid: int, what: str) -> str:
    """Return what `ps` prints of a process."""
    return run_as(own_account(), ["ps", "-o", f"{what}=", "-p", str(pid)]).stdout.strip()


def gone(pid: int) -> bool:
    """Tell whether the process has ended; a dead one that its parent
    has not buried yet counts as gone.
    """
    state = process_info(pid, "stat")
    return not state or state.startswith("Z")


def watchdog_of(data: Path) -> int:
    """Return the process number of the server's parent."""
    return int(process_info(postmaster(data), "ppid"))


def server_log(data: Path) -> str:
    return "".join(path.read_text() for path in sorted((data / "postgres" / "log").glob("*.log")))
