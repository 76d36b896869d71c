"""Every PATCH and DELETE that writes is done once with an Idempotency-Key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from falcon.inspect import inspect_routes

from tests.api.described_calls import parameters_of
from tests.api.test_if_match_routes import CHANGES
from tests.things import Stage, field, table

WITHOUT = {"/flows/trigger/{key}": "a flow says what it does"}


class Call(NamedTuple):
    method: str
    path: str
    body: object = None


def changes_of_one(stage: Stage, route: str) -> list[Call]:
    make, body = CHANGES[route]
    path = make(stage)
    return [Call("PATCH", path, body), Call("DELETE", path)]


def changes_of_several(stage: Stage, route: str) -> list[Call]:
    make, body = CHANGES[f"{route}/{{key}}"]
    path, _, key = make(stage).rpartition("/")
    named = int(key) if key.isdigit() else key
    return [
        Call("PATCH", path, {"keys": [named], "data": body}),
        Call("PATCH", path, [{"id": named, **body}]),
        Call("DELETE", path, [named]),
    ]


def comments(stage: Stage, route: str) -> list[Call]:
    return [
        call._replace(path=call.path.replace("/comments", "/activity/comment"))
        for call in changing_calls(stage, route.replace("/activity/comment", "/comments"))
    ]


def files(stage: Stage, route: str) -> list[Call]:
    upload = {"data": "YQ==", "filename_download": "a.txt"}
    one, other = (stage.admin.post("/files", upload).data["id"] for _ in range(2))
    if route == "/files/{key}":
        return [Call("PATCH", f"/files/{one}", {"title": "b"}), Call("DELETE", f"/files/{one}")]
    return [
        Call("PATCH", "/files", [{"id": other, "title": "b"}]),
        Call("DELETE", "/files", [other]),
    ]


def structure(stage: Stage, route: str) -> list[Call]:
    things = table(stage.admin, field("name", "string"), field("other", "integer"))
    relation = {"collection": things.name, "field": "other", "related_collection": things.name}
    assert stage.admin.post("/relations", relation).status == 200
    note = {"meta": {"note": "b"}}
    path = route.format(collection=things.name, field="name")
    if route.startswith("/relations"):
        path = route.format(collection=things.name, field="other")
        note = {"meta": {"sort_field": "name"}}
    if route == "/collections":
        return [Call("PATCH", path, [{"collection": things.name, **note}])]
    if route == "/fields/{collection}":
        return [Call("PATCH", path, [{"field": "name", **note}])]
    return [Call("PATCH", path, note), Call("DELETE", path)]


def changing_calls(stage: Stage, route: str) -> list[Call]:
    if route == "/users/me/track/page":
        return [Call("PATCH", route, {"last_page": "/content"})]
    if route.startswith("/activity/comment"):
        return comments(stage, route)
    if route.startswith("/files"):
        return files(stage, route)
    if route.startswith(("/collections", "/fields", "/relations")):
        return structure(stage, route)
    return changes_of_one(stage, route) if route in CHANGES else changes_of_several(stage, route)


ROUTES = [
    *CHANGES,
    *(route.removesuffix("/{key}") for route in CHANGES if route.endswith("/{key}")),
    "/activity/comment",
    "/activity/comment/{key}",
    "/files",
    "/files/{key}",
    "/collections",
    "/collections/{collection}",
    "/fields/{collection}",
    "/fields/{collection}/{field}",
    "/relations/{collection}/{field}",
    "/users/me/track/page",
]


def _changing(stage: Stage) -> Iterator[tuple[str, str]]:
    for route in inspect_routes(stage.anonymous.app):
        for method in route.methods:
            if method.method in ("PATCH", "DELETE") and not method.internal:
                yield route.path, method.method


def test_every_route_that_changes_is_here(stage: Stage) -> None:
    assert {path for path, _ in _changing(stage)} == {*ROUTES, *WITHOUT}


@pytest.mark.release
def test_the_document_of_openapi_says_that_each_takes_a_key(stage: Stage) -> None:
    paths: Any = stage.admin.get("/server/specs/oas").body["paths"]
    for path, method in _changing(stage):
        if path not in WITHOUT:
            assert "Idempotency-Key" in parameters_of(paths[path][method.lower()]), (path, method)


@pytest.mark.quick(3)
@pytest.mark.parametrize("route", ROUTES)
def test_a_change_that_comes_again_is_done_once(stage: Stage, route: str) -> None:
    for number, call in enumerate(changing_calls(stage, route)):
        headers = {"Idempotency-Key": f"{number} {call.path} {call.method}"}
        first = stage.admin.send(*call, **headers)
        # The settings and the caller's own user cannot be deleted.
        if first.status == 405:
            continue
        assert first.status in (200, 204), first.text
        before = _traces(stage)
        again = stage.admin.send(*call, **headers)
        assert (again.status, again.content) == (first.status, first.content)
        assert _traces(stage) == before
        other = stage.admin.send(call.method, f"{call.path}?fields=*", call.body, **headers)
        assert other.codes == ["UNPROCESSABLE_CONTENT"]
        assert _traces(stage) == before


def _traces(stage: Stage) -> Any:
    """Return what every change leaves something of: the history, and the counters."""
    return stage.value(
        """
        SELECT array[(SELECT count(*) FROM system_activity), (SELECT structure FROM system_version)]
        """
    )
