"""Debian's PgBouncer in transaction mode, with the configuration of docs/deployment.md."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.machines.installation import CHECKOUT
from tests.smoke.running import TIMEOUT_SECONDS, free_port
from tests.waiting import eventually

# What a test has in place of passwords and certificates.
LOCAL = """
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
max_client_conn = 500
"""


def documented(language: str) -> str:
    """Return the one block of a language in the section on PgBouncer."""
    text = (CHECKOUT / "docs" / "deployment.md").read_text()
    section = text.split("\n### PgBouncer\n")[1].split("\n### ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(block)


def set_for_role(dsn: str) -> None:
    """Give the role of a test the documented settings in its database."""
    parts = conninfo_to_dict(dsn)
    text = documented("sql").replace("DATABASE shop", f'DATABASE "{parts["dbname"]}"')
    text = text.replace("ROLE cms", f'ROLE "{parts["user"]}"')
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(text.encode())


@contextmanager
def pgbouncer(folder: Path, dsn: str, *, connections: int = 5) -> Iterator[str]:
    """Run PgBouncer with so many connections to the database, and yield the address through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is needed")
    port = free_port()
    parts = conninfo_to_dict(dsn)
    text = documented("ini")
    server = f"host={parts['host']} port={parts['port']} user={parts['user']}"
    text, count = re.subn(r"^shop = .*$", f"{parts['dbname']} = {server}", text, flags=re.M)
    assert count == 1
    text, count = re.subn(r"default_pool_size = \d+", f"default_pool_size = {connections}", text)
    assert count == 1
    file = folder / "pgbouncer.ini"
    file.write_text(text + LOCAL.format(port=port))
    file.chmod(0o644)
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *_account(str(parts["host"])), str(file)], stdout=log, stderr=log
        )
        try:
            address = f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"
            _await_answer(address, process)
            yield address
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def _account(socket_folder: str) -> list[str]:
    """Return the option of an account that may use the server's socket: PgBouncer refuses root."""
    if os.geteuid() != 0:
        return []
    return ["-u", pwd.getpwuid(Path(socket_folder).stat().st_uid).pw_name]


def _await_answer(address: str, process: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert process.poll() is None
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            return False
        return True

    eventually(answers)
