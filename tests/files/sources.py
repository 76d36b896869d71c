"""Web servers on loopback that files are imported from."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Source:
    """A server that answers each path as set, and records the requests."""

    port: int
    pages: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    seen: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        """Have a path answer these bytes, and return its address."""

        def answer(handler: Any) -> None:
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(body)

        self.pages[path] = answer
        return self.url(path)


@contextmanager
def source(context: ssl.SSLContext | None = None) -> Iterator[Source]:
    """Run a server on a free port of loopback."""
    source = Source(0)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            source.seen.append((self.command, self.path, dict(self.headers)))
            with suppress(OSError):
                page = source.pages.get(self.path.partition("?")[0])
                page(self) if page else self.send_error(404)

        do_GET = do_POST = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_PROPFIND = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    source.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield source
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def raw_source(*pieces: bytes, pause: float = 0.0) -> Iterator[str]:
    """Run a server that sends these bytes, whatever it is asked, with a pause behind each piece."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    for piece in pieces:
                        connection.sendall(piece)
                        if done.wait(pause):
                            return
                    # To close with a part of the request unread would reset the connection, and the
                    # client might lose what was sent to it.
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(1)
                    while connection.recv(65536):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
