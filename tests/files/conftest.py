"""An S3 server in a process of its own, for all tests of the session, and applications with
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from cms.config.secret_file import secret_of
from tests.client import Client
from tests.files.bucket import bucket_server
from tests.files.forms import FileService


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server that has a bucket `files`."""
    with bucket_server() as address:
        yield address


@pytest.fixture
def another(files: FileService, settings: Config) -> Iterator[Callable[..., Client]]:
    """Make the administrator's client of one more process, with other
    settings, on the same database and files.
    """
    clients: list[Client] = []

    def make(**changes: Any) -> Client:
        dsn = files.stage.dsn
        usual = {"database_url": dsn, "database_pool_size": 9, "locations": files.locations}
        config = replace(settings, **{**usual, **changes})
        clients.append(Client(create_app(config)))
        token = accounts.admin_token(dsn, secret=secret_of(config), life=timedelta(hours=1))
        return clients[-1].bearing(token)

    yield make
    for client in clients:
        client.close()
