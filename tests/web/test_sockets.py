"""What the web server listens on besides plain TCP: TLS by gunicorn's settings, and unix
sockets.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import psutil
import pytest

from tests.waiting import eventually
from tests.web.servers import running, tls_files
from tests.web.wire import Wire

pytestmark = pytest.mark.slow


def test_connections_over_tls_are_served_whole(tmp_path: Path) -> None:
    certfile, keyfile, context = tls_files(tmp_path)
    with (
        running(tls=context, certfile=certfile, keyfile=keyfile) as server,
        server.connect() as wire,
    ):
        assert wire.get("/").json()["wsgi.url_scheme"] == "https"
        assert wire.get("/large?size=5000000").body == b"x" * 5_000_000
        assert wire.get("/stream?size=5000000").body == b"x" * 5_000_000
        wire.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000
        )
        assert wire.answer().json()["size"] == 1_000_000


def test_a_client_that_ends_tls_before_its_answer_leaves_nothing(tmp_path: Path) -> None:
    certfile, keyfile, context = tls_files(tmp_path)
    with running(tls=context, certfile=certfile, keyfile=keyfile) as server:
        (worker,) = server.worker_processes()
        # The connection by which `running` saw that it answers may still be open.
        eventually(
            lambda: {each.status for each in worker.net_connections()} == {psutil.CONN_LISTEN}
        )
        before = worker.num_fds()
        with server.connect() as wire:
            wire.send(b"GET /sleep?seconds=0.3 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert isinstance(wire.socket, ssl.SSLSocket)
            wire.socket.unwrap().close()
        with server.connect() as wire:
            assert wire.get("/sleep?seconds=0.5").status == 200
        eventually(lambda: worker.num_fds() == before)
        assert server.log_text() == ""


def test_a_unix_socket_serves_a_proxy(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    with running(bind=f"unix:{path}") as server:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(str(path))
        with Wire(connection) as wire:
            environ = wire.get("/a%2Fb", **{"X-Forwarded-Proto": "https"}).json()
            assert (environ["RAW_URI"], environ["wsgi.url_scheme"]) == ("/a%2Fb", "https")
            assert wire.get("/stream?size=5000000").body == b"x" * 5_000_000
        assert server.process.poll() is None
