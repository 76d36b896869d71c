"""Folders, one cluster for all, and other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from cms.store.embedded import start
from tests.store.embedded.servers import FAST, User, moved, temporary_folder


@pytest.fixture
def users() -> Iterator[Callable[..., User]]:
    opened: list[User] = []

    def make(data: Path, *, account: str | None = None) -> User:
        opened.append(User(data, account=account))
        return opened[-1]

    yield make
    for user in opened:
        user.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """Make the one cluster that the tests hand on to each other: to make it takes longer than most tests."""
    with temporary_folder() as path:
        with start(path, settings=FAST) as server, psycopg.connect(server.dsn) as session:
            session.execute("CREATE TABLE notes (words TEXT NOT NULL)")
            session.execute("INSERT INTO notes VALUES ('still here')")
        yield path / "postgres"


@pytest.fixture
def data(folder: Path, cluster: Path) -> Iterator[Path]:
    with moved(cluster, folder / "data") as path:
        yield path
