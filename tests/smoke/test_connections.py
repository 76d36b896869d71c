"""What a real server does with connections: bad requests, bodies that nobody reads, clients that take nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import requests

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


@pytest.fixture(scope="module")
def token(service: Service) -> str:
    login = {"email": "admin@example.com", "password": "a password"}
    return str(
        requests.post(f"{url(service)}/auth/login", json=login, timeout=PATIENCE_SECONDS).json()["data"]["access_token"]
    )


def url(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def test_a_bad_request_line_is_one_line_of_the_log(service: Service) -> None:
    before = service.said()
    assert raw(service, b"NO REQUEST\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    service.await_words("Invalid request from ip=127.0.0.1")
    logged = service.said().removeprefix(before)
    assert "Logging error" not in logged
    assert "Traceback" not in logged
    assert len(logged.splitlines()) == 1


def test_a_slash_that_is_encoded_belongs_to_the_key(service: Service, token: str) -> None:
    fields = [{"field": "id", "type": "string", "schema": {"is_primary_key": True}}]
    headers = {"Authorization": f"Bearer {token}"}
    for path, body in (
        ("/collections", {"collection": "pages", "schema": {}, "fields": fields}),
        ("/items/pages", {"id": "a/b"}),
    ):
        assert requests.post(url(service) + path, json=body, headers=headers, timeout=PATIENCE_SECONDS).ok
    statuses = []
    for target in (
        "/items/pages/a%2Fb",
        f"{url(service)}/items/pages/a%2fb?x=%2F",
        "/items/pages/a/b",
        "/items%2Fpages/a%2Fb",
    ):
        head = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        answer = raw(service, head.encode())
        statuses.append(int(answer.split()[1]))
    assert statuses == [200, 200, 404, 404]
