"""Every route that changes one record compares If-Match with the entity tag of its reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

import pytest
from falcon.inspect import inspect_routes

from tests.api.described_calls import parameters_of, require_described_body
from tests.members import new_role
from tests.things import Stage, field, table

WITHOUT = {
    "/collections/{collection}": "its reads give no version",
    "/fields/{collection}/{field}": "its reads give no version",
    "/relations/{collection}/{field}": "its reads give no version",
    "/users/me/track/page": "its reads give no version",
    "/activity/comment": "it changes several",
    "/collections": "it changes several",
    "/comments": "it changes several",
    "/dashboards": "it changes several",
    "/fields/{collection}": "it changes several",
    "/files": "it changes several",
    "/flows": "it changes several",
    "/flows/trigger/{key}": "what it does is said by the flow",
    "/folders": "it changes several",
    "/notifications": "it changes several",
    "/operations": "it changes several",
    "/panels": "it changes several",
    "/items/{collection}": "it changes several, where it is no singleton",
    "/permissions": "it changes several",
    "/presets": "it changes several",
    "/roles": "it changes several",
    "/shares": "it changes several",
    "/translations": "it changes several",
    "/users": "it changes several",
    "/activity/comment/{key}": "it is read at /comments/{key}, and tested with it",
    "/files/{key}": "it is tested with the files",
}
"""Routes that are not looked at here, and why."""


def item(stage: Stage) -> str:
    things = table(stage.admin, field("name", "string"))
    things.add({"name": "a"})
    return f"{things.path}/1"


def comment(stage: Stage) -> str:
    things = table(stage.admin)
    things.add({})
    body = {"collection": things.name, "item": 1, "comment": "Mine."}
    return f"/comments/{stage.admin.post('/comments', body).data['id']}"


def posted_to(path: str, body: Mapping[str, object]) -> Callable[[Stage], str]:
    return lambda stage: f"{path}/{stage.admin.post(path, body).data['id']}"


def permission(stage: Stage) -> str:
    body = {"role": new_role(stage), "collection": table(stage.admin).name, "action": "read"}
    return posted_to("/permissions", body)(stage)


def operation(stage: Stage) -> str:
    flow = stage.admin.post("/flows", {"name": "a", "trigger": "manual"}).data["id"]
    body = {"flow": flow, "key": "a", "type": "log", "options": {"message": "x"}}
    return posted_to("/operations", body)(stage)


def notification(stage: Stage) -> str:
    recipient = stage.admin.get("/users/me").data["id"]
    return posted_to("/notifications", {"recipient": recipient, "subject": "a"})(stage)


def panel(stage: Stage) -> str:
    dashboard = stage.admin.post("/dashboards", {"name": "a"}).data["id"]
    return posted_to("/panels", {"dashboard": dashboard, "type": "label"})(stage)


def share(stage: Stage) -> str:
    things = table(stage.admin)
    things.add({})
    return posted_to("/shares", {"collection": things.name, "item": "1"})(stage)


def translation(stage: Stage) -> str:
    body = {"language": "en", "key": str(uuid4()), "value": "A"}
    return posted_to("/translations", body)(stage)


CHANGES: dict[str, tuple[Callable[[Stage], str], dict[str, object]]] = {
    "/comments/{key}": (comment, {"comment": "Better."}),
    "/dashboards/{key}": (posted_to("/dashboards", {"name": "a"}), {"name": "b"}),
    "/folders/{key}": (posted_to("/folders", {"name": "a"}), {"name": "b"}),
    "/flows/{key}": (posted_to("/flows", {"name": "a", "trigger": "manual"}), {"name": "b"}),
    "/items/{collection}/{key}": (item, {"name": "b"}),
    "/panels/{key}": (panel, {"note": "b"}),
    "/notifications/{key}": (notification, {"status": "archived"}),
    "/operations/{key}": (operation, {"key": "b"}),
    "/permissions/{key}": (permission, {"fields": ["id"]}),
    "/presets/{key}": (posted_to("/presets", {"bookmark": "a"}), {"bookmark": "b"}),
    "/translations/{key}": (
        translation,
        {"value": "B"},
    ),
    "/roles/{key}": (posted_to("/roles", {"name": "a"}), {"name": "b"}),
    "/shares/{key}": (share, {"name": "b"}),
    "/settings": (lambda stage: "/settings", {"project_name": "b"}),
    "/users/me": (lambda stage: "/users/me", {"title": "b"}),
    "/users/{key}": (posted_to("/users", {"title": "a"}), {"title": "b"}),
}


def test_every_route_that_changes_is_here(stage: Stage) -> None:
    changing = {
        route.path
        for route in inspect_routes(stage.anonymous.app)
        if any(method.method == "PATCH" and not method.internal for method in route.methods)
    }
    assert changing == CHANGES.keys() | WITHOUT.keys()


@pytest.mark.quick(3)
@pytest.mark.parametrize("route", CHANGES)
def test_a_change_needs_the_version_that_is_there(stage: Stage, route: str) -> None:
    make, body = CHANGES[route]
    path = make(stage)
    seen = {"If-Match": stage.admin.get(path).headers["etag"]}
    assert stage.admin.send("PATCH", path, body, **{"If-Match": '"another-version"'}).codes == [
        "PRECONDITION_FAILED"
    ]
    assert stage.admin.send("PATCH", path, body, **seen).status == 200
    assert stage.admin.send("PATCH", path, body, **seen).codes == ["PRECONDITION_FAILED"]
    gone = stage.admin.send("DELETE", path, **seen)
    assert gone.status == 405 or gone.codes == ["PRECONDITION_FAILED"]


@pytest.mark.parametrize("kind", ["items", "singleton"])
def test_a_revert_needs_the_version_that_is_there(stage: Stage, kind: str) -> None:
    things = table(stage.admin, field("name", "string"), singleton=kind == "singleton")
    path = things.path
    if kind == "items":
        things.add({"name": "a"})
        path = f"{things.path}/1"
    assert stage.admin.patch(path, {"name": "b"}).status == 200
    query = f'/revisions?sort=id&filter={{"collection":{{"_eq":"{things.name}"}}}}'
    revert = f"/utils/revert/{stage.admin.get(query).data[0]['id']}"
    seen = {"If-Match": stage.admin.get(path).headers["etag"]}
    assert stage.admin.patch(path, {"name": "c"}).status == 200
    assert stage.admin.send("POST", revert, **seen).codes == ["PRECONDITION_FAILED"]
    seen = {"If-Match": stage.admin.get(path).headers["etag"]}
    assert stage.admin.send("POST", revert, **seen).status == 200


def test_a_move_needs_the_version_of_the_item_that_moves(stage: Stage) -> None:
    things = table(stage.admin, field("place", "integer"), sort_field="place")
    things.add({"place": 1}, {"place": 2})
    seen = {"If-Match": stage.admin.get(f"{things.path}/1").headers["etag"]}
    move = f"/utils/sort/{things.name}"
    assert stage.admin.send("POST", move, {"item": 1, "to": 2}, **seen).status == 204
    again = stage.admin.send("POST", move, {"item": 1, "to": 2}, **seen)
    assert again.codes == ["PRECONDITION_FAILED"]
    assert things.column("place", "sort=id") == [2, 1]


def test_the_document_of_openapi_describes_each_of_these_changes(stage: Stage) -> None:
    document = stage.admin.get("/server/specs/oas").body
    for route, (_, body) in CHANGES.items():
        operation = document["paths"][route]["patch"]
        assert "If-Match" in parameters_of(operation), route
        require_described_body(document, operation, body)
