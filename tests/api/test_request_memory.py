"""The memory of a request, which is free as soon as its answer is sent."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cms.http.requests.request import Request
from tests.client import Client


@contextmanager
def garbage() -> Iterator[list[object]]:
    """Yield what only the garbage collector finds of the block, once the block is left."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    found: list[object] = []
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("POST", {"name": "a"}), ("SEARCH", {"query": {}})]
)
def test_a_request_leaves_nothing_to_the_garbage_collector(
    api: Client, method: str, body: object
) -> None:
    fields = [{"field": "name", "type": "string"}]
    api.post("/collections", {"collection": "notes", "schema": {}, "fields": fields})
    api.send(method, "/items/notes", body)
    with garbage() as found:
        assert api.send(method, "/items/notes", body).status == 200
    # Not isinstance(): it would wake lazy objects of libraries.
    assert not [each for each in found if issubclass(type(each), Request)]
