"""A small application that answers with what it was sent, for tests of the web server alone."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

import orjson

Environ = dict[str, Any]
Start = Callable[..., Any]

SHOWN_KEYS = (
    "REQUEST_METHOD",
    "PATH_INFO",
    "RAW_URI",
    "QUERY_STRING",
    "SERVER_PROTOCOL",
    "SCRIPT_NAME",
    "REMOTE_ADDR",
    "wsgi.url_scheme",
)
CHUNK = 65_536


def app(environ: Environ, start: Start) -> Iterable[bytes]:
    """Answer by the path: `/stream`, `/broken`, `/sleep`, `/spin`, `/file`, or the request as
    JSON.
    """
    parameters = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    match environ["PATH_INFO"]:
        case "/stream":
            start("200 OK", [("Content-Type", "text/plain")])
            return streamed(int(parameters.get("size", 1_000_000)))
        case "/broken":
            start("200 OK", [("Content-Type", "text/plain")])
            return broken()
        case "/short":
            start("200 OK", [("Content-Length", "10")])
            return iter([b"short"])
        case "/large":
            return answered(start, b"x" * int(parameters["size"]))
        case "/sleep":
            time.sleep(float(parameters["seconds"]))
            return answered(start, str(os.getpid()).encode())
        case "/spin":
            threading.Event().wait()
        case "/empty":
            start({"204": "204 No Content", "304": "304 Not Modified"}[parameters["status"]], [])
            return []
        case "/unread":
            return answered(start, b"unread")
        case "/fault":
            raise RuntimeError("as it was asked to")
    return answered(start, orjson.dumps(description(environ)))


def answered(start: Start, body: bytes) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def description(environ: Environ) -> dict[str, object]:
    """Return what the server passed on of a request, and its body as a digest."""
    digest = hashlib.sha256()
    size = 0
    fault = None
    try:
        while piece := environ["wsgi.input"].read(CHUNK):
            digest.update(piece)
            size += len(piece)
    except OSError as error:
        fault = str(error)
    headers = {key: value for key, value in environ.items() if key.startswith("HTTP_")}
    values = {key: environ.get(key) for key in SHOWN_KEYS}
    return {
        **values,
        "keys": sorted(environ),
        "headers": headers,
        "size": size,
        "digest": digest.hexdigest(),
        "fault": fault,
        "pid": os.getpid(),
    }


def streamed(size: int) -> Iterator[bytes]:
    for start in range(0, size, CHUNK):
        yield b"x" * min(CHUNK, size - start)


def broken() -> Iterator[bytes]:
    yield b"x" * CHUNK
    raise RuntimeError("in the middle of an answer")
