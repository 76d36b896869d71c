"""A call that is refused has done nothing: no row, no history, no job, no file,
no number drawn, no password hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cms.files.contents import Contents
from cms.hashing.passwords import Passwords
from tests.client import Answer, Client
from tests.files.forms import FileService
from tests.members import may, member
from tests.security.footprints import footprint
from tests.things import Table, field, table

Json = dict[str, Any]
ANYBODY = "5f6f9b1a-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def nodes(files: FileService) -> Table:
    nodes = table(
        files.admin,
        field("title", "string"),
        field("state", "string"),
        field("code", "hash"),
        field("place", "integer"),
        field("parent", "integer"),
        sort_field="place",
    )
    meta = {"one_field": "children"}
    relation = {
        "collection": nodes.name,
        "field": "parent",
        "related_collection": nodes.name,
        "meta": meta,
    }
    assert files.admin.post("/relations", relation).status == 200
    nodes.add(
        {"title": "a", "state": "draft"},
        {"title": "b", "state": "live"},
        {"title": "c", "parent": 1},
    )
    return nodes


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that are hashed meanwhile."""
    recorded: list[str] = []

    def hashed(_own: Passwords, password: str) -> str:
        recorded.append(password)
        return "$argon2id$"

    monkeypatch.setattr(Passwords, "hashed", hashed)
    return recorded


def denied(
    caller: Client, things: Table, files: FileService, file: str, folder: str
) -> list[Callable[[], Answer]]:
    """Return every kind of write, each of which the caller may not do."""
    name = things.name
    path = things.path
    batch = {"operations": [{"method": "create", "collection": name, "data": {"code": "x"}}]}
    revision = files.admin.get(f"{path}/1/revisions").data[0]["id"]
    return [
        lambda: caller.post(path, {"title": "x", "code": "secret"}),
        lambda: caller.post(path, [{"title": "x"}] * 3),
        lambda: caller.post(path, {"title": "x", "children": [{"title": "y", "code": "z"}]}),
        lambda: caller.send("POST", path, {"title": "x"}, **{"Idempotency-Key": "denied"}),
        lambda: caller.patch(f"{path}/1", {"title": "x", "code": "secret"}),
        lambda: caller.patch(path, {"keys": [1, 2], "data": {"code": "x"}}),
        lambda: caller.patch(path, {"query": {}, "data": {"title": "x"}}),
        lambda: caller.delete(f"{path}/1"),
        lambda: caller.delete(path, [1, 2]),
        lambda: caller.delete(path, {"query": {}}),
        lambda: caller.post("/batch", batch),
        lambda: caller.send("POST", "/batch", batch, **{"Idempotency-Key": "denied"}),
        lambda: caller.post(f"/utils/sort/{name}", {"item": 1, "to": 2}),
        lambda: caller.post(f"/utils/revert/{revision}"),
        lambda: caller.post(
            "/comments", {"collection": "system_roles", "item": ANYBODY, "comment": "x"}
        ),
        lambda: caller.post(
            "/activity/comment", {"collection": "nowhere", "item": 1, "comment": "x"}
        ),
        lambda: caller.post("/users", {"email": "x@example.com", "password": "secret"}),
        lambda: caller.patch(f"/users/{ANYBODY}", {"password": "secret"}),
        lambda: caller.post("/users/invite", {"email": "x@example.com", "role": ANYBODY}),
        lambda: caller.post("/users/register", {"email": "x@example.com", "password": "secret"}),
        lambda: caller.post("/roles", {"name": "x", "admin_access": True}),
        lambda: caller.post(
            "/permissions", {"collection": name, "action": "read", "fields": ["*"]}
        ),
        lambda: caller.patch("/settings", {"project_name": "x"}),
        lambda: caller.post("/collections", {"collection": "x", "schema": {}}),
        lambda: caller.delete(f"/collections/{name}"),
        lambda: caller.post(f"/fields/{name}", {"field": "x", "type": "string"}),
        lambda: caller.patch(f"/fields/{name}/title", {"schema": {"is_unique": True}}),
        lambda: caller.delete(f"/fields/{name}/title"),
        lambda: caller.post(
            "/relations", {"collection": name, "field": "place", "related_collection": name}
        ),
        lambda: caller.delete(f"/relations/{name}/parent"),
        lambda: caller.post("/utils/cache/clear"),
        lambda: files.send("POST", "/files", ("file", b"x" * 1000, "x.txt"), client=caller),
        lambda: caller.post("/files", {"filename_download": "x", "data": "eA=="}),
        lambda: caller.post("/files/import", {"url": "http://127.0.0.1:9/x"}),
        lambda: files.send("PATCH", f"/files/{file}", ("file", b"y", "y.txt"), client=caller),
        lambda: caller.patch(f"/files/{file}", {"title": "x"}),
        lambda: caller.delete(f"/files/{file}"),
        lambda: caller.post("/folders", {"name": "x"}),
        lambda: caller.patch(f"/folders/{folder}", {"name": "x"}),
        lambda: caller.delete(f"/folders/{folder}"),
    ]


@pytest.mark.parametrize("who", ["anonymous", "no rights", "reads only"])
def test_who_may_not_write_leaves_no_trace(
    files: FileService, nodes: Table, hashes: list[str], monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    file = files.add()["id"]
    folder = files.admin.post("/folders", {"name": "f"}).data["id"]
    reading = [
        may(name)
        for name in (
            nodes.name,
            "system_files",
            "system_folders",
            "system_revisions",
            "system_users",
        )
    ]
    caller = {
        "anonymous": lambda: files.stage.anonymous,
        "no rights": lambda: member(files.stage),
        "reads only": lambda: member(files.stage, *reading),
    }[who]()
    before = footprint(files.stage.dsn)
    contents = files.contents()
    monkeypatch.setattr(
        Contents, "put", None
    )  # a content that arrives is a fault, even if it went again
    for number, call in enumerate(denied(caller, nodes, files, file, folder)):
        answer = call()
        assert answer.status in (401, 403), (number, answer.status, answer.text)
    after = footprint(files.stage.dsn)
    assert {name for name in before if before[name] != after[name]} == set()
    assert files.contents() == contents
    assert hashes == []


def test_a_payload_that_names_what_is_forbidden_is_refused_before_any_work(
    files: FileService, nodes: Table, hashes: list[str]
) -> None:
    """Nothing is hashed for it, and no key is drawn."""
    name = nodes.name
    path = nodes.path
    actions = ("create", "update", "delete")
    drafts = {"state": {"_eq": "draft"}}
    caller = member(
        files.stage,
        may(name),
        *(
            may(name, "title", "state", "parent", "children", action=action, permissions=drafts)
            for action in actions
        ),
        *(may("system_users", "email", "first_name", action=action) for action in actions),
    )
    before = footprint(files.stage.dsn)
    for answer in (
        caller.post(path, {"code": "secret", "title": "x"}),
        caller.post(path, [{"title": "x", "state": "draft"}, {"code": "secret"}]),
        caller.post(path, {"state": "draft", "children": [{"code": "secret"}]}),
        caller.post(path, {"state": "draft", "parent": {"title": "x", "code": "secret"}}),
        caller.patch(f"{path}/1", {"code": "secret"}),
        caller.patch(f"{path}/2", {"title": "x"}),
        caller.patch(path, {"keys": [1, 2], "data": {"title": "x"}}),
        caller.patch(path, {"keys": [1, 999], "data": {"title": "x"}}),
        caller.patch(f"{path}/1", {"title": "x", "children": []}),  # the child is no draft
        caller.delete(path, [1, 2]),
        caller.post("/users", {"email": "x@example.com", "password": "secret"}),
        caller.post("/users", {"password": "secret", "role": ANYBODY}),
        caller.patch("/users/me", {"password": "secret"}),
    ):
        assert answer.status in (403, 404), answer
    after = footprint(files.stage.dsn)
    assert {name for name in before if before[name] != after[name]} == set()
    assert hashes == []


def test_a_call_that_fails_after_it_has_written_leaves_numbers_drawn_and_nothing_else(
    files: FileService, nodes: Table
) -> None:
    """What an item has become can only be looked at once it is written;
    sequences of PostgreSQL never go back.
    """
    name = nodes.name
    path = nodes.path
    drafts = {"state": {"_eq": "draft"}}
    caller = member(
        files.stage,
        may(name),
        *(may(name, action=act, permissions=drafts) for act in ("create", "update")),
    )
    before = footprint(files.stage.dsn)
    contents = files.contents()
    live = {"method": "create", "collection": name, "data": {"state": "live"}}
    draft = {"method": "create", "collection": name, "data": {"state": "draft"}}
    for answer in (
        caller.post(path, {"state": "live"}),
        caller.post(path, [{"state": "draft"}, {"state": "live"}]),
        caller.post(path, {"state": "draft", "children": [{"state": "live"}]}),
        caller.patch(f"{path}/1", {"state": "live"}),
        caller.send("POST", path, {"state": "live"}, **{"Idempotency-Key": "late"}),
        caller.post("/batch", {"operations": [draft, live]}),
    ):
        assert answer.status == 403, answer
    after = footprint(files.stage.dsn)
    assert {
        counter
        for counter in before
        if before[counter] != after[counter] and not counter.endswith("_seq")
    } == set()
    assert files.contents() == contents
