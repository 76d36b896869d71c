"""A mail server that hangs keeps a worker for a while, and no longer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from cms.cli.worker import tasks_of
from cms.mail import smtp
from cms.mail.mail_queue import Mail, post
from tests.queues import QueueDatabase


@contextmanager
def hanging_server(pieces: bytes) -> Iterator[int]:
    """Run a server that sends these bytes, one every 50 milliseconds, and nothing more."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    for number in range(len(pieces)):
                        connection.sendall(pieces[number : number + 1])
                        time.sleep(0.05)
                    connection.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.clock
@pytest.mark.parametrize(
    ("scheme", "pieces"),
    [
        ("smtp", b""),
        ("smtps", b""),
        ("smtp", b"220 " + b"x" * 1000),
        ("smtps", b"\x16\x03\x03\x04\x00" + b"x" * 1000),
    ],
)
def test_a_server_that_hangs_or_drips_has_so_much_time_and_no_more(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch, scheme: str, pieces: bytes
) -> None:
    monkeypatch.setattr(smtp, "MAX_SECONDS", 0.5)
    with queue.database.transaction() as transaction:
        post(transaction.execute, Mail(["ann@example.com"], subject="Hello", body="Dear Ann"))
    with hanging_server(pieces) as port:
        config = replace(
            queue.config,
            email_transport="smtp",
            email_smtp_host="127.0.0.1",
            email_smtp_port=port,
            email_smtp_secure=scheme == "smtps",
            email_smtp_ignore_tls=True,
        )
        start = time.monotonic()
        queue.drain(*tasks_of(config, queue.database))
        assert time.monotonic() - start < 10
    assert queue.jobs() == [("mail", "todo", 1)]
