"""The data may lie anywhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from cms.embedded.lifetime import start
from tests.store.embedded.servers import FAST, kill, moved, postmaster, words
from tests.waiting import eventually

slow = pytest.mark.slow


LONG = "very" * 30 + "/" + "long" * 30


@slow
@pytest.mark.parametrize("name", ["with two spaces", 'it\'s "50%", $HOME', "日本 é", LONG])
def test_every_path_will_do(folder: Path, cluster: Path, name: str) -> None:
    with moved(cluster, folder / name) as data:
        server = start(data, settings=FAST)
        sockets = Path(str(conninfo_to_dict(server.dsn)["host"]))
        assert words(server.dsn) == ["still here"]
        assert sockets.stat().st_mode & 0o777 == 0o700
        with start(data, settings=FAST) as joined:
            assert joined.dsn == server.dsn
        server.stop()
        eventually(lambda: sockets == data / "postgres" or not sockets.exists())


@slow
def test_a_killed_server_leaves_no_socket_folder(folder: Path, cluster: Path) -> None:
    with moved(cluster, folder / LONG) as data:
        server = start(data, settings=FAST)
        sockets = Path(str(conninfo_to_dict(server.dsn)["host"]))
        assert sockets.parent == Path(tempfile.gettempdir())
        kill(postmaster(data))
        eventually(lambda: not sockets.exists())
        server.stop()
