"""A server that ended by itself is started again for those who use it."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from cms.embedded import EmbeddedError
from cms.embedded.lifetime import running_dsn, start
from tests.store.embedded.servers import (
    FAST,
    gone,
    kill,
    moved,
    postmaster,
    running,
    started,
    words,
)
from tests.store.embedded.test_paths import LONG
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["data", LONG])
def test_a_killed_server_is_started_again_at_the_same_address(
    name: str, folder: Path, cluster: Path
) -> None:
    with moved(cluster, folder / name) as data, start(data, settings=FAST) as server:
        for _ in range(3):
            before = started(server.dsn)
            kill(postmaster(data))
            server.await_end()
            server.restart()
            assert words(server.dsn) == ["still here"]
            assert started(server.dsn) != before


@pytest.mark.clock
def test_a_statement_that_runs_on_does_not_hold_up_the_next_server(data: Path) -> None:
    with start(data, settings=FAST) as server:
        thread = threading.Thread(target=compute_long, args=(server.dsn,))
        thread.start()
        eventually(lambda: computes(server.dsn))
        killed_at = time.monotonic()
        kill(postmaster(data))
        server.await_end()
        server.restart()
        assert time.monotonic() - killed_at < 30
        thread.join()


def compute_long(dsn: str) -> None:
    """Run what does not wait for anything, and so does not notice that its server is gone."""
    with suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as session:
        session.execute("SET statement_timeout = '60s'")
        session.execute("DO 'BEGIN LOOP NULL; END LOOP; END'")


def computes(dsn: str) -> bool:
    with psycopg.connect(dsn) as session:
        sql = "SELECT FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'"
        return session.execute(sql).rowcount == 1


def test_data_that_is_gone_is_reported_and_not_made_anew(data: Path, cluster: Path) -> None:
    with start(data, settings=FAST) as server:
        kill(postmaster(data))
        server.await_end()
        (data / "postgres").rename(data / "elsewhere")
        try:
            with pytest.raises(EmbeddedError, match="holds no database any more"):
                server.restart()
            assert not (data / "postgres").exists()
        finally:
            (data / "elsewhere").rename(data / "postgres")


def test_a_folder_that_is_gone_is_reported_and_left_without_a_fault(folder: Path) -> None:
    data = folder / "short-lived"
    with start(data, settings=FAST) as server:
        number = postmaster(data)
        shutil.rmtree(data)
        kill(number)
        server.await_end()
        with pytest.raises(EmbeddedError, match="cannot be started"):
            server.restart()
    eventually(lambda: gone(number))


def test_the_address_of_a_server_is_reported_only_while_it_runs(data: Path) -> None:
    assert running_dsn(data) is None
    with start(data, settings=FAST) as server:
        assert running_dsn(data) == server.dsn
    assert running_dsn(data) is None
    assert not running(data)


def test_asking_for_the_address_makes_nothing(folder: Path) -> None:
    assert running_dsn(folder / "nothing") is None
    assert list(folder.iterdir()) == []
