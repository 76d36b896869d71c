"""The service itself behind its web server, and behind the workers of gunicorn itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from tests.machines.installation import Client, web_machine
from tests.smoke.running import TIMEOUT_SECONDS, new_folder, serving
from tests.web.wire import Wire, WireAnswer, open_wire

pytestmark = pytest.mark.slow

CONTENT = bytes(range(256)) * 8_192
PREFIX = "/cms"
SETTINGS = {
    "ADMIN_PASSWORD": "a password",
    "SCRIPT_NAME": PREFIX,
    "IP_TRUST_PROXY": "true",
    "LOG_LEVEL": "warn",
}


@dataclass(frozen=True, slots=True)
class PrefixedService:
    """A service below a prefix, and an administrator's token."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, **options: object) -> requests.Response:
        headers = self.headers | options.pop("headers", {})  # type: ignore[operator]
        address = f"http://127.0.0.1:{self.port}{PREFIX}{path}"
        options = {"headers": headers, "timeout": TIMEOUT_SECONDS, **options}
        return requests.request(method, address, **options)  # type: ignore[arg-type]

    def connect(self) -> Wire:
        return open_wire(self.port)

    def send(self, wire: Wire, method: str, path: str, **headers: str) -> WireAnswer:
        """Ask on a connection that is kept, and read the answer."""
        lines = [
            f"{name.replace('_', '-')}: {value}" for name, value in (self.headers | headers).items()
        ]
        wire.send(
            "\r\n".join([f"{method} {PREFIX}{path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()
        )
        return wire.answer(method)


@pytest.fixture(scope="module")
def prefixed_service() -> Iterator[PrefixedService]:
    with new_folder() as folder, serving(folder, **SETTINGS) as service:
        login = {"email": "admin@example.com", "password": "a password"}
        answer = PrefixedService(service.port).call("POST", "/auth/login", json=login)
        token = answer.json()["data"]["access_token"]
        yield PrefixedService(service.port, {"Authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def file(prefixed_service: PrefixedService) -> str:
    answer = prefixed_service.call(
        "POST", "/files", files={"file": ("content.bin", CONTENT, "application/octet-stream")}
    )
    return str(answer.json()["data"]["id"])


def test_ranges_and_answers_without_a_body_leave_the_connection_in_step(
    prefixed_service: PrefixedService, file: str
) -> None:
    with prefixed_service.connect() as wire:
        whole = prefixed_service.send(wire, "GET", f"/assets/{file}")
        assert (whole.status, whole.body) == (200, CONTENT)
        part = prefixed_service.send(wire, "GET", f"/assets/{file}", Range="bytes=100-1099999")
        assert (part.status, part.body) == (206, CONTENT[100:1_100_000])
        assert part.headers["content-range"] == f"bytes 100-1099999/{len(CONTENT)}"
        assert (
            prefixed_service.send(wire, "GET", f"/assets/{file}", Range="bytes=9000000-").status
            == 416
        )
        same = prefixed_service.send(
            wire, "GET", f"/assets/{file}", If_None_Match=whole.headers["etag"]
        )
        assert (same.status, same.body) == (304, b"")
        head = prefixed_service.send(wire, "HEAD", f"/assets/{file}")
        assert (head.status, head.body, head.headers["content-length"]) == (
            200,
            b"",
            str(len(CONTENT)),
        )
        assert prefixed_service.send(wire, "HEAD", "/users/me").status == 200
        assert prefixed_service.send(wire, "GET", "/server/ping").body == b"pong"


def test_items_come_and_go_in_streams(prefixed_service: PrefixedService) -> None:
    table = {"collection": "rows", "schema": {}, "fields": [{"field": "text", "type": "string"}]}
    assert prefixed_service.call("POST", "/collections", json=table).ok
    rows = "text\n" + "".join(f"{number} {'x' * 200}\n" for number in range(3_000))
    parts = (rows[start : start + 50_000].encode() for start in range(0, len(rows), 50_000))
    assert prefixed_service.call(
        "POST", "/utils/import/rows", data=parts, headers={"Content-Type": "text/csv"}
    ).ok
    with prefixed_service.connect() as wire:
        exported = prefixed_service.send(
            wire, "GET", "/items/rows?export=csv&limit=-1&fields=text&sort=id"
        )
        assert exported.body.decode().split() == rows.split()
        assert prefixed_service.send(wire, "GET", "/server/ping").body == b"pong"


def test_the_address_of_a_client_is_that_of_the_proxys_header(
    prefixed_service: PrefixedService,
) -> None:
    login = {"email": "admin@example.com", "password": "a password"}
    assert prefixed_service.call(
        "POST", "/auth/login", json=login, headers={"X-Forwarded-For": "192.0.2.7, 192.0.2.8"}
    ).ok
    activity = prefixed_service.call(
        "GET", "/activity?filter[action][_eq]=login&sort=-id&limit=1&fields=ip"
    ).json()["data"]
    assert activity == [{"ip": "192.0.2.8"}]


def test_a_prefix_belongs_to_the_application_and_other_paths_to_nobody(
    prefixed_service: PrefixedService,
) -> None:
    with prefixed_service.connect() as wire:
        wire.send(b"GET /server/ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.answer().status == 400
    assert prefixed_service.call("GET", "/server%2Fping").status_code == 404


@pytest.mark.parametrize(
    "options", [("--worker-class=sync", "--threads=1"), ("--worker-class=gthread",)], ids=" ".join
)
def test_workers_of_gunicorn_itself_run_the_application(
    tmp_path: Path, module_dsn: str, options: tuple[str, ...]
) -> None:
    settings = {"DATABASE_URL": module_dsn, "SECRET": "only-for-tests-" * 3}
    machine = web_machine(tmp_path / "web", settings)
    machine.words[-1:-1] = options
    try:
        machine.start()
        machine.await_answer()
        admin = Client(machine.url).login()
        file = admin.send("POST", "/files", files={"file": ("content.bin", CONTENT)}).json()["data"]
        assert admin.send("GET", f"/assets/{file['id']}").content == CONTENT
        assert "content.bin" in admin.send("GET", "/files?export=csv").text
        assert admin.send("POST", "/nothing", data=CONTENT).status_code == 404
        assert machine.stop() == 0
    finally:
        machine.kill()
