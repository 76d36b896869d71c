"""`cms backup` and `cms restore` as a person uses them, beside a running service."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import requests

from cms.backup import BackupError
from cms.cli.backup import back_up
from cms.config import Config
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
from tests.waiting import eventually

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


def test_a_bar_is_drawn_on_a_terminal(folder: Path, dsn: str, empty_dsn: str) -> None:
    archive = str(folder / "service.tar.gz")
    backup = on_terminal(folder, "backup", archive, DATABASE_URL=dsn)
    assert "tables" in backup
    assert "━" in backup
    assert "Backed up into" in backup
    restored = on_terminal(folder, "restore", archive, DATABASE_URL=empty_dsn)
    assert "restoring" in restored
    assert "━" in restored


def on_terminal(folder: Path, *words: str, **environ: str) -> str:
    """Run a command on a terminal of its own, and return what that shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cms", *words],
        cwd=folder,
        env=environment(folder, free_port(), TERM="xterm", LANG="C.UTF-8", **environ),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    output = b""
    # Linux tells the end of the other side by an error.
    with suppress(OSError):
        while piece := os.read(ours, 4096):
            output += piece
    os.close(ours)
    assert process.wait(TIMEOUT_SECONDS) == 0
    return output.decode()


def test_a_backup_that_cannot_be_written_ends_its_transaction(
    dsn: str, settings: Config, folder: Path
) -> None:
    """The embedded server stops next, and would end the session by force."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE large AS SELECT md5(n::text) FROM generate_series(1, 9999) n"
        )
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        try:
            with pytest.raises(BackupError, match="File too large") as caught:
                back_up(replace(settings, database_url=dsn), str(folder / "a.tar.gz"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        # The error still holds all frames, and so whatever they have not closed.
        assert caught.tb is not None
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state LIKE '%transaction%'"
        )
        assert connection.execute(query).fetchone() == (0,)
    assert list(folder.iterdir()) == []


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_restoration_or_backup_that_a_signal_ends_leaves_nothing(
    folder: Path, other: Path, number: signal.Signals
) -> None:
    archive = other / "service.tar.gz"
    with serving(folder, ADMIN_PASSWORD=LOGIN["password"]) as service:
        headers = token_of(service)
        for _number in range(3):
            upload(service, headers, os.urandom(30 * 2**20))
        assert ended_when(folder, ["backup", str(archive)], other, "*.part", number) == 1
        assert list(other.iterdir()) == []
        assert command(folder, "backup", str(archive)).returncode == 0
    assert command(other, "bootstrap").returncode == 0
    uploads = other / "data" / "uploads"
    assert ended_when(other, ["restore", str(archive)], uploads, "*", number) == 1
    assert list(uploads.iterdir()) == []
    assert command(other, "restore", str(archive)).returncode == 0


def killed_when(folder: Path, words: list[str], watched: Path, pattern: str) -> bool:
    """Start a command, kill it as soon as a folder has such a file; False if it was faster."""
    return ended_when(folder, words, watched, pattern, signal.SIGKILL) == -signal.SIGKILL


def ended_when(
    folder: Path, words: list[str], watched: Path, pattern: str, number: signal.Signals
) -> int:
    """Send a command a signal as soon as a folder has such a file; returns its exit status."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cms", *words],
        cwd=folder,
        env=environment(folder, free_port()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    eventually(lambda: any(watched.glob(pattern)) or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(number)
    return process.wait(TIMEOUT_SECONDS)


def test_wrong_commands_are_refused(folder: Path) -> None:
    assert "Usage" in command(folder, "backup").stdout
    missing = command(folder, "restore", "nothing.tar.gz")
    assert missing.returncode == 1
    assert "nothing.tar.gz cannot be read: No such file or directory." in missing.stdout
    # Nothing was made for it.
    assert not (folder / "data").exists()
    assert "There is no database" in command(folder, "backup", "a").stdout
    both = command(folder, "restore", "--force", "--collection", "a", "b")
    assert both.returncode == 2
