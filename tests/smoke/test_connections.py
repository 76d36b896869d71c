"""What a real server does with connections: bad requests, bodies that
nobody reads, clients that take nothing.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import requests

from tests.smoke.running import TIMEOUT_SECONDS, Service, new_folder, serving
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with new_folder() as folder, serving(folder, ADMIN_PASSWORD="a password") as running:
        yield running


def raw(service: Service, request: bytes) -> bytes:
    """Send bytes as they are, and return all that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read()


@pytest.fixture(scope="module")
def token(service: Service) -> str:
    """An administrator's token, with a collection `pages` whose keys are texts."""
    login = {"email": "admin@example.com", "password": "a password"}
    return str(
        requests.post(f"{url(service)}/auth/login", json=login, timeout=TIMEOUT_SECONDS).json()[
            "data"
        ]["access_token"]
    )


def url(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def test_a_bad_request_line_is_one_line_of_the_log(service: Service) -> None:
    before = service.log_text()
    assert raw(service, b"NO REQUEST\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    service.await_words("127.0.0.1 sent what is no request")
    logged = service.log_text().removeprefix(before)
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
        assert requests.post(
            url(service) + path, json=body, headers=headers, timeout=TIMEOUT_SECONDS
        ).ok
    statuses = []
    for target in (
        "/items/pages/a%2Fb",
        f"{url(service)}/items/pages/a%2fb?x=%2F",
        "/items/pages/a/b",
        "/items%2Fpages/a%2Fb",
    ):
        head = (
            f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: "
            f"close\r\n\r\n"
        )
        answer = raw(service, head.encode())
        statuses.append(int(answer.split()[1]))
    assert statuses == [200, 200, 404, 404]


# Bodies that nobody reads


def head(method: str, path: str, token: str = "", **headers: object) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode()


def answered(connection: socket.socket) -> tuple[int, str, bytes]:
    """Read one answer: its status, its header Connection, its body."""
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        return response.status, response.headers["Connection"], response.read()


PING = head("GET", "/server/ping")
JSON = {"Content_Type": "application/json"}
FORM = {"Content_Type": "multipart/form-data; boundary=x"}
LARGE = 300_000
NAMELESS = b"--x\r\nContent-Disposition: form-data\r\n\r\n5\r\n"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/items/pages", {**JSON, "Content_Length": 2**21}, 413),
        ("POST", "/files", {**FORM, "Content_Length": 2**31}, 413),
        ("POST", "/utils/import/pages", {"Content_Type": "text/csv", "Content_Length": 2**31}, 413),
        ("POST", "/utils/import/pages", {"Content_Type": "text/odd", "Content_Length": LARGE}, 415),
        ("POST", "/nothing/of/this", {**JSON, "Content_Length": LARGE}, 404),
        ("PUT", "/items/pages", {**JSON, "Content_Length": LARGE}, 405),
        ("POST", "/server/ping", {**JSON, "Content_Length": LARGE}, 405),
        ("GET", "/server/ping", {**JSON, "Content_Length": LARGE}, 200),
    ],
)
def test_an_answer_that_leaves_the_body_unread_closes_the_connection(
    service: Service, token: str, method: str, path: str, headers: dict[str, object], status: int
) -> None:
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        connection.sendall(head(method, path, token, **headers))
        assert answered(connection)[:2] == (status, "close")
        assert connection.recv(1) == b""


def test_who_may_not_call_is_refused_before_the_body_is_read(service: Service) -> None:
    for credentials, status in (("", 403), ("forged", 401)):
        with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
            connection.sendall(
                head(
                    "POST",
                    "/utils/import/pages",
                    credentials,
                    Content_Type="text/csv",
                    Content_Length=LARGE,
                )
            )
            assert answered(connection)[:2] == (status, "close")
            assert connection.recv(1) == b""


def test_a_form_that_is_refused_midway_closes_the_connection(service: Service, token: str) -> None:
    part = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + b"y" * 1000
        + b"\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        connection.sendall(
            head("POST", "/files", token, **FORM, Content_Length=2**29) + NAMELESS + part * 1000
        )
        assert answered(connection)[:2] == (400, "close")


@pytest.mark.parametrize(
    ("target", "headers", "body", "status"),
    [
        ("POST /items/pages", JSON, b'{"id": 5, "other": 6}', 400),
        ("POST /nothing/of/this", JSON, b"{}", 404),
        ("PUT /items/pages", JSON, b"x" * 10_000, 405),
        ("POST /items/pages", {"Content_Type": "text/plain"}, b"hello", 415),
        ("DELETE /items/pages/none", JSON, b"{}", 404),
    ],
)
def test_a_body_that_is_read_or_short_keeps_the_connection(
    service: Service, token: str, target: str, headers: dict[str, object], body: bytes, status: int
) -> None:
    method, path = target.split()
    chunked = head(
        method, path, token, **headers, Transfer_Encoding="chunked"
    ) + b"%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    plain = head(method, path, token, **headers, Content_Length=len(body)) + body
    requests_of_one_connection = [plain, chunked] if status in (400, 415) else [plain]
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        for request in requests_of_one_connection:
            connection.sendall(request)
            assert answered(connection)[:2] == (status, "keep-alive"), request[:200]
            connection.sendall(PING)
            assert answered(connection) == (200, "keep-alive", b"pong")


def test_a_form_in_chunks_keeps_the_connection(service: Service, token: str) -> None:
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; '
        b'filename="a"\r\n\r\nhello\r\n--x--\r\nbehind it'
    )
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        connection.sendall(head("POST", "/files", token, **FORM, Transfer_Encoding="chunked"))
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(form), form))
        assert answered(connection)[:2] == (200, "keep-alive")
        connection.sendall(PING)
        assert answered(connection) == (200, "keep-alive", b"pong")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/items/pages", "application/json"),
        ("/files", "multipart/form-data; boundary=x"),
        ("/utils/import/pages", "text/csv"),
        ("/utils/import/pages", "multipart/form-data; boundary=x"),
    ],
)
@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\n",
        b"5\r\nab",
        b"-1\r\n{}\r\n",
        b"2\r\n{}xx\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"",
    ],
)
def test_malformed_chunks_are_400_and_end_the_connection(
    service: Service, token: str, path: str, kind: str, chunks: bytes
) -> None:
    before = service.log_text()
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        connection.sendall(
            head("POST", path, token, Content_Type=kind, Transfer_Encoding="chunked") + chunks
        )
        connection.shutdown(socket.SHUT_WR)
        status, connection_header, body = answered(connection)
        assert (status, connection_header) == (400, "close")
        assert json.loads(body)["errors"][0]["extensions"]["code"] == "INVALID_PAYLOAD"
        assert connection.recv(1) == b""
    assert "Traceback" not in service.log_text().removeprefix(before)


def test_a_body_shorter_than_announced_is_none(service: Service, token: str) -> None:
    with socket.create_connection(("127.0.0.1", service.port), TIMEOUT_SECONDS) as connection:
        connection.sendall(
            head("POST", "/items/pages", token, **JSON, Content_Length=100) + b'{"id": "short"}'
        )
        connection.shutdown(socket.SHUT_WR)
        assert answered(connection)[:2] == (400, "close")
    assert (
        requests.get(
            f"{url(service)}/items/pages/short",
            headers={"Authorization": f"Bearer {token}"},
            timeout=9,
        ).status_code
        == 404
    )


# Clients that take nothing


ROWS = 4_000
SIZE = ROWS * 8_000
"""More than the buffers of a connection hold, on both of its ends."""


@pytest.fixture(scope="module")
def short_send_timeout() -> Iterator[tuple[Service, str]]:
    """A service with one thread and one connection to read, whose clients have a
    second for each piece of an answer.
    """
    settings = {
        "SEND_TIMEOUT": "1s",
        "WEB_THREADS": "1",
        "DATABASE_POOL_SIZE": "1",
        "MAX_PAYLOAD_SIZE": "100mb",
    }
    with (
        new_folder() as folder,
        serving(folder, ADMIN_PASSWORD="a password", **settings) as running,
    ):
        login = {"email": "admin@example.com", "password": "a password"}
        key = requests.post(
            f"{url(running)}/auth/login", json=login, timeout=TIMEOUT_SECONDS
        ).json()["data"]["access_token"]
        headers = {"Authorization": f"Bearer {key}"}
        table = {"collection": "long", "schema": {}, "fields": [{"field": "text", "type": "text"}]}
        rows = [{"text": "x" * 8_000} for _ in range(ROWS)]
        for path, body in (("/collections", table), ("/items/long", rows)):
            assert requests.post(
                url(running) + path, json=body, headers=headers, timeout=TIMEOUT_SECONDS
            ).ok
        yield running, key


def begun(short_send_timeout: tuple[Service, str], path: str, window: int = 4096) -> socket.socket:
    """Ask for something long, read the beginning of the answer, and return the connection."""
    service, key = short_send_timeout
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    connection.settimeout(TIMEOUT_SECONDS)
    connection.connect(("127.0.0.1", service.port))
    connection.sendall(head("GET", path, key))
    assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    return connection


def uploaded(short_send_timeout: tuple[Service, str]) -> str:
    service, key = short_send_timeout
    headers = {"Authorization": f"Bearer {key}"}
    files = {"file": ("long.bin", b"x" * SIZE)}
    answer = requests.post(
        f"{url(service)}/files", files=files, headers=headers, timeout=TIMEOUT_SECONDS
    )
    return f"/assets/{answer.json()['data']['id']}"


EXPORT = "/items/long?export=csv&limit=-1"
LIST = "/items/long?limit=-1"


@pytest.mark.parametrize("path", [EXPORT, LIST, ""], ids=["export", "list", "asset"])
def test_a_client_that_takes_nothing_holds_nothing(
    short_send_timeout: tuple[Service, str], path: str
) -> None:
    service, key = short_send_timeout
    target = path or uploaded(short_send_timeout)
    before = service.log_text()
    with begun(short_send_timeout, target) as connection:
        # The one thread and the one connection to the database serve the next who asks.
        answer = requests.get(
            f"{url(service)}/items/long?limit=1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=9,
        )
        assert answer.status_code == 200
        service.await_words_after(before, "was cut off")
        assert taken(connection) < SIZE
    logged = service.log_text().removeprefix(before)
    assert f"The answer to GET {target.partition('?')[0]} was cut off" in logged
    assert "Traceback" not in logged


def taken(connection: socket.socket) -> int:
    """Read what has come and is still to come, and return how many bytes it was."""
    size = 0
    with suppress(ConnectionResetError):
        while piece := connection.recv(2**16):
            size += len(piece)
    return size


def test_a_client_that_asks_on_and_takes_no_answer_is_cut_off_as_well(
    short_send_timeout: tuple[Service, str],
) -> None:
    service, key = short_send_timeout
    before = service.log_text()
    with begun(short_send_timeout, "/items/long?limit=20") as connection:
        connection.sendall(
            head("GET", "/items/long?limit=20", key) * 200
        )  # short answers, but many
        service.await_words_after(before, "was cut off")
    assert "Traceback" not in service.log_text().removeprefix(before)


def test_a_client_that_takes_next_to_nothing_is_cut_off_as_well(
    short_send_timeout: tuple[Service, str],
) -> None:
    service, _ = short_send_timeout
    before = service.log_text()
    with begun(short_send_timeout, EXPORT) as connection:

        def is_cut_off() -> bool:
            connection.recv(20)  # each hundredth of a second
            return "was cut off" in service.log_text().removeprefix(before)

        with suppress(ConnectionResetError):
            eventually(is_cut_off)


def test_a_client_that_takes_its_time_for_the_whole_gets_it(
    short_send_timeout: tuple[Service, str],
) -> None:
    size = 0
    with begun(short_send_timeout, EXPORT, 2**18) as connection:
        while size < SIZE:
            size += len(connection.recv(2**19, socket.MSG_WAITALL))
            time.sleep(0.04)
