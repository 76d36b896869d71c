"""Folders, one cluster for all, and other processes."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from cms.embedded.lifetime import start
from tests.store.embedded.servers import FAST, User, moved, python_of, temporary_folder

# Not skipped but absent where they cannot be: a test that is skipped lacks something to install.
collect_ignore = []
if os.geteuid():
    collect_ignore.append("test_root.py")
if os.geteuid() or not python_of(pwd.getpwnam("nobody")):
    collect_ignore.append("test_ordinary_user.py")


@pytest.fixture
def users() -> Iterator[Callable[..., User]]:
    made: list[User] = []

    def make(
        data: Path, *, account: str | None = None, programs: Path | None = None, deaf: bool = False
    ) -> User:
        made.append(User(data, account=account, programs=programs, deaf=deaf))
        return made[-1]

    yield make
    for user in made:
        user.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path


@pytest.fixture(scope="session")
def cluster() -> Iterator[Path]:
    """Make the one cluster that the tests hand on to each other: to make
    it takes longer than most tests.
    """
    with temporary_folder() as path:
        with start(path, settings=FAST) as server, psycopg.connect(server.dsn) as session:
            session.execute("CREATE TABLE notes (words TEXT NOT NULL)")
            session.execute("INSERT INTO notes VALUES ('still here')")
        yield path / "postgres"


@pytest.fixture
def data(folder: Path, cluster: Path) -> Iterator[Path]:
    with moved(cluster, folder / "data") as path:
        yield path
