"""System collections are reached by their own endpoints, and by no path
that names any collection of items.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cms.schema.system import ENDPOINTS, SYSTEM_COLLECTIONS
from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Stage

HIDDEN = "You don't have permission to access this."
NAMES = (*sorted(SYSTEM_COLLECTIONS), "system_sessions", "system_nowhere", "system_")


@pytest.fixture(scope="module")
def unrestricted(stage: Stage) -> Client:
    actions = ("read", "create", "update", "delete", "share")
    return member(
        stage,
        *(may(name, action=action) for name in sorted(SYSTEM_COLLECTIONS) for action in actions),
    )


def calls(caller: Client, name: str) -> Iterator[Answer]:
    """Every call that names a collection in its path."""
    for path in (
        f"/items/{name}",
        f"/items/{name}/1",
        f"/items/{name}/1/revisions",
        f"/items/{name}/1/revisions/1",
    ):
        yield caller.get(path)
        yield caller.send("HEAD", path)
    yield caller.get(f"/items/{name}", export="csv")
    yield caller.get(f"/items/{name}?nonsense[")
    yield caller.search(f"/items/{name}", {})
    bodies: list[object] = [
        {},
        [],
        [{"id": 1}],
        {"keys": [1], "data": {}},
        {"query": {}, "data": {}},
    ]
    for body in bodies:
        yield caller.post(f"/items/{name}", body)
        yield caller.patch(f"/items/{name}", body)
        yield caller.delete(f"/items/{name}", body)
    yield caller.patch(f"/items/{name}/1", {})
    yield caller.delete(f"/items/{name}/1")
    yield caller.post(f"/utils/sort/{name}", {"item": 1, "to": 2})
    yield caller.send(
        "POST", f"/utils/import/{name}", raw=b"id\n1\n", **{"Content-Type": "text/csv"}
    )


def operations(name: str) -> list[dict[str, object]]:
    operations: list[dict[str, object]] = [
        {"method": "read"},
        {"method": "read", "key": 1},
        {"method": "create", "data": {}},
        {"method": "update", "data": {}},
        {"method": "update", "key": 1, "data": {}},
        {"method": "update", "query": {}, "data": {}},
        {"method": "delete", "key": 1},
        {"method": "delete", "query": {}},
    ]
    return [{"collection": name, **operation} for operation in operations]


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_items_reaches_a_system_collection(
    stage: Stage, unrestricted: Client, name: str
) -> None:
    for caller in (unrestricted, stage.anonymous):
        for answer in calls(caller, name):
            assert answer.status == 403, answer
            assert not answer.text or [(one["code"], one["message"]) for one in answer.errors] == [
                ("FORBIDDEN", HIDDEN)
            ], answer


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", NAMES)
def test_administrators_get_the_reason(stage: Stage, name: str) -> None:
    for answer in calls(stage.admin, name):
        assert answer.status == 403, answer
        assert (
            not answer.text
            or "System collections are reached by their own endpoints only" in answer.text
        ), answer
    (fault,) = stage.admin.get(f"/items/{name}").errors
    assert (f'"{name}" is at {ENDPOINTS.get(name)}' in fault["message"]) is (name in ENDPOINTS)


@pytest.mark.parametrize("name", ["system_users", "system_settings", "system_nowhere"])
def test_no_operation_of_a_batch_does(stage: Stage, unrestricted: Client, name: str) -> None:
    for operation in operations(name):
        answer = unrestricted.post("/batch", {"operations": [operation]})
        assert (answer.status, [(one["code"], one["message"]) for one in answer.errors]) == (
            403,
            [("FORBIDDEN", HIDDEN)],
        ), answer
        answer = stage.admin.post("/batch", {"operations": [operation]})
        assert answer.status == 403, answer
        assert "their own endpoints" in answer.errors[0]["message"], answer
        assert answer.errors[0]["operation"] == 0, answer


def test_an_invalid_token_is_refused_before_anything_else(stage: Stage) -> None:
    assert stage.anonymous.bearing("nonsense").get("/items/system_users").codes == ["INVALID_TOKEN"]


def test_a_preflight_and_the_list_of_methods_name_no_collection(stage: Stage) -> None:
    assert stage.anonymous.send("OPTIONS", "/items/system_users").status == 200


def test_own_endpoints_stay(stage: Stage, unrestricted: Client) -> None:
    for path in ENDPOINTS.values():
        assert stage.admin.get(path).status == 200
        assert unrestricted.get(path).status == 200


def test_an_explanation_takes_the_paths_that_a_read_has(stage: Stage) -> None:
    admin = stage.admin
    for path in ("/users?limit=1", "/roles", "/activity", "/revisions/1", "/settings", "/files"):
        assert admin.get("/utils/explain", path=path).data["statement"]
    assert admin.get("/utils/explain", path="/items/system_users").codes == ["FORBIDDEN"]
    for path in ("/fields", "/users/1/2", "users", "/nowhere", "/items", "/"):
        assert admin.get("/utils/explain", path=path).codes == ["INVALID_QUERY"]
