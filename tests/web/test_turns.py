"""A server in the process of the test, whose event loop turns away as soon as it may."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from cms.web import request_reader
from cms.web.client_limits import ClientLimits
from cms.web.web_server import WebServer
from tests.web.test_refusals import get, send_until_the_end
from tests.web.wire import open_wire

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 10.0
SLOW_SECONDS = 0.5


def slow(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/slow":
        time.sleep(SLOW_SECONDS)
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"answered"]


@contextmanager
def serving() -> Iterator[int]:
    """Serve with one thread, and yield the port."""
    loop = uvloop.new_event_loop()
    server = WebServer(slow, loop, threads=1, limits=ClientLimits())
    is_over = asyncio.Event()

    async def serve() -> None:
        server.listen([listener])
        await is_over.wait()
        await server.drain(TIMEOUT_SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        try:
            yield port
        finally:
            loop.call_soon_threadsafe(is_over.set)
            thread.join()
            loop.close()


def test_a_turn_that_ends_with_a_refusal_leaves_the_rest_until_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that sends too much behind a refused request still gets its earlier answer."""
    monkeypatch.setattr(request_reader, "PARSE_SECONDS", 0.0)
    with serving() as port, open_wire(port) as first, open_wire(port) as second:
        first.send(get("/slow"))
        time.sleep(SLOW_SECONDS / 5)
        sent = get("/") + b"no request\r\n\r\n" + b"x" * 20_000_000
        sender = threading.Thread(target=send_until_the_end, args=(second, sent))
        sender.start()
        assert second.answer().body == b"answered"
        sender.join()
