"""The memory of a request, which is free as soon as its answer is sent."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cms.http.requests.request import Request
from tests.active_flows import make_flow, step
from tests.client import Client

pytestmark = pytest.mark.release


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
    assert not requests_in(found)


@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("OPTIONS", "/server/info", None, 200),
        ("GET", "/server/info", "a.b.c", 401),
        ("POST", "/auth/login", None, 401),
        ("POST", "/auth/login", "a.b.c", 401),
    ],
)
def test_a_request_that_is_refused_or_tells_no_caller_leaves_nothing_either(
    make_client: Callable[..., Client], method: str, path: str, token: str | None, status: int
) -> None:
    # With limits, which hold the request as well.
    client = make_client(rate_limiter_enabled=True)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = {"email": "nobody@example.com", "password": "wrong"} if method == "POST" else None
    client.send(method, path, body, **headers)
    with garbage() as found:
        assert client.send(method, path, body, **headers).status == status
    assert not requests_in(found)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/items/names/99", None, 404),
        ("POST", "/items/names", {"name": "taken"}, 400),
        ("POST", "/items/names", {"other": 1}, 400),
        ("PATCH", "/items/names/99", {"name": "b"}, 404),
        ("PATCH", "/items/names/1", {"id": "x"}, 400),
        ("PATCH", "/items/names", {"query": {}, "data": {"name": "taken"}}, 400),
        ("DELETE", "/items/names/99", None, 404),
        ("POST", "/folders", {"name": "a", "parent": "7a5c0b52-0000-4000-8000-000000000000"}, 400),
        ("POST", "/collections", {"collection": "names"}, 400),
        ("POST", "/utils/import/names", [{"name": "taken"}], 400),
        ("POST", "/utils/import/names", [], 200),
    ],
)
def test_a_call_that_its_attempt_refuses_leaves_nothing_either(
    api: Client, method: str, path: str, body: object, status: int
) -> None:
    unique = {"field": "name", "type": "string", "schema": {"is_unique": True}}
    api.post("/collections", {"collection": "names", "schema": {}, "fields": [unique]})
    api.post("/items/names", [{"name": "taken"}, {"name": "free"}])
    headers = {"Content-Type": "application/json"}
    api.send(method, path, body, **headers)
    with garbage() as found:
        assert api.send(method, path, body, **headers).status == status
    assert not requests_in(found)


def test_a_call_of_a_flow_that_rejects_leaves_nothing_either(api: Client) -> None:
    steps = [step("no", "throw-error", {"code": "NO", "status": 409})]
    path = f"/flows/trigger/{make_flow(api, 'webhook', {}, steps)}"
    assert api.get(path).status == 409
    with garbage() as found:
        assert api.get(path).status == 409
    assert not requests_in(found)


def requests_in(found: list[object]) -> list[object]:
    # Not isinstance(): it would wake lazy objects of libraries.
    return [each for each in found if issubclass(type(each), Request)]
