"""Flows that wait for events: action flows after a write, filter flows inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cms.config import Config
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.members import may, member, member_of, new_role
from tests.things import Stage, Table, field

pytestmark = pytest.mark.usefixtures("flows_of_the_test")

Json = dict[str, Any]
KEEP = step("keep", "transform", {"json": "{{$trigger}}"})


def action(*scope: str, **options: object) -> Json:
    return {"type": "action", "scope": list(scope), **options}


def triggers(stage: Stage, config: Config, flow: str) -> list[Json]:
    """Do all runs, and return what each run of a flow was caused by."""
    work(stage, config)
    done = runs(stage.admin, flow)
    assert [run["state"] for run in done] == ["done"] * len(done)
    return [run["data"] for run in done]


def test_a_create_runs_an_action_flow_after_it(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    flow = make_flow(admin, "event", action("items.create", collections=[pages.name]), [KEEP])
    created = admin.post(pages.path, {"title": "One", "views": 3}).data
    (trigger,) = triggers(stage, settings, flow)
    assert (trigger["event"], trigger["collection"]) == ("items.create", pages.name)
    assert trigger["key"] == created["id"]
    assert (trigger["payload"]["title"], trigger["payload"]["views"]) == ("One", 3)


def test_each_item_of_a_call_is_an_event(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    flow = make_flow(admin, "event", action("items.create", collections=[pages.name]), [KEEP])
    admin.post(pages.path, [{"title": "a"}, {"title": "b"}, {"title": "c", "views": 1}])
    titles = [trigger["payload"]["title"] for trigger in triggers(stage, settings, flow)]
    assert sorted(titles) == ["a", "b", "c"]


def test_items_that_get_the_same_values_are_one_event(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    flow = make_flow(admin, "event", action("items.update", collections=[pages.name]), [KEEP])
    keys = [item["id"] for item in admin.post(pages.path, [{"title": "a"}] * 3).data]
    assert admin.patch(pages.path, {"keys": keys, "data": {"title": "b"}}).status == 200
    (trigger,) = triggers(stage, settings, flow)
    assert trigger["event"] == "items.update"
    assert (sorted(trigger["keys"]), trigger["payload"]["title"]) == (keys, "b")
    assert admin.patch(f"{pages.path}/{keys[0]}", {"views": 7}).status == 200
    *_, trigger = triggers(stage, settings, flow)
    assert (trigger["keys"], trigger["payload"]) == ([keys[0]], {"views": 7})


def test_the_event_of_a_deletion_holds_the_keys(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    flow = make_flow(admin, "event", action("items.delete", collections=[pages.name]), [KEEP])
    keys = [item["id"] for item in admin.post(pages.path, [{"title": "a"}] * 3).data]
    assert admin.delete(f"{pages.path}/{keys[0]}").status == 204
    assert admin.delete(pages.path, keys[1:]).status == 204
    deleted = [sorted(trigger["keys"]) for trigger in triggers(stage, settings, flow)]
    assert deleted == [keys[:1], keys[1:]]


def test_events_of_system_collections(stage: Stage, admin: Client, settings: Config) -> None:
    flow = make_flow(admin, "event", action("users.create", "users.delete"), [KEEP])
    user = admin.post("/users", {"email": "new@example.com", "password": "long enough 1"}).data
    assert admin.delete(f"/users/{user['id']}").status == 204
    created, deleted = triggers(stage, settings, flow)
    assert (created["event"], created["key"]) == ("users.create", user["id"])
    assert created["payload"]["email"] == "new@example.com"
    assert "long enough" not in str(created)
    assert "argon2" not in str(created)
    assert (deleted["event"], deleted["keys"]) == ("users.delete", [user["id"]])


def test_a_refused_write_causes_no_run(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    flow = make_flow(admin, "event", action("items.create"), [KEEP])
    assert admin.post(pages.path, {"id": 1, "title": "a"}).status == 200
    assert admin.post(pages.path, {"id": 1, "title": "b"}).status == 400
    assert len(triggers(stage, settings, flow)) == 1
    assert admin.patch(f"/flows/{flow}", {"status": "inactive"}).status == 200
    assert admin.post(pages.path, {"title": "c"}).status == 200
    assert len(triggers(stage, settings, flow)) == 1


def test_a_run_knows_who_has_caused_it(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    options = action("items.create", collections=[pages.name])
    flow = make_flow(
        admin, "event", options, [step("who", "transform", {"json": "{{$accountability}}"})]
    )
    caller = member(stage, may(pages.name, action="create"))
    assert caller.post(pages.path, {"title": "a"}).status == 204
    work(stage, settings)
    (run,) = runs(admin, flow)
    me = caller.get("/users/me", fields="id").data["id"]
    assert run["result"]["user"] == me
    assert run["result"]["role"] is not None


def test_a_login_is_an_event_and_nothing_else_of_a_session(
    stage: Stage, admin: Client, settings: Config
) -> None:
    keep = step("keep", "transform", {"json": {"who": "{{$accountability}}", "is": "{{$trigger}}"}})
    flow = make_flow(admin, "event", action("auth.login"), [keep])
    role = admin.post("/roles", {"name": "Visitors"}).data["id"]
    password = "long enough 1"
    body = {"email": "in@example.com", "password": password, "role": role}
    user = admin.post("/users", body).data["id"]
    wrong = {"email": "in@example.com", "password": "wrong"}
    assert admin.post("/auth/login", wrong).status == 401
    assert admin.post("/auth/login", {**wrong, "email": "nobody@example.com"}).status == 401
    tokens = admin.post("/auth/login", {"email": "in@example.com", "password": password}).data
    refreshed = admin.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).data
    assert admin.post("/auth/logout", {"refresh_token": refreshed["refresh_token"]}).status == 204
    work(stage, settings)
    (run,) = runs(admin, flow)
    who = run["result"]["who"]
    assert (who["user"], who["role"]) == (user, role)
    assert run["result"]["is"] == {"event": "auth.login", "payload": {"user": user}}


def test_who_registers_or_is_invited_is_a_new_user(
    stage: Stage, admin: Client, settings: Config
) -> None:
    flow = make_flow(admin, "event", action("users.create"), [KEEP])
    role = admin.post("/roles", {"name": "Guests"}).data["id"]
    registration = {"public_registration": True, "public_registration_verify_email": False}
    assert (
        admin.patch("/settings", {**registration, "public_registration_role": role}).status == 200
    )
    form = {"email": "new@example.com", "password": "long enough 1", "first_name": "New"}
    assert stage.anonymous.post("/users/register", form).status == 204
    # An address that has an account stays as it is.
    assert stage.anonymous.post("/users/register", form).status == 204
    invitation = {"email": ["a@example.com", "b@example.com"], "role": role}
    assert admin.post("/users/invite", invitation).status in (200, 204)
    events = triggers(stage, settings, flow)
    assert {(event["event"], event["payload"]["email"]) for event in events} == {
        ("users.create", email) for email in ("new@example.com", "a@example.com", "b@example.com")
    }
    assert len(events) == 3
    assert all(event["key"] == event["payload"]["id"] for event in events)
    assert "argon2" not in str(events)
    assert admin.patch("/settings", {"public_registration": False}).status == 200


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "values", "change"),
    [
        ("roles", {"name": "R"}, {"description": "D"}),
        ("permissions", {"collection": "system_files", "action": "read"}, {"action": "update"}),
        ("users", {"email": "all@example.com"}, {"first_name": "A"}),
        ("folders", {"name": "F"}, {"name": "G"}),
        ("files", {"data": "aGVsbG8=", "filename_download": "a.txt"}, {"title": "T"}),
        ("flows", {"name": "F", "trigger": "manual"}, {"name": "G"}),
        ("dashboards", {"name": "D"}, {"note": "N"}),
        ("presets", {"collection": "pages"}, {"bookmark": "B"}),
        ("notifications", {"recipient": None, "subject": "S"}, {"status": "archived"}),
        ("translations", {"key": "k", "language": "de", "value": "v"}, {"value": "w"}),
    ],
)
def test_every_change_of_a_system_collection_is_an_event(
    stage: Stage, admin: Client, settings: Config, name: str, values: Json, change: Json
) -> None:
    scope = [f"{name}.{verb}" for verb in ("create", "update", "delete")]
    flow = make_flow(admin, "event", action(*scope), [KEEP])
    if "recipient" in values:
        values = {**values, "recipient": admin.get("/users/me").data["id"]}
    key = admin.post(f"/{name}", values).data["id"]
    assert admin.patch(f"/{name}/{key}", change).status == 200
    assert admin.delete(f"/{name}/{key}").status == 204
    created, changed, deleted = triggers(stage, settings, flow)
    assert [each["event"] for each in (created, changed, deleted)] == scope
    assert {each["collection"] for each in (created, changed, deleted)} == {f"system_{name}"}
    assert (created["key"], changed["keys"], deleted["keys"]) == (key, [key], [key])
    assert change.items() <= changed["payload"].items()
    assert created["payload"]["id"] == key
    assert deleted["payload"] == [key]


def test_shares_are_events_without_their_passwords_and_uses_are_none(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    # Not the service's own administrator: a share needs a user who has made it.
    creator = member_of(stage, new_role(stage, admin_access=True))
    scope = [f"shares.{verb}" for verb in ("create", "update", "delete")]
    flow = make_flow(admin, "event", action(*scope), [KEEP])
    page = admin.post(pages.path, {"title": "One"}).data["id"]
    body = {"collection": pages.name, "item": str(page), "password": "open sesame"}
    share = creator.post("/shares", body).data["id"]
    login = {"share": share, "password": "open sesame"}
    assert admin.post("/shares/auth", login).status == 200
    assert creator.patch(f"/shares/{share}", {"name": "Other"}).status == 200
    assert creator.delete(f"/shares/{share}").status == 204
    created, changed, deleted = triggers(stage, settings, flow)
    assert [each["event"] for each in (created, changed, deleted)] == scope
    assert (created["key"], changed["keys"], deleted["keys"]) == (share, [share], [share])
    payloads = str((created, changed, deleted))
    assert "sesame" not in payloads
    assert "argon2" not in payloads


@pytest.mark.parametrize("scope", ["activity.create", "pages.create", "items.read", "auth.logout"])
def test_an_event_that_never_happens_is_refused(admin: Client, scope: str) -> None:
    body = {"name": "Never", "trigger": "event", "options": action(scope)}
    answer = admin.post("/flows", body)
    assert answer.status == 422
    assert answer.errors[0]["path"] == ["options", "scope", 0]


def test_a_moved_item_is_an_event(stage: Stage, admin: Client, settings: Config) -> None:
    sorted_pages = stage.empty_table(field("place", "integer"), sort_field="place")
    first, second = (item["id"] for item in sorted_pages.add({}, {}))
    options = action("items.sort", collections=[sorted_pages.name])
    flow = make_flow(admin, "event", options, [KEEP])
    body = {"item": first, "to": second}
    assert admin.post(f"/utils/sort/{sorted_pages.name}", body).status == 204
    (trigger,) = triggers(stage, settings, flow)
    assert (trigger["event"], trigger["payload"], trigger["keys"]) == ("items.sort", body, [first])


def test_an_upload_is_an_event(stage: Stage, admin: Client, settings: Config) -> None:
    flow = make_flow(admin, "event", action("files.upload", "files.update"), [KEEP])
    body = {"data": "aGVsbG8=", "filename_download": "a.txt"}
    file = admin.post("/files", body).data
    assert admin.patch(f"/files/{file['id']}", {"title": "A"}).status == 200
    uploaded, changed = triggers(stage, settings, flow)
    assert (uploaded["event"], uploaded["key"]) == ("files.upload", file["id"])
    assert uploaded["payload"]["filename_download"] == "a.txt"
    assert (changed["event"], changed["keys"]) == ("files.update", [file["id"]])


@pytest.mark.release
def test_flows_that_cause_each_other_end_with_a_reason(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    options = action("items.create", collections=[pages.name])
    payload = {"title": "{{$trigger.payload.title}}+"}
    again = {"collection": pages.name, "permissions": "$full", "payload": payload}
    flow = make_flow(admin, "event", options, [step("again", "item-create", again)])
    admin.post(pages.path, {"title": "a"})
    # A worker that is to end takes no job that comes while it works.
    for _ in range(12):
        work(stage, settings)
    states = [run["state"] for run in runs(admin, flow)]
    assert states == ["done"] * 11 + ["failed"]
    assert "may form a loop" in runs(admin, flow)[-1]["reason"]
    assert stage.value(f'SELECT count(*) FROM "{pages.name}"') == 12


def test_an_operation_without_events_causes_no_run(
    stage: Stage, admin: Client, settings: Config, pages: Table
) -> None:
    options = action("items.create", collections=[pages.name])
    again = {
        "collection": pages.name,
        "permissions": "$full",
        "payload": {"title": "b"},
        "emitEvents": False,
    }
    flow = make_flow(admin, "event", options, [step("again", "item-create", again)])
    admin.post(pages.path, {"title": "a"})
    work(stage, settings)
    assert [run["state"] for run in runs(admin, flow)] == ["done"]


def test_nested_items_are_events_too(stage: Stage, admin: Client, settings: Config) -> None:
    pages = stage.empty_table(field("title", "string"))
    parts = stage.empty_table(field("page", "integer"), field("text", "string"))
    relation = {"collection": parts.name, "field": "page", "related_collection": pages.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "parts"}}).status == 200
    flow = make_flow(admin, "event", action("items.create", collections=[parts.name]), [KEEP])
    assert admin.post(pages.path, {"title": "a", "parts": [{"text": "b"}]}).status == 200
    (trigger,) = triggers(stage, settings, flow)
    assert trigger["payload"]["text"] == "b"


def test_a_large_call_with_an_action_flow_is_one_run_for_each_item(
    stage: Stage, admin: Client, pages: Table
) -> None:
    flow = make_flow(admin, "event", action("items.create", collections=[pages.name]), [])
    assert admin.post(pages.path, [{"title": "a"}] * 1000).status == 200
    count = admin.get(f"/flows/{flow}/runs", **{"aggregate[count]": "*"}).data
    assert int(count[0]["count"]) == 1000
    stage.execute("DELETE FROM procrastinate_jobs")


# Filter flows


def filter_flow(admin: Client, pages: Table, steps: Sequence[Json], *verbs: str) -> str:
    scope = [f"items.{verb}" for verb in verbs or ("create",)]
    options = {"type": "filter", "scope": scope, "collections": [pages.name]}
    return make_flow(admin, "event", options, steps)


def test_a_filter_flow_changes_what_is_written(admin: Client, pages: Table) -> None:
    steps = [
        step("make", "transform", {"json": {"title": "{{$trigger.payload.title}}!", "views": 1}})
    ]
    filter_flow(admin, pages, steps, "create", "update")
    item = admin.post(pages.path, {"title": "a"}).data
    assert (item["title"], item["views"]) == ("a!", 1)
    items = admin.post(pages.path, [{"title": "b"}, {"title": "c"}]).data
    assert [item["title"] for item in items] == ["b!", "c!"]
    changed = admin.patch(f"{pages.path}/{item['id']}", {"title": "d"}).data
    assert changed["title"] == "d!"
    several = admin.patch(pages.path, {"keys": [items[0]["id"]], "data": {"title": "e"}}).data
    assert several[0]["title"] == "e!"


def test_a_return_of_a_filter_flow_that_is_too_large_refuses_the_write(
    admin: Client, pages: Table
) -> None:
    options = {
        "type": "filter",
        "scope": ["items.create"],
        "collections": [pages.name],
        "return": {"title": "{{$trigger.payload.title}}" * 20},
    }
    make_flow(admin, "event", options, [step("log", "log", {"message": "a"})])
    answer = admin.post(pages.path, {"title": "a" * 1_000_000})
    assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    assert "too large" in answer.errors[0]["message"]
    assert admin.get(pages.path).data == []


def test_a_filter_flow_refuses_a_write_and_nothing_is_written(
    stage: Stage, admin: Client, pages: Table
) -> None:
    rule = {"$trigger": {"payload": {"title": {"_neq": "bad"}}}}
    thrown = {"code": "NO_BAD_WORDS", "status": 409, "message": "Not {{$trigger.payload.title}}"}
    steps = [
        step("check", "condition", {"filter": rule}, resolve="same", reject="refuse"),
        step("same", "transform", {"json": "{{$trigger.payload}}"}),
        step("refuse", "throw-error", thrown),
    ]
    filter_flow(admin, pages, steps)
    assert admin.post(pages.path, {"title": "good"}).status == 200
    answer = admin.post(pages.path, [{"title": "fine"}, {"title": "bad"}])
    assert (answer.status, answer.codes) == (409, ["NO_BAD_WORDS"])
    assert stage.value(f'SELECT count(*) FROM "{pages.name}"') == 1


def test_a_filter_flow_gives_its_caller_no_rights(
    stage: Stage, admin: Client, pages: Table
) -> None:
    steps = [step("add", "transform", {"json": {"title": "x", "views": 9}})]
    filter_flow(admin, pages, steps)
    caller = member(stage, may(pages.name, "title", action="create"), may(pages.name))
    assert caller.post(pages.path, {"title": "a"}).status == 403
    assert stage.value(f'SELECT count(*) FROM "{pages.name}"') == 0


def test_a_flow_that_returns_no_object_leaves_the_payload(admin: Client, pages: Table) -> None:
    filter_flow(admin, pages, [step("note", "log", {"message": "seen"})])
    assert admin.post(pages.path, {"title": "a"}).data["title"] == "a"


@pytest.mark.parametrize("scope", ["auth.login", "items.sort"])
def test_filter_flows_wait_only_for_what_they_can_filter(admin: Client, scope: str) -> None:
    options = {"type": "filter", "scope": ["users.create", scope]}
    answer = admin.post("/flows", {"name": "Late", "trigger": "event", "options": options})
    assert answer.status == 422
    assert [error["path"] for error in answer.errors] == [["options", "scope", 1]]


def test_a_filter_flow_changes_users(admin: Client) -> None:
    steps = [step("name", "transform", {"json": {"email": "{{$trigger.payload.email}}.org"}})]
    make_flow(admin, "event", {"type": "filter", "scope": ["users.create"]}, steps)
    assert admin.post("/users", {"email": "u@example"}).data["email"] == "u@example.org"


def test_a_filter_flow_refuses_a_deletion(stage: Stage, admin: Client, pages: Table) -> None:
    steps = [step("stop", "throw-error", {"code": "KEPT", "status": 409})]
    filter_flow(admin, pages, steps, "delete")
    item = admin.post(pages.path, {"title": "a"}).data
    assert admin.delete(f"{pages.path}/{item['id']}").codes == ["KEPT"]
    assert admin.delete(pages.path, [item["id"]]).codes == ["KEPT"]
    assert stage.value(f'SELECT count(*) FROM "{pages.name}"') == 1


def test_a_filter_flow_may_change_rights_and_go_on(
    stage: Stage, admin: Client, pages: Table
) -> None:
    full = {"permissions": "$full"}
    new = "00000000-0000-4000-8000-00000000abcd"
    made = {"id": new, "name": "Made by a flow"}
    role = {**full, "collection": "system_roles", "payload": made}
    permission = {**may(pages.name, action="create"), "role": new}
    grant = {**full, "collection": "system_permissions", "payload": permission}
    note = {"collection": pages.name, "permissions": new, "payload": {"title": "noted"}}
    steps = [
        step("role", "item-create", role, resolve="grant"),
        step("grant", "item-create", grant, resolve="note"),
        step("note", "item-create", {**note, "emitEvents": False}, resolve="keep"),
        step("keep", "transform", {"json": "{{$trigger.payload}}"}),
    ]
    filter_flow(admin, pages, steps)
    assert admin.post(pages.path, {"title": "a"}).status == 200
    assert admin.delete(f"/roles/{new}").status == 204
    caller = member(stage, may(pages.name, action="create"))
    assert caller.post(pages.path, {"title": "b"}).status == 204
    assert stage.value(f'SELECT count(*) FROM "{pages.name}"') == 4


def test_the_log_of_a_filter_flow_leaves_the_write_as_durable_as_it_was(
    stage: Stage, admin: Client, pages: Table
) -> None:
    # The default of the column tells whether the commit will wait for the disk.
    durable = "ADD COLUMN durable text DEFAULT current_setting('synchronous_commit')"
    stage.execute(f'ALTER TABLE "{pages.name}" {durable}')
    payload = step("payload", "transform", {"json": "{{$trigger.payload}}"})
    flow = filter_flow(admin, pages, [payload], "create")
    assert admin.post(pages.path, {"title": "One"}).status == 200
    assert [run["state"] for run in runs(admin, flow)] == ["done"]
    assert stage.value(f'SELECT durable FROM "{pages.name}"') == "on"
