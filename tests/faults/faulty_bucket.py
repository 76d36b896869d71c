"""An S3 server that fails as a test sets it: what stands between it and the service breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import requests

from tests.files.bucket import bucket_server

TIMEOUT_SECONDS = 60.0

RESET = "reset"
"""The connection ends without an answer, and the request has not arrived."""
LOST = "lost"
"""The request is done, and the connection ends without its answer."""
HALF = "half"
"""The answer breaks off in the middle of its body."""

SLOW_DOWN = "503 SlowDown"
INTERNAL = "500 InternalError"
DENIED = "403 AccessDenied"

FOREVER = 10**9


@dataclass
class Fault:
    """What becomes of the next requests of a method whose target holds some words."""

    kind: str
    method: str
    words: str = ""
    times: int = FOREVER


@dataclass
class FaultyBucket:
    """A proxy in front of an S3 server; `served` has the methods of all requests."""

    address: str
    server: str
    faults: list[Fault] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def failing(
        self, kind: str, method: str, words: str = "", times: int = FOREVER
    ) -> Iterator[None]:
        self.served.clear()
        self.faults.append(Fault(kind, method, words, times))
        try:
            yield
        finally:
            self.faults.clear()

    def kind_of(self, method: str, target: str) -> str:
        """Return how a request fails, an empty text if it does not."""
        with self.lock:
            self.served.append(method)
            for fault in self.faults:
                if fault.times and fault.method == method and fault.words in target:
                    fault.times -= 1
                    return fault.kind
        return ""


class _Handler(BaseHTTPRequestHandler):
    bucket: ClassVar[FaultyBucket]
    protocol_version = "HTTP/1.1"

    def do_any(self) -> None:
        body = self._body()
        kind = self.bucket.kind_of(self.command, self.path)
        if kind == RESET:
            self.close_connection = True
            return
        if kind and kind not in (LOST, HALF):
            status, code = kind.split()
            self._answer(int(status), {}, f"<Error><Code>{code}</Code></Error>".encode())
            return
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        answer = requests.request(
            self.command,
            self.bucket.server + self.path,
            data=body,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
        )
        if kind == LOST:
            self.close_connection = True
            return
        self._answer(answer.status_code, dict(answer.headers), answer.content, half=kind == HALF)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, *, half: bool = False
    ) -> None:
        self.send_response(status)
        length = headers.get("Content-Length", len(body)) if self.command == "HEAD" else len(body)
        for name, value in headers.items():
            if name not in ("Content-Length", "Connection", "Transfer-Encoding", "Date", "Server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if half else body)
        self.close_connection |= half

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@contextmanager
def faulty_bucket() -> Iterator[FaultyBucket]:
    """Run an S3 server that has a bucket `files`, behind a proxy."""
    with bucket_server() as server:
        handler = type("Handler", (_Handler,), {})
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        bucket = FaultyBucket(f"http://127.0.0.1:{proxy.server_port}", server)
        handler.bucket = bucket  # type: ignore[attr-defined]
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield bucket
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
