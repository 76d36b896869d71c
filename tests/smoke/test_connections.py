"""What a real server does with connections: bad requests, bodies that nobody reads, clients that take nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.smoke.running import PATIENCE_SECONDS, Service, new_folder, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with new_folder() as folder, serving(folder, ADMIN_PASSWORD="a password") as running:
        yield running


def raw(service: Service, request: bytes) -> bytes:
    """Send bytes as they are, and return all that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", service.port), PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read()


def test_a_bad_request_line_is_one_line_of_the_log(service: Service) -> None:
    before = service.said()
    assert raw(service, b"NO REQUEST\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    service.await_words("Invalid request from ip=127.0.0.1")
    logged = service.said().removeprefix(before)
    assert "Logging error" not in logged
    assert "Traceback" not in logged
    assert len(logged.splitlines()) == 1
