"""Uploads: a large file as a form, against `cat` into the same folder."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.serving import RunningServer
from bench.wire import RequestFailed, connect, exchange, head_of, request

MEGABYTES = 200
_BOUNDARY = "bench-boundary"
_CHUNK = os.urandom(2**20)


@dataclass(frozen=True, slots=True)
class Uploading:
    """Median megabytes a second of an upload and of a copy.

    The copy is on the disk when its time ends, as the upload is.
    """

    upload: float
    cat: float

    @property
    def ratio(self) -> float:
        return self.upload / self.cat


def measure(service: RunningServer, folder: Path, *, token: str, times: int = 5) -> Uploading:
    """Upload and copy a file in turns; the results are removed."""
    source = folder / "source.bin"
    with source.open("wb") as file:
        for _ in range(MEGABYTES):
            file.write(_CHUNK)
    uploads = []
    copies = []
    try:
        for _ in range(times):
            copies.append(_megabytes_per_second(lambda: _copy(source, folder / "copy.bin")))
            uploads.append(_megabytes_per_second(lambda: _upload(service, source, token)))
            _delete_upload(service, token)
    finally:
        source.unlink()
        (folder / "copy.bin").unlink(missing_ok=True)
    return Uploading(median(uploads), median(copies))


def _megabytes_per_second(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return MEGABYTES / (time.perf_counter() - began)


def _copy(source: Path, target: Path) -> None:
    with target.open("wb") as file:
        subprocess.run(["cat", str(source)], stdout=file, check=True)
        os.fsync(file.fileno())  # the service does so before it answers


def _upload(service: RunningServer, source: Path, token: str) -> None:
    disposition = 'Content-Disposition: form-data; name="file"; filename="bench.bin"'
    head = f"--{_BOUNDARY}\r\n{disposition}\r\n\r\n".encode()
    closing_boundary = f"\r\n--{_BOUNDARY}--\r\n".encode()
    size = len(head) + source.stat().st_size + len(closing_boundary)
    lines = ["POST /files?fields=id HTTP/1.1", "Host: bench", f"Authorization: Bearer {token}"]
    lines += [
        f"Content-Type: multipart/form-data; boundary={_BOUNDARY}",
        f"Content-Length: {size}",
        "",
        "",
    ]
    received = bytearray()
    with connect(service.address) as connection, source.open("rb") as file:
        connection.sendall("\r\n".join(lines).encode() + head)
        connection.sendfile(file)  # by the kernel: the client takes as little as it can
        connection.sendall(closing_boundary)
        while (response := head_of(received)) is None or len(received) < response.size:
            received += connection.recv(1 << 16) or _fail(received)
    if response.status >= 300:
        raise RequestFailed(bytes(received[:600]).decode(errors="replace"))


def _fail(received: bytearray) -> bytes:
    raise RequestFailed(f"the connection ended within an answer: {bytes(received[:300])!r}")


def _delete_upload(service: RunningServer, token: str) -> None:
    query = {"query": {"filter": {"filename_download": {"_eq": "bench.bin"}}}}
    exchange(service.address, request("DELETE", "/files", token=token, payload=query))
