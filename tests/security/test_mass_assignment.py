"""Fields that are not a caller's to set stay as they are, whichever way the payload comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.client import Answer, Client
from tests.files.forms import FileService
from tests.members import grant, may, member, member_of, new_role
from tests.things import Stage, Table, field, table

Json = dict[str, Any]
ACTIONS = ("read", "create", "update", "delete")
ANYBODY = "5f6f9b1a-0000-4000-8000-000000000000"
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def stage(files: FileService) -> Stage:
    return files.stage


@pytest.fixture(scope="module")
def stamped(stage: Stage) -> Table:
    """Things whose fields the service sets, and notes that point to them."""
    return table(
        stage.admin,
        field("title", "string"),
        field("hidden", "string", default_value="default"),
        field("made", "timestamp", special="date-created"),
        field("maker", "uuid", special="user-created"),
        field("maker_role", "uuid", special="role-created"),
        field("changed", "timestamp", special="date-updated"),
        field("changer", "uuid", special="user-updated"),
    )


@pytest.fixture(scope="module")
def notes(stage: Stage, stamped: Table) -> Table:
    notes = table(stage.admin, field("thing", "integer"))
    meta = {"one_field": "notes"}
    relation = {
        "collection": notes.name,
        "field": "thing",
        "related_collection": stamped.name,
        "meta": meta,
    }
    assert stage.admin.post("/relations", relation).status == 200
    return notes


def ways(
    caller: Client, things: Table, notes: Table, key: int, note: int, values: Json
) -> list[Answer]:
    """Send a payload in every way that there is."""
    named = {"id": key, **values}
    operations: list[Json] = [
        {"method": "create", "collection": things.name, "data": values},
        {"method": "update", "collection": things.name, "key": key, "data": values},
        {"method": "update", "collection": things.name, "keys": [key], "data": values},
    ]
    return [
        caller.post(things.path, values),
        caller.post(things.path, [{"title": "x"}, values]),
        caller.patch(f"{things.path}/{key}", values),
        caller.patch(things.path, [named]),
        caller.patch(things.path, {"keys": [key], "data": values}),
        caller.patch(things.path, {"query": {"filter": {"id": key}}, "data": values}),
        caller.post(notes.path, {"thing": values}),
        caller.patch(f"{notes.path}/{note}", {"thing": values}),
        caller.patch(f"{notes.path}/{note}", {"thing": named}),
        caller.post(notes.path, {"thing": {"notes": [{"thing": 1}], **values}}),
        *(caller.post("/batch", {"operations": [operation]}) for operation in operations),
    ]


def test_a_hidden_field_is_set_by_nobody_and_looks_like_one_that_is_not_there(
    stage: Stage, stamped: Table, notes: Table
) -> None:
    (item,) = stamped.add({"title": "x"})
    (note,) = notes.add({"thing": item["id"]})
    allowed = [may(stamped.name, "id", "title", "notes", action=action) for action in ACTIONS]
    caller = member(stage, *allowed, *(may(notes.name, action=action) for action in ACTIONS))
    before = stage.value(f"SELECT count(*) FROM {stamped.name}")
    for name in ("hidden", "maker", "made", "__proto__", "constructor", "title "):
        answers = ways(caller, stamped, notes, item["id"], note["id"], {"title": "y", name: "z"})
        missing = ways(
            caller, stamped, notes, item["id"], note["id"], {"title": "y", "nowhere": "z"}
        )
        assert [answer.status for answer in answers] == [403] * len(answers), name
        assert [answer.text for answer in answers] == [answer.text for answer in missing], answers
    assert stage.value(f"SELECT count(*) FROM {stamped.name}") == before
    assert stamped.get(fields="title,hidden", **{"filter[id]": item["id"]}).data == [
        {"title": "x", "hidden": "default"}
    ]


def test_what_the_service_sets_is_its_own_whatever_is_sent(
    stage: Stage, stamped: Table, notes: Table
) -> None:
    (item,) = stamped.add({"title": "x"})
    (note,) = notes.add({"thing": item["id"]})
    permissions = [
        may(name, action=action) for name in (stamped.name, notes.name) for action in ACTIONS
    ]
    long_ago = "2001-01-01T00:00:00Z"
    forged = {
        "maker": ANYBODY,
        "maker_role": ANYBODY,
        "made": long_ago,
        "changed": long_ago,
        "changer": ANYBODY,
    }
    caller = member(
        stage, *permissions, may("system_users", "id", permissions={"id": "$CURRENT_USER"})
    )
    me = caller.get("/users/me").data["id"]
    for body in (forged, {"title": "y", **forged}):
        for answer in ways(caller, stamped, notes, item["id"], note["id"], body):
            assert answer.status == 200, answer
    rows = stamped.get(limit=-1, **{"filter[id][_gte]": item["id"]}).data
    assert {row["maker"] for row in rows} == {me, stage.admin.get("/users/me").data["id"]}
    assert {row["changer"] for row in rows} == {me, None}
    assert ANYBODY not in {row["maker_role"] for row in rows}
    assert not [row for row in rows if "2001" in (row["made"], row["changed"] or "")]
    assert stamped.column("changed", f"filter[id][_gt]={item['id']}") == [None] * (len(rows) - 1)


def test_a_preset_stands_under_the_payload_and_cannot_be_asked_to_be_more(
    stage: Stage, stamped: Table
) -> None:
    creating = may(
        stamped.name,
        "title",
        action="create",
        presets={"hidden": "preset", "maker": ANYBODY, "id": 999_999},
    )
    caller = member(stage, creating, may(stamped.name, "title", "hidden", "maker"))
    item = caller.post(stamped.path, {"title": "x"}).data
    assert (item["hidden"], item["maker"] == ANYBODY) == ("preset", False)
    assert caller.post(stamped.path, {"title": "x", "hidden": "mine"}).status == 403


def test_a_singleton_takes_no_field_that_is_hidden(stage: Stage) -> None:
    fields = [field("title", "string"), field("hidden", "string", default_value="default")]
    body = {"collection": "about", "schema": {}, "meta": {"singleton": True}, "fields": fields}
    assert stage.admin.post("/collections", body).status == 200
    caller = member(stage, *(may("about", "title", action=action) for action in ACTIONS))
    for _ in range(2):  # while it is not there, and when it is
        for name in ("hidden", "nowhere", "id"):
            assert caller.patch("/items/about", {"title": "x", name: 7}).codes == ["FORBIDDEN"], (
                name
            )
            operation = {"method": "update", "collection": "about", "data": {name: 7}}
            assert caller.post("/batch", {"operations": [operation]}).codes == ["FORBIDDEN"]
        assert caller.patch("/items/about", {"title": "x"}).data == {"title": "x"}
    assert stage.admin.get("/items/about").data["hidden"] == "default"


USER_FIELDS: list[Json] = [
    {"role": ANYBODY},
    {"status": "active"},
    {"token": "a-token-of-my-own-choice"},
    {"provider": "x"},
    {"external_identifier": "x"},
    {"auth_data": {"x": 1}},
    {"tfa_secret": None},
    {"failed_logins": 0},
    {"login_after": None},
    {"tfa_step": 0},
    {"unverified": False},
]


def imported(caller: Client, collection: str, *items: Json) -> Iterator[Answer]:
    """Import each item as JSON, as a line of JSON and as CSV."""
    for item in items:
        cells = [value if isinstance(value, str) else json.dumps(value) for value in item.values()]
        row = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
        bodies = {
            "application/json": json.dumps([item]),
            "application/x-ndjson": json.dumps(item),
            "text/csv": f"{','.join(item)}\n{row}\n",
        }
        for kind, body in bodies.items():
            yield caller.send(
                "POST", f"/utils/import/{collection}", raw=body, **{"Content-Type": kind}
            )


@pytest.fixture(scope="module")
def posts(stage: Stage) -> Table:
    """A collection whose `author` is a user."""
    return pointing(stage, "author", "system_users")


def pointing(stage: Stage, name: str, target: str) -> Table:
    """Make a collection with one field, which points to a system collection."""
    collection = table(stage.admin, field(name, "uuid"))
    relation = {"collection": collection.name, "field": name, "related_collection": target}
    assert stage.admin.post("/relations", relation).status == 200
    return collection


@pytest.mark.quick(4)
@pytest.mark.parametrize("body", USER_FIELDS, ids=lambda body: next(iter(body)))
def test_admin_only_fields_of_users_are_out_of_reach(
    stage: Stage, posts: Table, body: Json
) -> None:
    permissions = [
        may(name, action=action) for name in ("system_users", posts.name) for action in ACTIONS
    ]
    caller = member(stage, *permissions)
    me = caller.get("/users/me").data["id"]
    (post,) = posts.add({"author": me})
    all_users = "SELECT string_agg(t::text, '|' ORDER BY id) FROM system_users AS t"
    before = stage.value(all_users)
    users = Table(caller, "system_users")
    for answer in (
        *(caller.post(path, {"email": "x@example.com", **body}) for path in ("/users", users.path)),
        *(caller.patch(path, body) for path in ("/users/me", f"/users/{me}", f"{users.path}/{me}")),
        caller.patch("/users", [{"id": me, **body}]),
        caller.patch("/users", {"keys": [me], "data": body}),
        caller.patch("/users", {"query": {"filter": {"id": me}}, "data": body}),
        caller.post(posts.path, {"author": {"email": "x@example.com", **body}}),
        caller.patch(f"{posts.path}/{post['id']}", {"author": {"id": me, **body}}),
        *(
            caller.post(
                "/batch",
                {"operations": [{"method": "update", "collection": "system_users", **named}]},
            )
            for named in (
                {"key": me, "data": body},
                {"keys": [me], "data": body},
                {"data": [{"id": me, **body}]},
            )
        ),
        *imported(caller, "system_users", {"email": "x@example.com", **body}, {"id": me, **body}),
        *imported(
            caller,
            posts.name,
            {"author": {"email": "x@example.com", **body}},
            {"author": {"id": me, **body}},
        ),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert stage.value(all_users) == before


UNSET: list[Json] = [
    {"role": ANYBODY},
    {"status": "suspended"},
    {"token": "a-token-of-a-permission"},
    {"tfa_secret": "JBSWY3DPEHPK3PXP"},
    {"password": "of a permission"},
    {"email": "of a permission"},
]


@pytest.mark.quick(4)
@pytest.mark.parametrize("presets", UNSET, ids=lambda body: next(iter(body)))
def test_no_preset_sets_what_a_user_is_or_logs_in_with(stage: Stage, presets: Json) -> None:
    """Refused with the permission, and by each write where the permission is there all the same."""
    role = new_role(stage, may("system_users"))
    permission = {
        "role": role,
        "collection": "system_users",
        "fields": ["title"],
        "presets": presets,
    }
    for action in ("create", "update"):
        answer = stage.admin.post("/permissions", {**permission, "action": action})
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"]), answer
    grant(
        stage,
        role,
        [may("system_users", "title", action=act, presets=presets) for act in ("create", "update")],
    )
    caller = member_of(stage, role)
    administrator = stage.admin.get("/users/me").data["id"]
    all_users = "SELECT string_agg(t::text, '|' ORDER BY id) FROM system_users AS t"
    before = stage.value(all_users)
    for answer in (
        caller.post("/users", {"title": "x"}),
        caller.patch("/users/me", {"title": "x"}),
        caller.patch(f"/users/{administrator}", {"title": "x"}),
        caller.patch("/users", {"query": {}, "data": {"title": "x"}}),
    ):
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
    assert stage.value(all_users) == before


OWNED: list[Json] = [
    {"filename_disk": "../../../etc/passwd"},
    {"filesize": 0},
    {"type": "text/html"},
    {"uploaded_by": ANYBODY},
    {"uploaded_on": "2001-01-01T00:00:00Z"},
    {"modified_by": ANYBODY},
    {"modified_on": "2001-01-01T00:00:00Z"},
    {"width": 1},
    {"metadata": {"x": 1}},
    {"charset": "x"},
]


@pytest.fixture(scope="module")
def books(files: FileService) -> Table:
    """A collection whose `cover` is a file."""
    return pointing(files.stage, "cover", "system_files")


@pytest.mark.quick(4)
@pytest.mark.parametrize("body", OWNED, ids=lambda body: next(iter(body)))
def test_what_belongs_to_the_storage_is_set_by_no_request(
    files: FileService, books: Table, body: Json
) -> None:
    stage = files.stage
    permissions = [
        may(name, action=action) for name in ("system_files", books.name) for action in ACTIONS
    ]
    file = files.add(b"content", "a.txt")
    (book,) = books.add({"cover": file["id"]})
    ((name, value),) = body.items()
    for caller in (stage.admin, member(stage, *permissions)):
        with files.nothing_stays():
            for answer in (
                caller.post("/files", {"filename_download": "x.png", "data": PNG, **body}),
                files.send(
                    "POST", "/files", (name, str(value)), ("file", b"x", "x.txt"), client=caller
                ),
                files.send(
                    "PATCH",
                    f"/files/{file['id']}",
                    (name, str(value)),
                    ("file", b"x", "x"),
                    client=caller,
                ),
                caller.patch(f"/files/{file['id']}", body),
                caller.patch("/files", [{"id": file["id"], **body}]),
                caller.patch("/files", {"keys": [file["id"]], "data": body}),
                caller.post("/items/system_files", body),
                caller.patch(f"/items/system_files/{file['id']}", body),
                caller.post(books.path, {"cover": body}),
                caller.patch(f"{books.path}/{book['id']}", {"cover": {"id": file["id"], **body}}),
                caller.post(
                    "/batch",
                    {
                        "operations": [
                            {
                                "method": "update",
                                "collection": "system_files",
                                "key": file["id"],
                                "data": body,
                            }
                        ]
                    },
                ),
            ):
                assert answer.status in (400, 403), answer
            assert stage.admin.get(f"/files/{file['id']}").data == file


def test_a_content_is_replaced_by_who_may_change_the_name_of_the_file(files: FileService) -> None:
    file = files.add(b"content", "a.txt")
    caller = member(
        files.stage,
        may("system_files"),
        may("system_files", "title", "description", action="update"),
    )
    with files.nothing_stays():
        answer = files.send(
            "PATCH", f"/files/{file['id']}", ("file", b"evil", "b.html"), client=caller
        )
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])
        assert files.admin.get(f"/files/{file['id']}").data == file


def test_system_collections_are_written_by_their_own_calls_only(stage: Stage) -> None:
    """Neither items, nor batches, nor what is nested reaches history,
    sessions, structure or the queue.
    """
    with psycopg.connect(stage.dsn) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^system_|^procrastinate_'"
        ).fetchall()
    open_to = {"system_users", "system_roles", "system_permissions", "system_settings"}
    names = {name for (name,) in rows} - open_to
    everything = [may(name, action=action) for name in sorted(names) for action in ACTIONS]
    caller = member(stage, *everything)
    before = stage.value("SELECT count(*) FROM system_activity")
    for name in (
        "system_activity",
        "system_revisions",
        "system_collections",
        "system_fields",
        "system_sessions",
    ):
        for answer in (
            caller.post(f"/items/{name}", {"action": "login"}),
            caller.patch(f"/items/{name}/1", {"action": "login"}),
            caller.patch(f"/items/{name}", {"query": {}, "data": {"action": "x"}}),
            caller.delete(f"/items/{name}/1"),
            caller.delete(f"/items/{name}", {"query": {}}),
            caller.post(
                "/batch", {"operations": [{"method": "delete", "collection": name, "query": {}}]}
            ),
        ):
            assert answer.status in (403, 404), (name, answer.text)
    assert stage.value("SELECT count(*) FROM system_activity") == before


def test_nobody_registers_or_is_invited_into_more_than_the_settings_grant(stage: Stage) -> None:
    role = new_role(stage)
    assert (
        stage.admin.patch(
            "/settings", {"public_registration": True, "public_registration_role": role}
        ).status
        == 200
    )
    forged = {
        "role": ANYBODY,
        "status": "active",
        "admin_access": True,
        "id": ANYBODY,
        "token": "x" * 20,
    }
    body = {"email": "me@example.com", "password": "a long password"}
    for name, value in forged.items():
        answer = stage.anonymous.post("/users/register", {**body, name: value})
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), name
    assert stage.anonymous.post("/users/register", body).status == 204
    row = (
        "SELECT role::text || status || (token IS NULL) || (id <> '{}') FROM system_users WHERE "
        "email = '{}'"
    )
    assert stage.value(row.format(ANYBODY, "me@example.com")) == f"{role}drafttruetrue"
