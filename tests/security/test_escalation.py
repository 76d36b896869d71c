"""Nobody gets more rights than an administrator gave: by roles,
permissions, users, shares, or what is nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client import Answer, Client
from tests.members import may, member_of, new_role
from tests.security.footprints import footprint
from tests.things import Stage, Table, field, table

Json = dict[str, Any]
ACTIONS = ("read", "create", "update", "delete", "share")
POWERS = (
    "system_users",
    "system_roles",
    "system_permissions",
    "system_settings",
    "system_shares",
    "system_presets",
)


@pytest.fixture(scope="module")
def links(stage: Stage) -> Table:
    """Items that point to a user, a role and a permission."""
    links = table(
        stage.admin, field("user", "uuid"), field("role", "uuid"), field("permission", "integer")
    )
    for name, target in (
        ("user", "system_users"),
        ("role", "system_roles"),
        ("permission", "system_permissions"),
    ):
        relation = {"collection": links.name, "field": name, "related_collection": target}
        assert stage.admin.post("/relations", relation).status == 200
    return links


def mighty(stage: Stage, links: Table) -> tuple[Client, str, str]:
    """Return a member who has every permission there can be and is no
    administrator, its id and role.
    """
    role = new_role(
        stage, *(may(name, action=action) for name in (*POWERS, links.name) for action in ACTIONS)
    )
    caller = member_of(stage, role)
    return caller, caller.get("/users/me").data["id"], role


def batch(caller: Client, method: str, collection: str, **operation: Any) -> Answer:
    return caller.post(
        "/batch", {"operations": [{"method": method, "collection": collection, **operation}]}
    )


@dataclass(frozen=True, slots=True)
class Member:
    """A member with every permission, its role, a link that it may
    change, and what it might aim at.
    """

    client: Client
    user: str
    role: str
    links: Table
    link_path: str
    own_permission: int
    other_role: str
    admin_role: str

    @property
    def permission(self) -> Json:
        return {
            "role": self.role,
            "collection": self.links.name,
            "action": "read",
            "fields": ["*"],
        }


@pytest.fixture(scope="module")
def member(stage: Stage, links: Table) -> Member:
    caller, user, role = mighty(stage, links)
    (link,) = links.add({"user": user, "role": role})
    permissions = stage.admin.get("/permissions", limit=1, **{"filter[role]": role}).data
    return Member(
        client=caller,
        user=user,
        role=role,
        links=links,
        link_path=f"{links.path}/{link['id']}",
        own_permission=permissions[0]["id"],
        other_role=new_role(stage, name="Others"),
        admin_role=stage.admin.get("/users/me").data["role"],
    )


def role_changes(member: Member) -> list[Json]:
    me = member.user
    return [
        {"admin_access": True},
        {"parent": member.admin_role},
        {"ip_access": []},
        {"enforce_tfa": False},
        {"users": [me]},
        {"users": [{"id": me}]},
        {"users": {"create": [{"email": "x@example.com"}]}},
        {"users": {"update": [{"id": me}], "delete": [me]}},
        {"users": []},
        {"name": "x"},
    ]


def role_attempts(member: Member) -> Iterator[Answer]:
    caller = member.client
    yield caller.post("/roles", {"name": "x"})
    yield caller.post("/roles", {"name": "x", "admin_access": True, "users": [member.user]})
    roles = (member.role, member.other_role, member.admin_role)
    for key in roles:
        for change in role_changes(member):
            yield caller.patch(f"/roles/{key}", change)
    for key in roles:
        yield caller.delete(f"/roles/{key}")
    yield caller.delete("/roles", {"query": {}})
    yield caller.patch("/roles", {"query": {}, "data": {"admin_access": True}})


def permission_attempts(member: Member) -> Iterator[Answer]:
    caller = member.client
    own = f"/permissions/{member.own_permission}"
    yield caller.post("/permissions", member.permission)
    yield caller.post("/permissions", {**member.permission, "role": None})
    yield caller.patch(own, {"permissions": None})
    yield caller.delete(own)
    path = f"/permissions/explain?user={member.user}&collection={member.links.name}&action=read"
    yield caller.get(path)


def nested_attempts(member: Member) -> Iterator[Answer]:
    caller = member.client
    me = member.user
    changes: list[Json] = [
        {"role": {"id": member.role, "admin_access": True}},
        {"role": {"name": "x", "admin_access": True}},
        {"role": {"id": member.admin_role, "users": [me]}},
        {"permission": member.permission},
        {"permission": {"id": member.own_permission, "fields": ["*"]}},
        {"user": {"id": me, "role": member.admin_role}},
        {"user": {"id": me, "role": {"id": member.role, "admin_access": True}}},
        {"user": {"id": me, "role": {"name": "x", "admin_access": True}}},
    ]
    for change in changes:
        yield caller.patch(member.link_path, change)
    user = {"email": "x@example.com", "role": member.admin_role}
    yield caller.post(member.links.path, {"user": user})


def other_attempts(member: Member) -> Iterator[Answer]:
    caller = member.client
    me = member.user
    role = member.admin_role
    setting = {"public_registration_role": role}
    yield batch(caller, "update", "system_users", key=me, data={"role": role})
    yield batch(caller, "create", "system_roles", data={"name": "x", "users": [me]})
    yield batch(caller, "update", "system_settings", data=setting)
    yield caller.patch("/settings", {"public_registration": True, **setting})
    yield caller.post("/users/invite", {"email": "x@example.com", "role": role})
    share = {"collection": member.links.name, "item": 1, "role": role}
    yield caller.post("/items/system_shares", share)
    yield caller.post("/utils/cache/clear")


@pytest.mark.parametrize(
    "attempts", [role_attempts, permission_attempts, nested_attempts, other_attempts]
)
def test_no_permission_lets_a_member_write_rights(
    stage: Stage, member: Member, attempts: Callable[[Member], Iterator[Answer]]
) -> None:
    before = footprint(stage.dsn)
    for answer in attempts(member):
        assert (answer.status, set(answer.codes)) == (403, {"FORBIDDEN"}), answer
    after = footprint(stage.dsn)
    assert {name for name in before if before[name] != after[name]} == set()


def test_a_member_may_name_rights_by_their_keys(member: Member) -> None:
    payload = {"role": member.role, "user": {"id": member.user}}
    assert member.client.patch(member.link_path, payload).status == 200


def test_nobody_becomes_an_administrator_by_registering(stage: Stage) -> None:
    admin = stage.admin
    admin_role = admin.get("/users/me").data["role"]
    top, low = (admin.post("/roles", {"name": name}).data["id"] for name in ("Top", "Low"))
    assert admin.patch(f"/roles/{low}", {"parent": top}).status == 200
    assert admin.patch("/settings", {"public_registration_role": low}).status == 200
    for answer in (
        admin.patch("/settings", {"public_registration_role": admin_role}),
        admin.patch(f"/roles/{low}", {"admin_access": True}),
        admin.patch(f"/roles/{low}", {"parent": admin_role}),
        admin.patch(f"/roles/{top}", {"admin_access": True}),
        admin.patch(f"/roles/{top}", {"parent": admin_role}),
    ):
        assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"]), answer
    assert admin.patch("/settings", {"public_registration_role": None}).status == 200
    assert admin.patch(f"/roles/{low}", {"admin_access": True}).status == 200


@pytest.mark.quick(1)
@pytest.mark.parametrize("status", ["active", "invited", "suspended", "draft", "archived"])
def test_what_an_administrator_logs_in_with_is_out_of_reach_in_any_state(
    stage: Stage, links: Table, status: str
) -> None:
    caller, _, _ = mighty(stage, links)
    admin_role = stage.admin.get("/users/me").data["role"]
    deputies = stage.admin.post("/roles", {"name": "Deputies", "parent": admin_role}).data["id"]
    for role in (admin_role, deputies):
        key = stage.admin.post(
            "/users", {"email": f"{status}-{role}@example.com", "role": role, "status": status}
        ).data["id"]
        (link,) = links.add({"user": key})
        for body in (
            {"email": "mine@example.com"},
            {"password": "mine"},
            {"token": None},
            {"tfa_secret": None},
        ):
            for answer in (
                caller.patch(f"/users/{key}", body),
                caller.patch("/users", {"keys": [key], "data": body}),
                caller.patch("/users", {"query": {"filter": {"id": key}}, "data": body}),
                caller.patch(f"{links.path}/{link['id']}", {"user": {"id": key, **body}}),
                caller.patch("/users", [{"id": key, **body}]),
            ):
                assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
        for answer in (
            caller.delete(f"/users/{key}"),
            caller.delete("/users", {"query": {"filter": {"id": key}}}),
        ):
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer
        assert caller.patch(f"/users/{key}", {"title": "Dr"}).status == 200


def test_somebody_elses_items_are_theirs(stage: Stage) -> None:
    """Of users who each may change what is theirs, none reaches
    another's, by key, batch, query or list.
    """
    things = table(
        stage.admin, field("title", "string"), field("owner", "uuid", special="user-created")
    )
    notes = table(
        stage.admin, field("text", "string"), field("thing", "integer"), field("owner", "uuid")
    )
    meta = {"one_field": "notes"}
    relation = {
        "collection": notes.name,
        "field": "thing",
        "related_collection": things.name,
        "meta": meta,
    }
    assert stage.admin.post("/relations", relation).status == 200
    mine = {"owner": {"_eq": "$CURRENT_USER"}}
    own = [
        may(name, action=act, permissions=mine)
        for name in (things.name, notes.name)
        for act in ACTIONS
    ]
    role = new_role(
        stage, *own, may("system_users", "id", permissions={"id": {"_eq": "$CURRENT_USER"}})
    )
    one = member_of(stage, role)
    other = member_of(stage, role)
    me = other.get("/users/me").data["id"]
    key = one.post(things.path, {"title": "theirs"}).data["id"]
    note = stage.admin.post(notes.path, {"text": "theirs", "thing": key}).data["id"]
    before = footprint(stage.dsn)
    for answer in (
        other.get(f"{things.path}/{key}"),
        other.get(f"{things.path}/{key}/revisions"),
        other.patch(f"{things.path}/{key}", {"title": "x"}),
        other.patch(f"{things.path}/{key}", {"owner": me}),
        other.patch(things.path, [{"id": key, "title": "x"}]),
        other.patch(things.path, {"keys": [key], "data": {"title": "x"}}),
        other.delete(f"{things.path}/{key}"),
        other.delete(things.path, [key]),
        other.patch(f"{notes.path}/{note}", {"owner": me}),
        other.post("/comments", {"collection": things.name, "item": key, "comment": "x"}),
        batch(other, "read", things.name, key=key),
        batch(other, "delete", things.name, key=key),
        other.get(f"/permissions/me/{things.name}/{key}"),
    ):
        assert answer.status in (403, 404), answer
    assert other.delete(things.path, {"query": {}}).status == 204
    assert other.patch(things.path, {"query": {}, "data": {"title": "x"}}).data == []
    after = footprint(stage.dsn)
    assert {name for name in before if before[name] != after[name]} == set()
    assert other.post(notes.path, {"thing": {"id": key, "title": "x"}, "owner": me}).status in (
        400,
        403,
    )
    assert other.post(things.path, {"notes": [note]}).status == 400
    assert other.post(things.path, {"notes": [{"id": note, "text": "x"}]}).status == 400
    assert stage.value(f"SELECT text FROM {notes.name} WHERE id = {note}") == "theirs"


def test_comments_of_others_are_theirs(stage: Stage) -> None:
    things = table(stage.admin, field("title", "string"))
    (row,) = things.add({"title": "x"})
    role = new_role(stage, may(things.name), may("system_activity"))
    one = member_of(stage, role)
    other = member_of(stage, role)
    comment = {"collection": things.name, "item": row["id"], "comment": "theirs"}
    key = one.post("/comments", comment).data["id"]
    for path in (f"/comments/{key}", f"/activity/comment/{key}"):
        assert other.patch(path, {"comment": "mine"}).status == other.delete(path).status == 403
        assert (
            stage.anonymous.patch(path, {"comment": "mine"}).status
            == stage.anonymous.delete(path).status
            == 401
        )
    for body in ({"comment": "x", "user": None}, {"comment": "x", "item": "2"}):
        assert one.patch(f"/comments/{key}", body).status == 400
    login = stage.value(
        "INSERT INTO system_activity (action, collection, item) VALUES ('login', 'x', "
        "'1') RETURNING id"
    )
    for caller in (one, stage.admin):
        assert caller.patch(f"/comments/{login}", {"comment": "x"}).status in (403, 404)
        assert caller.delete(f"/comments/{login}").status in (403, 404)
    assert stage.value(f"SELECT count(*) FROM system_activity WHERE id = {login}") == 1
