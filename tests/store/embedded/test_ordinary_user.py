"""Somebody who is not root starts a server of his own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cms.embedded.lifetime import start
from tests.store.embedded.servers import FAST, User, running, value

slow = pytest.mark.slow


@slow
def test_an_ordinary_user_starts_a_server_of_his_own(
    folder: Path, users: Callable[..., User]
) -> None:
    data = folder / "data"
    data.mkdir()
    shutil.chown(data, "nobody")
    user = users(data, account="nobody")
    assert value(user.hear(), "1") == "1"
    assert {path.owner() for path in data.iterdir()} == {"nobody"}
    with start(data, settings=FAST) as joined:
        user.do("stop")
        assert value(joined.dsn, "1") == "1"
    assert not running(data)


@slow
def test_an_ordinary_user_gets_the_owner_of_the_data(
    data: Path, users: Callable[..., User]
) -> None:
    shutil.chown(data / "postgres", "daemon")
    assert "belongs to daemon. Start as daemon" in users(data, account="nobody").hear()
