"""An S3 server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from tests.smoke.running import free_port
from tests.waiting import eventually

TIMEOUT_SECONDS = 60.0


@contextmanager
def bucket_server() -> Iterator[str]:
    """Run an S3 server that has a bucket `files`, and yield its address."""
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
    def is_made() -> bool:
        assert process.poll() is None
        try:
            return requests.put(address, timeout=TIMEOUT_SECONDS).status_code == 200
        except requests.ConnectionError:
            return False

    eventually(is_made)
