"""Clients that open one connection after another while a server stops, and what became of each."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.waiting import eventually

TIMEOUT_SECONDS = 30.0
CLIENTS = 16

ANSWERED = "answered whole"
REFUSED = "refused"


def ping(port: int) -> str:
    """Ask once over a new connection and return what became of it."""
    try:
        client = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
    except ConnectionRefusedError:
        return REFUSED
    except OSError as fault:
        return f"not connected: {fault}"
    with client:
        try:
            client.sendall(
                b"GET /server/ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            answer = client.makefile("rb").read()
        except OSError as fault:
            return f"cut off: {fault}"
    is_complete = answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\npong")
    return ANSWERED if is_complete else f"answered in part: {answer!r}"


def ping_until_refused(port: int, stop: Callable[[], None], *, begun: int = 200) -> Counter[str]:
    """Ask from many clients at once, call `stop` once some have been
    answered; return how often became what.

    A client ends when it was refused.
    """
    outcomes: Counter[str] = Counter()
    lock = threading.Lock()

    def client() -> None:
        outcome = ANSWERED
        while outcome != REFUSED:
            outcome = ping(port)
            with lock:
                outcomes[outcome] += 1

    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(client) for _ in range(CLIENTS)]
        try:
            eventually(lambda: outcomes[ANSWERED] >= begun)
        finally:
            stop()
        for one in running:
            one.result(TIMEOUT_SECONDS)
    return outcomes
