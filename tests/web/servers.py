"""gunicorn over the application of `tests.web.echo`, in processes of its own."""

from __future__ import annotations

import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import psutil
import trustme

from tests.smoke.running import SET_OUTSIDE, TIMEOUT_SECONDS, free_port
from tests.waiting import eventually
from tests.web.wire import Wire

ROOT = Path(__file__).parents[2]
APPLICATION = "tests.web.echo:app"


@dataclass(frozen=True, slots=True)
class Running:
    """A web server that answers."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    tls: ssl.SSLContext | None = None
    """How to trust a server that takes TLS only."""

    def connect(self, timeout: float = TIMEOUT_SECONDS, *, source: str = "127.0.0.1") -> Wire:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout, (source, 0))
        return Wire(
            self.tls.wrap_socket(connection, server_hostname="localhost")
            if self.tls
            else connection
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def worker_processes(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children())

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running(
    *,
    environ: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    answers: str = "/",
    descriptors: int | None = None,
    **options: object,
) -> Iterator[Running]:
    """Run gunicorn with the service's own settings and these options of its command line.

    `descriptors` bounds the open files of each process.
    """
    port = free_port()
    with (
        tempfile.NamedTemporaryFile(prefix="cms-web-") as output,
        tempfile.TemporaryDirectory() as folder,
    ):
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        # By its script: as a module it cannot start itself anew (USR2), for its folder would then
        # hide the library's.
        command = [
            str(Path(sys.executable).with_name("gunicorn")),
            "--config=gunicorn.conf.py",
            "--workers=1",
        ]
        process = subprocess.Popen(
            [*command, f"--bind=127.0.0.1:{port}", f"--chdir={ROOT}", *arguments, APPLICATION],
            cwd=ROOT,
            env=environment(Path(folder), **(environ or {})),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(limit_descriptors, descriptors) if descriptors else None,
        )
        server = Running(port, process, Path(output.name), tls)
        try:
            await_answer(server, answers)
            yield server
        finally:
            process.terminate()
            process.wait(TIMEOUT_SECONDS)


def limit_descriptors(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def environment(folder: Path, **settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in SET_OUTSIDE}
    return inherited | {"DATA_DIR": str(folder), "PYTHONPATH": str(ROOT), **settings}


def await_answer(server: Running, target: str) -> None:
    """Wait until the server answers requests."""

    def answers() -> bool:
        assert server.process.poll() is None, server.log_text()
        try:
            with server.connect(1) as wire:
                wire.get(target)
        except (OSError, HTTPException):
            return False
        return True

    eventually(answers, otherwise=server.log_text)


class TlsFiles(NamedTuple):
    """A certificate for `localhost`, and the context of a client that trusts it."""

    certfile: Path
    keyfile: Path
    context: ssl.SSLContext


def tls_files(folder: Path) -> TlsFiles:
    """Write a certificate and its key into a folder."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certfile = folder / "certificate.pem"
    keyfile = folder / "key.pem"
    certificate.private_key_pem.write_to_path(keyfile)
    certfile.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return TlsFiles(certfile, keyfile, context)
