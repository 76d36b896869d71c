"""An S3 server in a process of its own, for all tests of the session, and applications with
files.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import requests

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from cms.secret_file import secret_of
from tests.client import Client
from tests.files.forms import FileService
from tests.smoke.running import free_port

TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server that has a bucket `files`."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(f"{address}/files", process)
        yield address
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def _make_bucket(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            assert requests.put(address, timeout=TIMEOUT_SECONDS).status_code == 200
            return
        except requests.ConnectionError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)


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
