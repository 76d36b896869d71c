"""`cms backup`, `cms restore` and `cms upgrade` as a person uses them, beside a running service."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import requests

from tests.smoke.running import (
    TIMEOUT_SECONDS,
    Service,
    command,
    command_apart,
    environment,
    free_port,
    new_folder,
    serving,
)

LOGIN = {"email": "admin@example.com", "password": "correct horse"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with new_folder() as folder:
        yield folder


@pytest.fixture
def other() -> Iterator[Path]:
    with new_folder() as folder:
        yield folder


def token_of(service: Service) -> dict[str, str]:
    answer = requests.post(
        f"http://127.0.0.1:{service.port}/auth/login", json=LOGIN, timeout=TIMEOUT_SECONDS
    )
    return {"Authorization": f"Bearer {answer.json()['data']['access_token']}"}


def upload(service: Service, headers: dict[str, str], content: bytes) -> str:
    answer = requests.post(
        f"http://127.0.0.1:{service.port}/files",
        files={"file": ("a.bin", content)},
        headers=headers,
        timeout=TIMEOUT_SECONDS,
    )
    return str(answer.json()["data"]["id"])


def content_of(service: Service, headers: dict[str, str], key: str) -> bytes:
    return requests.get(
        f"http://127.0.0.1:{service.port}/assets/{key}", headers=headers, timeout=TIMEOUT_SECONDS
    ).content


def test_a_running_service_is_backed_up_and_restored_elsewhere(folder: Path, other: Path) -> None:
    archive = str(other / "service.tar.gz")
    content = os.urandom(3 * 2**20)
    with serving(folder, ADMIN_PASSWORD=LOGIN["password"]) as service:
        headers = token_of(service)
        key = upload(service, headers, content)
        backup = command_apart(folder, "backup", archive)
        assert (backup.returncode, backup.stderr) == (0, "")
        assert re.fullmatch(r"Backed up into .*: 3\.\d MB\.\n", backup.stdout)
        assert stat.S_IMODE(os.stat(archive).st_mode) == 0o600
        again = command(folder, "backup", archive)
        assert again.returncode == 1
        assert "is there already" in again.stdout
        lost = upload(service, headers, b"lost")
        (stored,) = (folder / "data" / "uploads").glob(f"{lost}*")
        stored.unlink()
        partial = command_apart(folder, "backup", str(other / "partial.tar.gz"))
        assert partial.returncode == 3
        assert lost in partial.stderr
    restored = command_apart(other, "restore", archive)
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout == f"Restored {archive}.\n"
    with serving(other) as service:
        headers = token_of(service)
        assert content_of(service, headers, key) == content
        upload(service, headers, b"new")
        refused = command(other, "restore", archive)
        assert refused.returncode == 1
        assert (
            "Error: This installation is not empty: it has rows in system_files" in refused.stdout
        )
        assert command(other, "restore", "--force", archive).returncode == 0
        files = requests.get(
            f"http://127.0.0.1:{service.port}/files", headers=token_of(service), timeout=60
        )
        assert [file["id"] for file in files.json()["data"]] == [key]


def test_archives_go_past_a_pooler(folder: Path, dsn: str, empty_dsn: str) -> None:
    pooler = "postgresql://127.0.0.1:1/nobody_listens"
    archive = str(folder / "service.tar.gz")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE pages (id integer PRIMARY KEY)")
    for words, server in (
        (("backup", archive), dsn),
        (("restore", archive), empty_dsn),
        (("restore", archive, "--collection", "pages"), empty_dsn),
    ):
        done = command(folder, *words, DATABASE_URL=pooler, DATABASE_DIRECT_URL=server)
        assert done.returncode == 0, done.stdout


def test_a_restoration_or_backup_that_is_killed_leaves_the_database_as_it_was(
    folder: Path, other: Path
) -> None:
    archive = other / "service.tar.gz"
    with serving(folder, ADMIN_PASSWORD=LOGIN["password"]) as service:
        headers = token_of(service)
        for _number in range(3):
            upload(service, headers, os.urandom(30 * 2**20))
        assert killed_when(folder, ["backup", str(archive)], other, "service.tar.gz.part")
        assert not archive.exists()
        (other / "service.tar.gz.part").unlink()
        assert command(folder, "backup", str(archive)).returncode == 0
    assert command(other, "bootstrap").returncode == 0
    assert killed_when(other, ["restore", str(archive)], other / "data" / "uploads", "*")
    # Nothing of it is in the database: it is still one without content.
    restored = command(other, "restore", str(archive))
    assert restored.returncode == 0, restored.stdout
    assert len(list((other / "data" / "uploads").iterdir())) >= 3


def killed_when(folder: Path, words: list[str], watched: Path, pattern: str) -> bool:
    """Start a command, kill it as soon as a folder has such a file; False if it was faster."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cms", *words],
        cwd=folder,
        env=environment(folder, free_port()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not any(watched.glob(pattern)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    return process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL


def test_wrong_commands_are_told(folder: Path) -> None:
    assert "Usage" in command(folder, "backup").stdout
    missing = command(folder, "restore", "nothing.tar.gz")
    assert missing.returncode == 1
    assert "nothing.tar.gz cannot be read: No such file or directory." in missing.stdout
    # Nothing was made for it.
    assert not (folder / "data").exists()
    assert "There is no database" in command(folder, "backup", "a").stdout
    assert "There is no database" in command(folder, "upgrade").stdout
    both = command(folder, "restore", "--force", "--collection", "a", "b")
    assert both.returncode == 2
