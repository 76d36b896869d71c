"""A body with a member that nobody knows is refused, and nothing of it is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from falcon.inspect import inspect_routes

from cms.openapi.route_table import BODY_MEMBERS
from tests.api.test_idempotent_changes import ROUTES, changing_calls
from tests.api.test_idempotent_routes import EXAMPLES, RouteSetup, setup
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer
from tests.files.forms import BOUNDARY, form
from tests.things import Stage, field, table

__all__ = ["setup"]

UNKNOWN = "zzz"
TAKES_ANY = {
    "/flows/trigger/{key}": "a flow reads the body",
    "/flows/runs/{key}/retry": "it has no body",
    "/auth/login/{provider}": "there is no provider here; its members stand in the table",
}
TOKEN: dict[str, object] = {"refresh_token": "x"}
BODIES: dict[str, dict[str, object]] = {
    "/auth/login": {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD},
    "/auth/refresh": TOKEN,
    "/auth/logout": TOKEN,
    "/auth/password/request": {"email": ADMIN_EMAIL},
    "/auth/password/reset": {"token": "x", "password": "a long password"},
    "/shares/auth": {"share": "x"},
    "/schema/diff": {"version": 1, "collections": [], "fields": [], "relations": []},
    "/users/me/tfa/generate": {"password": ADMIN_PASSWORD},
    "/utils/hash/generate": {"string": "a"},
    "/utils/hash/verify": {"string": "a", "hash": "b"},
}
FILES = {"/files": {"data": "YQ==", "filename_download": "a.txt"}}
ROWS_IN_A_FILE = "/utils/import/{collection}"


def routes(stage: Stage, *methods: str) -> set[str]:
    found = set()
    for route in inspect_routes(stage.anonymous.app):
        for method in route.methods:
            if method.method in methods and not method.internal:
                found.add(route.path)
    return found - TAKES_ANY.keys()


def with_unknown(body: Any) -> Any:
    if body is None:
        return {UNKNOWN: 1}
    if isinstance(body, dict):
        return {**body, UNKNOWN: 1}
    if all(isinstance(entry, dict) for entry in body):
        return [{**entry, UNKNOWN: 1} for entry in body]
    return {"keys": body, UNKNOWN: 1}


def require_refusal(answer: Answer) -> None:
    assert (answer.status, answer.codes[0]) == (400, "INVALID_PAYLOAD"), answer
    assert UNKNOWN in str(answer.errors[0]), answer.text


def count(stage: Stage) -> int:
    return int(stage.value("SELECT count(*) FROM system_activity"))


def test_every_route_that_takes_a_body_is_here(setup: RouteSetup) -> None:
    assert routes(setup.files.stage, "POST") == (EXAMPLES.keys() | BODIES.keys()) - TAKES_ANY.keys()
    assert routes(setup.files.stage, "PATCH", "DELETE") == set(ROUTES)
    assert BODY_MEMBERS["/auth/login/{provider}", "POST"] == {
        "identifier",
        "email",
        "password",
        "otp",
        "mode",
    }


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "route", [*sorted(EXAMPLES.keys() - {ROWS_IN_A_FILE, *TAKES_ANY}), *BODIES]
)
def test_a_post_refuses_it(setup: RouteSetup, route: str) -> None:
    client = setup.admin
    if route in BODIES:
        path: str = route
        body: Any = BODIES[route]
    else:
        example = EXAMPLES[route](setup)
        path = example.path
        body = FILES.get(route, example.body)
        client = example.client or client
    before = count(setup.files.stage)
    require_refusal(client.post(path, with_unknown(body)))
    assert count(setup.files.stage) == before


@pytest.mark.quick(3)
@pytest.mark.parametrize("route", ROUTES)
def test_a_change_and_a_deletion_refuse_it(stage: Stage, route: str) -> None:
    for call in changing_calls(stage, route):
        before = count(stage)
        answer = stage.admin.send(call.method, call.path, with_unknown(call.body))
        # The settings and the caller's own user cannot be deleted.
        if answer.status != 405:
            require_refusal(answer)
        assert count(stage) == before


@pytest.mark.release
def test_a_search_refuses_it(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string"))
    for route in routes(stage, "QUERY"):
        path = route.format(collection=things.name, key=1)
        require_refusal(stage.admin.send("SEARCH", path, {UNKNOWN: {"name": {"_eq": "x"}}}))
        require_refusal(stage.admin.send("SEARCH", path, {"query": {}, UNKNOWN: 1}))


def forms() -> Iterator[bytes]:
    file = ("file", b'[{"name": "a"}]', "a.json")
    yield form(file, (UNKNOWN, "x"))
    yield form((UNKNOWN, "x"), file)
    yield form((UNKNOWN, "x"))


def test_a_form_refuses_a_part_that_nobody_knows(stage: Stage) -> None:
    things = table(stage.admin, field("name", "string"))
    media = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}
    for path in (f"/utils/import/{things.name}", "/schema/diff"):
        for raw in forms():
            require_refusal(stage.admin.send("POST", path, raw=raw, **media))
    assert things.get().data == []


@pytest.mark.quick(2)
@pytest.mark.parametrize("path", ["/items/{name}", "/users", "/files", "/folders", "/comments"])
def test_what_a_call_selects_stands_in_its_body_alone(stage: Stage, path: str) -> None:
    """In a query string it would be ignored, and the call would take every item."""
    things = table(stage.admin, field("name", "string"))
    things.add({"name": "a"}, {"name": "b"})
    path = path.format(name=things.name)
    for query in ('filter={"id":{"_eq":1}}', "filter[id][_eq]=1", "search=a"):
        changed = stage.admin.patch(f"{path}?{query}", {"query": {}, "data": {}})
        deleted = stage.admin.delete(f"{path}?{query}", {"query": {}})
        assert changed.codes == deleted.codes == ["INVALID_QUERY"]
    assert stage.admin.send("DELETE", f"{path}?limit=1", {"query": {}}).codes == ["INVALID_QUERY"]
    assert things.column("name") == ["a", "b"]
