"""The embedded server survives what happens to it, and to those who start it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from cms.embedded import EmbeddedError, binaries
from cms.embedded.lifetime import start
from cms.embedded.system_account import account_for_new_data
from tests.store.embedded.servers import (
    FAST,
    User,
    kill,
    postmaster,
    running,
    started,
    value,
    watchdog_of,
    words,
)
from tests.waiting import eventually

slow = pytest.mark.slow


@slow
def test_rows_survive_the_kill_of_the_server(data: Path) -> None:
    with start(data, settings=FAST) as server:
        with psycopg.connect(server.dsn) as session:
            session.execute("CREATE TABLE written_last AS SELECT 7 AS number")
        before = started(server.dsn)
        kill(postmaster(data))
        with start(data, settings=FAST) as again:
            assert value(again.dsn, "SELECT number FROM written_last") == "7"
            assert started(again.dsn) != before
    assert not running(data)


@slow
def test_rows_survive_the_kill_of_everything(data: Path, users: Callable[..., User]) -> None:
    user = users(data)
    user.hear()
    watchdog = watchdog_of(data)
    number = postmaster(data)
    for pid in (watchdog, user.process.pid, number):
        kill(pid)
    with start(data, settings=FAST) as server:
        assert words(server.dsn) == ["still here"]


@slow
def test_a_pid_file_that_names_another_program_is_stale(data: Path) -> None:
    account = account_for_new_data()
    other = subprocess.Popen(
        ["sleep", "60"],
        user=None if account.is_own else account.uid,
        group=None if account.is_own else account.gid,
        extra_groups=None if account.is_own else [],
    )
    try:
        cluster = data / "postgres"
        lines = f"{other.pid}\n{cluster}\n1700000000\n5432\n{cluster}\n"
        (cluster / "postmaster.pid").write_text(f"{lines}\n 1 1\nready   \n")
        (cluster / ".s.PGSQL.5432.lock").write_text(lines)
        for path in (cluster / "postmaster.pid", cluster / ".s.PGSQL.5432.lock"):
            shutil.chown(path, account.uid, account.gid)
        with start(data, settings=FAST) as server:
            assert words(server.dsn) == ["still here"]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@slow
@pytest.mark.parametrize("content", ["", "12", "\0\0\0\n\n\n\n\n\n\n"])
def test_a_torn_pid_file_is_stale(data: Path, content: str) -> None:
    (data / "postgres" / "postmaster.pid").write_text(content)
    with start(data, settings=FAST) as server:
        assert words(server.dsn) == ["still here"]


@slow
def test_a_server_that_somebody_else_started_is_left_alone(data: Path) -> None:
    with start(data, settings=FAST) as server:
        shutil.rmtree(data / "postgres.run")
        with pytest.raises(EmbeddedError, match="not started here"):
            start(data, settings=FAST)
        assert words(server.dsn) == ["still here"]
        os.kill(postmaster(data), signal.SIGINT)
        eventually(lambda: not (data / "postgres" / "postmaster.pid").exists())


@slow
def test_a_first_start_that_was_interrupted_is_begun_again(folder: Path) -> None:
    (folder / "postgres.new").mkdir()
    (folder / "postgres.new" / "PG_VERSION").write_text("18\n")
    with start(folder, settings=FAST) as server:
        assert value(server.dsn, "1") == "1"
    assert not (folder / "postgres.new").exists()


@slow
def test_a_first_start_that_was_killed_is_begun_again(
    folder: Path, users: Callable[..., User]
) -> None:
    user = users(folder, programs=slow_programs(folder / "programs", "initdb"))
    eventually(lambda: (folder / "postgres.new" / "begun").exists())
    kill(user.process.pid)
    user.process.wait()
    assert running(folder), "initdb, which lives on, keeps others from beginning"
    with start(folder, settings=FAST) as server:
        assert value(server.dsn, "1") == "1"


def slow_programs(folder: Path, slow: str) -> Path:
    """Make programs that do the same as the true ones, but one reports that it
    has begun, and then takes its time.
    """
    programs = binaries.find_binaries(None, data_version=None).folder
    rest = '[ "$1" = --version ] || { touch "$2/begun"; sleep 1; rm "$2/begun"; }'
    folder.mkdir()
    for name in ("postgres", "initdb"):
        first = rest if name == slow else ""
        (folder / name).write_text(f'#!/bin/sh\n{first}\nexec "{programs}/{name}" "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@slow
def test_a_server_whose_starter_is_killed_before_it_is_up_goes_too(
    folder: Path, data: Path, users: Callable[..., User]
) -> None:
    user = users(data, programs=slow_programs(folder / "programs", "postgres"), deaf=True)
    eventually(lambda: (data / "postgres" / "begun").exists())
    kill(user.process.pid)
    eventually(lambda: not running(data))
    (data / "postgres" / "begun").unlink()


def test_a_folder_that_holds_something_else_is_not_touched(folder: Path) -> None:
    (folder / "postgres").mkdir()
    (folder / "postgres" / "poem.txt").write_text("O")
    shutil.chown(folder / "postgres", account_for_new_data().uid)
    with pytest.raises(EmbeddedError, match="no PostgreSQL data"):
        start(folder)
    assert (folder / "postgres" / "poem.txt").read_text() == "O"
