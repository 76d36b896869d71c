"""Uploads to a real server: flat memory, and nothing left of what breaks off or is too large."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.smoke.running import TIMEOUT_SECONDS, Service, new_folder, serving
from tests.waiting import eventually

SIZE = 500 * 2**20
MAX_MEMORY_BYTES = 160 * 2**20
BOUNDARY = b"a-boundary"
HEAD = b'--a-boundary\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'
END = b"\r\n--a-boundary--\r\n"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with new_folder() as folder, serving(folder, ADMIN_PASSWORD="a password") as running:
        yield running


@pytest.fixture(scope="module")
def token(service: Service) -> str:
    body = json.dumps({"email": "admin@example.com", "password": "a password"})
    with closing(
        http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT_SECONDS)
    ) as connection:
        connection.request("POST", "/auth/login", body, {"Content-Type": "application/json"})
        return str(json.load(connection.getresponse())["data"]["access_token"])


def begun(service: Service, token: str, size: int) -> socket.socket:
    """Send the head of an upload that will have so many bytes, and return its connection."""
    connection = socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS)
    head = (
        f"POST /files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: "
        f"{size}\r\n"
    )
    connection.sendall(
        f"{head}Content-Type: multipart/form-data; boundary=a-boundary\r\n\r\n".encode()
    )
    return connection


def answered(connection: socket.socket) -> tuple[int, Any]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())


def uploads(service: Service) -> list[Path]:
    return [path for path in (service.folder / "data" / "uploads").rglob("*") if path.is_file()]


def peak(service: Service) -> int:
    """Return the most memory that any Python process below the service has had."""
    processes = psutil.Process(service.process.pid).children(recursive=True)
    return max(_high_water(one.pid) for one in processes if "python" in one.name())


def _high_water(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.slow
def test_a_large_upload_keeps_a_worker_small(service: Service, token: str) -> None:
    piece = os.urandom(2**20)
    digest = hashlib.sha256()
    with begun(service, token, len(HEAD) + SIZE + len(END)) as connection:
        connection.sendall(HEAD)
        for _ in range(SIZE // len(piece)):
            connection.sendall(piece)
            digest.update(piece)
        connection.sendall(END)
        status, body = answered(connection)
    assert (status, body["data"]["filesize"]) == (200, SIZE)
    path = service.folder / "data" / "uploads" / body["data"]["filename_disk"]
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest.hexdigest()
    path.unlink()
    assert peak(service) < MAX_MEMORY_BYTES


@pytest.mark.slow
def test_an_upload_that_is_broken_off_leaves_nothing(service: Service, token: str) -> None:
    before = uploads(service)
    for size in (1000, 20 * 2**20):
        with begun(service, token, 2 * size) as connection:
            connection.sendall(HEAD + b"x" * size)
    eventually(lambda: uploads(service) == before)


@pytest.mark.slow
def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(
    service: Service, token: str
) -> None:
    before = uploads(service)
    with begun(service, token, 3 * 2**30) as connection:
        status, body = answered(connection)
        assert (status, body["errors"][0]["extensions"]["code"]) == (413, "CONTENT_TOO_LARGE")
        connection.settimeout(TIMEOUT_SECONDS)
        assert connection.recv(1) == b""  # the rest is not waited for
    assert uploads(service) == before
    with begun(service, token, len(HEAD + b"next" + END)) as connection:
        connection.sendall(HEAD + b"next" + END)
        assert answered(connection)[0] == 200
