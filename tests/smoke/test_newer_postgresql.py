"""docs/backup.md: its commands move the embedded server's data into a newer PostgreSQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from cms.embedded.binaries import DEBIAN_FOLDER, find_binaries, inspect_binaries
from cms.embedded.lifetime import start
from tests.backup.comparison import differences, rows_of, structure_of
from tests.backup.conftest import HARD_TABLES
from tests.smoke.running import TIMEOUT_SECONDS, Service, environment, free_port, serving

ROOT = Path(__file__).parent.parent.parent
LOGIN = {"email": "admin@example.com", "password": "correct horse"}


def commands_of_the_page(version: int) -> str:
    """Return the page's commands for data of a version."""
    page = (ROOT / "docs" / "backup.md").read_text()
    block = re.search(r"^   ```sh\n(.+?)^   ```$", page, re.MULTILINE | re.DOTALL)
    assert block
    commands = block[1].replace("postgres-15", f"postgres-{version}")
    return re.sub(r"\bcms ", lambda _: f'"{sys.executable}" -m cms ', commands)


@pytest.fixture(scope="module")
def older() -> Path:
    """The programs of an older major version than that of new data."""
    newest = find_binaries(None, data_version=None).major
    for folder in sorted(DEBIAN_FOLDER.glob("*/bin")):
        programs = inspect_binaries(folder)
        if programs and programs.major < newest:
            return folder
    pytest.skip("the Debian package postgresql is not installed, or as new as the wheel")


def authorized(service: Service, method: str, path: str, **more: Any) -> requests.Response:
    address = f"http://127.0.0.1:{service.port}"
    login = requests.post(f"{address}/auth/login", json=LOGIN, timeout=TIMEOUT_SECONDS)
    headers = {"Authorization": f"Bearer {login.json()['data']['access_token']}"}
    answer = requests.request(
        method, address + path, headers=headers, timeout=TIMEOUT_SECONDS, **more
    )
    answer.raise_for_status()
    return answer


def test_the_commands_of_the_page_move_all_data_into_a_newer_version(
    folder: Path, older: Path
) -> None:
    data = folder / "data"
    with serving(folder, POSTGRES_BIN=str(older), ADMIN_PASSWORD=LOGIN["password"]) as service:
        uploaded = authorized(service, "POST", "/files", files={"file": ("a.txt", b"content")})
    with start(data, binaries=older) as server:
        with psycopg.connect(server.dsn) as session:
            session.execute(HARD_TABLES)
        version = server.version
        structure = structure_of(server.dsn)
        rows = rows_of(server.dsn)
    environ = environment(folder, free_port())
    environ.pop("POSTGRES_BIN", None)
    subprocess.run(
        ["/bin/sh", "-e", "-c", commands_of_the_page(version)],
        cwd=folder,
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    with start(data) as server:
        assert server.version > version
        assert rows_of(server.dsn) == rows
        # The versions write views out in different ways.
        different = differences(structure_of(server.dsn), structure)
        different.pop("views", None)
        assert different == {}
    with serving(folder) as service:
        path = f"/assets/{uploaded.json()['data']['id']}"
        assert authorized(service, "GET", path).content == b"content"
    # The way back: the old data is still a database.
    (data / "postgres").rename(data / "postgres-newer")
    (data / f"postgres-{version}").rename(data / "postgres")
    with start(data, binaries=older) as server:
        assert rows_of(server.dsn) == rows
