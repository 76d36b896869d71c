"""The indexes for searches in a large collection, which a background job builds."""

from __future__ import annotations

import time

from bench.serving import RunningServer
from bench.wire import call, exchange, request

BUILD_SECONDS = 3_600.0
"""How long the indexes may take."""


def make_searchable(service: RunningServer, token: str, collection: str) -> float:
    """Return the milliseconds of the answer; the indexes are there when this returns."""
    path = f"/collections/{collection}"
    body = {"meta": {"searchable": True}}
    began = time.perf_counter()
    exchange(service.address, request("PATCH", path, token=token, payload=body))
    milliseconds = (time.perf_counter() - began) * 1000
    until = time.monotonic() + BUILD_SECONDS
    while _state(service, token, path) != "ready":
        assert time.monotonic() < until, "the indexes are not built"
        time.sleep(0.1)
    return milliseconds


def _state(service: RunningServer, token: str, path: str) -> str:
    record = call(service.address, request("GET", path, token=token))
    return str(record["meta"]["search_index"]["state"])
