"""Data of an older PostgreSQL is copied into the installed one, and the old folder is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from cms.database.migrate import migrate
from cms.embedded import EmbeddedError, binaries, start, upgrade, upgrading
from cms.embedded.binaries import Binaries, find_binaries, inspect_binaries
from cms.embedded.programs import find_program
from tests.backup.comparison import differences, rows_of, structure_of
from tests.backup.conftest import HARD_TABLES
from tests.store.embedded.servers import FAST, running, temporary_folder
from tests.waiting import eventually


def older_programs() -> Path | None:
    """Return the programs of an older major version than that of new data."""
    newest = find_binaries(None, data_version=None).major
    for folder in sorted(binaries.DEBIAN_FOLDER.glob("*/bin")):
        programs = inspect_binaries(folder)
        if programs and programs.major < newest:
            return folder
    return None


@pytest.fixture(scope="module")
def older() -> Path:
    programs = older_programs()
    if programs is None:
        pytest.skip("the Debian package postgresql is not installed, or as new as the wheel")
    return programs


@pytest.fixture(scope="module")
def old_cluster(older: Path) -> Iterator[Path]:
    """A data folder of the older version with a service and tables that are hard to copy."""
    with temporary_folder() as folder:
        with start(folder / "data", binaries=older, settings=FAST) as server:
            migrate(server.dsn)
            with psycopg.connect(server.dsn) as session:
                session.execute(HARD_TABLES)
        yield folder / "data" / "postgres"


@pytest.fixture
def data(folder: Path, old_cluster: Path) -> Path:
    """A copy of that folder, for one test."""
    (folder / "data").mkdir()
    shutil.copytree(old_cluster, folder / "data" / "postgres")
    owner = old_cluster.stat()
    for path in [folder / "data" / "postgres", *(folder / "data" / "postgres").rglob("*")]:
        shutil.chown(path, owner.st_uid, owner.st_gid)
    return folder / "data"


def version_in(cluster: Path) -> str:
    return (cluster / "PG_VERSION").read_text().strip()


def test_everything_is_in_the_new_version_and_the_old_folder_is_kept(
    data: Path, older: Path
) -> None:
    with start(data, binaries=older, settings=FAST) as server:
        structure = structure_of(server.dsn)
        rows = rows_of(server.dsn)
        assert str(server.version) == version_in(data / "postgres")
    before = version_in(data / "postgres")
    done = upgrade(data, binaries=None, announce=lambda _sentence: None)
    assert done is not None
    assert str(done.before) == before
    assert str(done.after) == version_in(data / "postgres") != before
    assert done.former_data == data / f"postgres-{before}"
    assert version_in(done.former_data) == before
    names = {"postgres", "postgres.conf", "postgres.run", done.former_data.name}
    assert {path.name for path in data.iterdir()} == names
    with start(data, settings=FAST) as server:
        assert server.version == done.after
        assert rows_of(server.dsn) == rows
        # The versions write views out in different ways.
        different = differences(structure_of(server.dsn), structure)
        different.pop("views", None)
        assert different == {}
        assert migrate(server.dsn) == []
    # The old data is still a database.
    (data / "old").mkdir()
    done.former_data.rename(data / "old" / "postgres")
    with start(data / "old", binaries=older, settings=FAST) as server:
        assert rows_of(server.dsn) == rows


def test_unusual_schemas_and_views_are_no_reason_to_give_up(data: Path, older: Path) -> None:
    """Views are filled anew, also those that had other rows than they would get, or none."""
    with (
        start(data, binaries=older, settings=FAST) as server,
        psycopg.connect(server.dsn, autocommit=True) as session,
    ):
        session.execute(
            """
            CREATE SCHEMA "Tenant's";
            CREATE TABLE "Tenant's"."T" AS SELECT 1 AS a;
            CREATE MATERIALIZED VIEW outdated AS SELECT a FROM "Tenant's"."T";
            CREATE MATERIALIZED VIEW empty AS SELECT 1 AS a WITH NO DATA;
            INSERT INTO "Tenant's"."T" VALUES (2);
            """
        )
    assert upgrade(data, binaries=None, announce=lambda _sentence: None)
    with start(data, settings=FAST) as server, psycopg.connect(server.dsn) as session:
        assert session.execute("""SELECT a FROM "Tenant's"."T" """).fetchall() == [
            (1,),
            (2,),
        ]
        assert session.execute("SELECT count(*) FROM outdated").fetchall() == [(2,)]


def test_a_copy_with_fewer_rows_is_given_up(
    data: Path, older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = upgrading._copy

    def copy_less(old_dsn: str, new_dsn: str, new: Binaries) -> None:
        copy(old_dsn, new_dsn, new)
        with psycopg.connect(new_dsn) as session:
            session.execute("DELETE FROM hard WHERE words IS NULL")

    monkeypatch.setattr(upgrading, "_copy", copy_less)
    with pytest.raises(EmbeddedError, match=r"not complete.* as it was"):
        upgrade(data, binaries=None, announce=print)
    with start(data, binaries=older, settings=FAST) as server:
        assert len(rows_of(server.dsn)["hard"]) == 3


def test_data_of_the_installed_version_stays_as_it_is(folder: Path) -> None:
    with start(folder / "data", settings=FAST):
        pass
    names = {path.name for path in (folder / "data").iterdir()}
    assert upgrade(folder / "data", binaries=None, announce=print) is None
    assert {path.name for path in (folder / "data").iterdir()} == names


def test_a_folder_without_data_is_refused(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match="nothing to upgrade"):
        upgrade(folder / "nothing", binaries=None, announce=print)
    assert not (folder / "nothing").exists()


def test_data_in_use_is_refused(data: Path, older: Path) -> None:
    with start(data, binaries=older, settings=FAST) as server:
        with pytest.raises(EmbeddedError, match="Stop the service first"):
            upgrade(data, binaries=None, announce=print)
        assert len(rows_of(server.dsn)["hard"]) == 3


def test_without_the_old_programs_nothing_changes(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "DEBIAN_FOLDER", folder / "none")
    monkeypatch.setenv("PATH", "/bin")
    version = version_in(data / "postgres")
    with pytest.raises(EmbeddedError, match=rf"No PostgreSQL {version} \(the version of the data"):
        upgrade(data, binaries=None, announce=print)
    assert {path.name for path in data.iterdir()} == {"postgres", "postgres.run"}


@pytest.mark.parametrize("program", ["pg_dump", "pg_restore"])
def test_a_copy_that_fails_leaves_the_data_as_it_was(
    data: Path, older: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    def find_broken(name: str, *, postgres_bin: Path | None, major: int) -> Path:
        if name == program:
            return Path("/bin/false")
        return find_program(name, postgres_bin=postgres_bin, major=major)

    monkeypatch.setattr("cms.embedded.upgrading.find_program", find_broken)
    with pytest.raises(EmbeddedError, match="is as it was"):
        upgrade(data, binaries=None, announce=print)
    assert {path.name for path in data.iterdir()} == {"postgres", "postgres.conf", "postgres.run"}
    with start(data, binaries=older, settings=FAST) as server:
        assert len(rows_of(server.dsn)["hard"]) == 3


def test_a_new_server_that_does_not_end_is_ended_when_the_copy_fails(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, where a server cannot write its last checkpoint."""

    def servers() -> list[psutil.Process]:
        folder = str(data / "postgres.upgrade" / "postgres")
        return [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "postgres" and folder in (process.info["cmdline"] or [])
        ]

    def find_broken(name: str, *, postgres_bin: Path | None, major: int) -> Path:
        (server,) = servers()
        for child in server.children():
            if "checkpointer" in " ".join(child.cmdline()):
                child.suspend()
        return Path("/bin/false")

    monkeypatch.setattr("cms.embedded.upgrading.find_program", find_broken)
    with pytest.raises(EmbeddedError, match="is as it was"):
        upgrade(data, binaries=None, announce=print)
    assert servers() == []
    assert {path.name for path in data.iterdir()} == {"postgres", "postgres.conf", "postgres.run"}


def test_what_others_have_put_into_the_server_is_named(data: Path, older: Path) -> None:
    with (
        start(data, binaries=older, settings=FAST) as server,
        psycopg.connect(server.dsn, autocommit=True) as session,
    ):
        session.execute("CREATE DATABASE reports")
        session.execute("CREATE ROLE reader")
        session.execute("ALTER DATABASE cms SET work_mem = '5MB'")
    announcements: list[str] = []
    assert upgrade(data, binaries=None, announce=announcements.append)
    rest = (
        "Not copied, and kept in the old folder: database reports, role reader, setting work_mem."
    )
    assert rest in announcements


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_upgrade_that_is_ended_leaves_the_data_as_it_was(
    data: Path, older: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cms", "upgrade"],
        cwd=data.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DATA_DIR": str(data)},
        start_new_session=True,
    )
    unfinished = data / "postgres.upgrade"
    try:
        eventually(lambda: (unfinished / "postgres" / "postmaster.pid").exists())
        process.send_signal(number)
        process.wait(60)
    finally:
        process.kill()
    # Both servers end by themselves.
    eventually(lambda: not running(data) and not running(unfinished))
    with start(data, binaries=older, settings=FAST) as server:
        assert len(rows_of(server.dsn)["hard"]) == 3
    assert upgrade(data, binaries=None, announce=print)
    with start(data, settings=FAST) as server:
        assert len(rows_of(server.dsn)["hard"]) == 3
    assert not unfinished.exists()


def test_a_start_after_an_upgrade_that_was_cut_off_makes_no_new_data(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    rename = Path.rename

    def killed_rename(self: Path, target: Path) -> Path:
        if self.parts[-2:] == ("postgres.upgrade", "postgres"):
            raise Killed
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed_rename)
    with pytest.raises(Killed):
        upgrade(data, binaries=None, announce=print)
    monkeypatch.undo()
    with pytest.raises(EmbeddedError, match=r"cut off at its last step.*move .*postgres\.upgrade"):
        start(data, settings=FAST)
    (data / "postgres.upgrade" / "postgres").rename(data / "postgres")
    with start(data, settings=FAST) as server:
        assert len(rows_of(server.dsn)["hard"]) == 3
