"""nginx as docs/deployment.md configures it, in front of a service whose threads clients could
occupy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import requests

from tests.databases import drop_database
from tests.files.images import picture
from tests.machines.installation import Client, installation
from tests.machines.nginx import nginx
from tests.smoke.running import TIMEOUT_SECONDS
from tests.web.wire import Wire, open_wire

pytestmark = [pytest.mark.release, pytest.mark.slow]

SLOW_CLIENTS = 40
BYTES = bytes(range(256)) * 40_000


@dataclass(frozen=True)
class Proxied:
    """An administrator's clients: by way of nginx, and straight at the service."""

    admin: Client
    straight: Client
    port: int

    def connect(self) -> Wire:
        return open_wire(self.port)

    def upload(self, content: bytes, name: str, media_type: str) -> str:
        answer = self.admin.send("POST", "/files", files={"file": (name, content, media_type)})
        return str(answer.json()["data"]["id"])


@pytest.fixture(scope="module")
def nginx_site(make_database: Callable[..., str], template: str) -> Iterator[Proxied]:
    dsn = make_database(template)
    # Without a space: nginx takes most paths without quotes.
    with TemporaryDirectory(prefix="cms-nginx-") as name:
        folder = Path(name)
        uploads = folder / "uploads"
        settings = {
            "STORAGE_LOCATIONS": "local",
            "STORAGE_LOCAL_ROOT": str(uploads),
            "ASSETS_SENDFILE": "/protected",
            "WEB_THREADS": "2",
            "RATE_LIMITER_ENABLED": "true",
            "RATE_LIMITER_PER_SECOND": "1000",
            "RATE_LIMITER_PER_MINUTE": "60000",
            "CORS_ENABLED": "true",
            "CORS_ORIGIN": "https://shop.example.com",
        }
        with (
            installation(folder, dsn, settings, web=1) as installed,
            nginx(folder / "nginx", [installed.web[0].port], uploads=uploads) as port,
        ):
            straight = installed.first.login()
            admin = replace(straight, url=f"http://127.0.0.1:{port}")
            yield Proxied(admin, straight, port)
    drop_database(dsn)


def test_nginx_sends_the_content_of_a_file_and_its_ranges(nginx_site: Proxied) -> None:
    key = nginx_site.upload(BYTES, "content.bin", "application/octet-stream")
    answer = nginx_site.straight.send("GET", f"/assets/{key}")
    assert answer.headers["X-Accel-Redirect"].startswith("/protected/local/")
    assert answer.content == b""
    sent = nginx_site.admin.send("GET", f"/assets/{key}")
    assert (sent.status_code, sent.content) == (200, BYTES)
    assert "X-Accel-Redirect" not in sent.headers
    part = nginx_site.admin.send("GET", f"/assets/{key}", headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, BYTES[1000:2000])
    again = {"If-None-Match": sent.headers["ETag"]}
    assert nginx_site.admin.send("GET", f"/assets/{key}", headers=again).status_code == 304


def test_what_nginx_sends_has_the_headers_of_the_service(nginx_site: Proxied) -> None:
    key = nginx_site.upload(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.svg", "image/svg+xml")
    headers = {"Origin": "https://shop.example.com", "X-Request-Id": "one-request"}
    straight = nginx_site.straight.send("GET", f"/assets/{key}?download", headers=headers).headers
    proxied = nginx_site.admin.send("GET", f"/assets/{key}?download", headers=headers).headers
    own = {"connection", "content-length", "date", "etag", "last-modified", "server"}
    names = {name.lower() for name in straight}
    assert "access-control-allow-origin" in names
    changing = {"x-ratelimit-remaining", "x-ratelimit-reset"}
    assert changing <= {name.lower() for name in proxied}
    for name in names - own - changing - {"x-accel-redirect"}:
        assert proxied.get(name) == straight[name], name


def test_transformed_images_go_the_same_way(nginx_site: Proxied) -> None:
    key = nginx_site.upload(picture("PNG", (64, 64)), "a.png", "image/png")
    for _ in range(2):
        answer = nginx_site.admin.send("GET", f"/assets/{key}?width=16&format=jpg")
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/jpeg"), (
            answer.text
        )
        assert answer.content.startswith(b"\xff\xd8")


def test_nobody_else_gets_a_file_by_its_path(nginx_site: Proxied) -> None:
    key = nginx_site.upload(b"secret", "a.txt", "text/plain")
    path = nginx_site.straight.send("GET", f"/assets/{key}").headers["X-Accel-Redirect"]
    assert nginx_site.admin.send("GET", path).status_code == 404
    anonymous = Client(nginx_site.admin.url)
    assert anonymous.send("GET", f"/assets/{key}").status_code == 403


def test_the_address_of_a_client_is_that_of_its_connection_to_nginx(nginx_site: Proxied) -> None:
    # The header is the client's own, which nginx replaces.
    login = {"email": "nobody@example.com", "password": "wrong"}
    forged = {"X-Forwarded-For": "192.0.2.7"}
    nginx_site.admin.send("POST", "/auth/login", json=login, headers=forged)
    nginx_site.admin.data("POST", "/collections", {"collection": "seen", "schema": {}})
    nginx_site.admin.send("POST", "/items/seen", json={}, headers=forged)
    rows = nginx_site.admin.data("GET", "/activity?filter[collection][_eq]=seen&fields=ip&limit=1")
    assert rows == [{"ip": "127.0.0.1"}]


@pytest.mark.parametrize(("path", "size"), [("/files", 2**30), ("/items/x", 2**20)])
def test_what_is_too_large_is_refused_before_it_is_sent(
    nginx_site: Proxied, path: str, size: int
) -> None:
    with nginx_site.connect() as wire:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size + 1}\r\n\r\n"
        wire.send(head.encode())
        answer = wire.answer("POST")
        assert answer.status == 413
        (error,) = json.loads(answer.body)["errors"]
        assert error["extensions"]["code"] == "CONTENT_TOO_LARGE"


def test_the_limit_of_nginx_is_that_of_the_service(nginx_site: Proxied) -> None:
    just_small_enough = b'["' + b"x" * (2**20 - 4) + b'"]'
    headers = {"Content-Type": "application/json"}
    answer = nginx_site.admin.send("POST", "/items/none", data=just_small_enough, headers=headers)
    assert answer.json()["errors"][0]["extensions"]["code"] == "NOT_FOUND"


def test_connections_are_kept_on_both_sides(nginx_site: Proxied) -> None:
    with nginx_site.connect() as wire:
        for _ in range(3):
            wire.send(b"GET /server/ping HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = wire.answer()
            assert (answer.status, answer.body) == (200, b"pong")
            assert answer.headers.get("connection") == "keep-alive"


@pytest.mark.clock
def test_clients_that_send_slowly_delay_nobody(nginx_site: Proxied) -> None:
    half = b"POST /files HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf of it"
    with ExitStack() as stack:
        for _ in range(SLOW_CLIENTS):
            stack.enter_context(nginx_site.connect()).send(half)
        assert seconds_of_pings(nginx_site) < 2


@pytest.mark.clock
def test_clients_that_read_slowly_delay_nobody(nginx_site: Proxied) -> None:
    fields = [{"field": "text", "type": "text"}]
    table = {"collection": "long", "schema": {}, "fields": fields}
    nginx_site.admin.data("POST", "/collections", table)
    # More than the sockets on the way hold: of less, the service would be rid in any case.
    for _ in range(50):
        nginx_site.admin.data("POST", "/items/long", [{"text": "x" * 500_000}])
    head = (
        f"GET /items/long HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {nginx_site.admin.token}\r\n"
    )
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(nginx_site.connect()).send(f"{head}\r\n".encode())
        time.sleep(3)
        assert seconds_of_pings(nginx_site) < 2


def seconds_of_pings(nginx_site: Proxied) -> float:
    """Return how long the slowest of some requests took."""
    slowest = 0.0
    for _ in range(10):
        began = time.monotonic()
        assert requests.get(f"{nginx_site.admin.url}/server/ping", timeout=TIMEOUT_SECONDS).ok
        slowest = max(slowest, time.monotonic() - began)
    return slowest
