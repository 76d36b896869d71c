"""Flows run as they do where they come from: written by the editor of Directus 10."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from cms.config import Config
from tests.active_flows import Json, make_flow, runs, step, work
from tests.client import Client
from tests.members import member
from tests.things import Stage, field, table

NEVER = {"$trigger": {"never": {"_eq": True}}}


def answer_of(admin: Client, kind: str, options: Mapping[str, object], body: object) -> object:
    """Run a webhook of one operation, and return what it leaves."""
    flow = make_flow(admin, "webhook", {"method": "POST"}, [step("one", kind, dict(options))])
    answer = admin.post(f"/flows/trigger/{flow}", body)
    assert answer.status == 200, answer.text
    return answer.data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "b": "{{$trigger.body.t}}"}', {"a": 1, "b": '", "admin": "yes'}),
        ('["{{$trigger.body.t}}", 2.50]', ['", "admin": "yes', 2.5]),
        ("true", True),
        ("null", None),
        ("{no json", "{no json"),
        ('{"a": {{$trigger.body.n}}}', '{"a": 5}'),
    ],
)
def test_a_text_that_is_json_is_read_before_its_templates_are_filled(
    admin: Client, text: str, expected: object
) -> None:
    body = {"t": '", "admin": "yes', "n": 5}
    assert answer_of(admin, "transform", {"json": text}, body) == expected


def test_payloads_and_queries_may_be_texts_that_are_json(admin: Client) -> None:
    pages = table(admin, field("title", "string"))
    source = {"collection": pages.name}
    created = {**source, "payload": '[{"title": "{{$trigger.body.title}}"}, {"title": "b"}]'}
    keys = answer_of(admin, "item-create", created, {"title": "a"})
    assert isinstance(keys, list)
    by_title = '{"filter": {"title": {"_eq": "{{$trigger.body.title}}"}}, "fields": ["id"]}'
    read = answer_of(admin, "item-read", {**source, "query": by_title}, {"title": "a"})
    assert read == [{"id": keys[0]}]
    changed = {**source, "query": by_title, "payload": '{"title": "c"}'}
    assert answer_of(admin, "item-update", changed, {"title": "a"}) == keys[:1]
    deleted = {**source, "query": by_title}
    assert answer_of(admin, "item-delete", deleted, {"title": "c"}) == keys[:1]
    signed = {"operation": "sign", "payload": '{"sub": "a"}', "secret": "s" * 32, "options": "{}"}
    assert str(answer_of(admin, "json-web-token", signed, {})).count(".") == 2


def test_an_update_takes_a_list_of_items_with_their_keys(admin: Client) -> None:
    pages = table(admin, field("title", "string"))
    first, second = (item["id"] for item in pages.add({"title": "a"}, {"title": "b"}))
    listed = [{"id": first, "title": "{{$trigger.body.title}}"}, {"id": second, "title": "d"}]
    options = {"collection": pages.name, "payload": listed}
    assert answer_of(admin, "item-update", options, {"title": "c"}) == [first, second]
    options["payload"] = "{{$trigger.body}}"
    assert answer_of(admin, "item-update", options, [{"id": second, "title": "e"}]) == [second]
    titles = [item["title"] for item in admin.get(pages.path, sort="id").data]
    assert titles == ["c", "e"]
    flow = make_flow(admin, "webhook", {"method": "POST"}, [step("one", "item-update", options)])
    for body in ({"title": "all"}, [{"title": "none"}]):
        assert admin.post(f"/flows/trigger/{flow}", body).status == 422
    assert [item["title"] for item in admin.get(pages.path, sort="id").data] == ["c", "e"]


def test_options_of_apps_are_kept_and_have_no_effect(admin: Client) -> None:
    options = {"json": 1, "error_on_reject": True, "note": "Ours"}
    trigger = {"method": "POST", "requireConfirmation": True, "confirmationDescription": "Sure?"}
    flow = make_flow(admin, "webhook", trigger, [step("one", "transform", options)])
    read = admin.get(f"/flows/{flow}", fields="options,operations.options").data
    assert read == {"options": trigger, "operations": [{"options": options}]}
    assert admin.post(f"/flows/trigger/{flow}", {}).data == 1
    assert runs(admin, flow)[0]["steps"][0]["options"] == {"json": 1}


def test_a_flow_is_saved_before_it_is_complete_and_activated_when_it_is(admin: Client) -> None:
    operations = [
        step("mail", "mail", {"to": "", "subject": ""}),
        step("send", "request", {"url": "", "headers": [{"header": "X-A"}]}),
        step("read", "item-read"),
    ]
    flow = make_flow(admin, "schedule", {"cron": "* * *"}, operations, status="inactive")
    path = f"/flows/{flow}"
    activated = admin.patch(path, {"status": "active"})
    assert activated.status == 422
    assert {(error["collection"], *error["path"]) for error in activated.errors} == {
        ("system_flows", "options", "cron"),
        ("system_operations", "options", "to"),
        ("system_operations", "options", "subject"),
        ("system_operations", "options", "body"),
        ("system_operations", "options", "url"),
        ("system_operations", "options", "headers", 0),
        ("system_operations", "options", "collection"),
    }
    kept = admin.get(path, fields="operations.id,operations.key").data["operations"]
    ids = {entry["key"]: entry["id"] for entry in kept}
    complete = {
        "mail": {"to": "a@example.com", "subject": "a", "body": "a"},
        "send": {"url": "https://example.com/"},
        "read": {"collection": "pages"},
    }
    changes = [{"id": ids[key], "options": options} for key, options in complete.items()]
    body = {"status": "active", "options": {"cron": "* * * * *"}, "operations": changes}
    assert admin.patch(path, body).status == 200
    wrong = {"id": ids["read"], "options": {}}
    assert admin.patch("/operations", [wrong]).status == 422
    assert admin.patch(path, {"status": "inactive", "operations": [wrong]}).status == 200


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("trigger", "options", "status"),
    [
        ("webhook", {"method": "POST"}, 422),
        ("manual", {"requireSelection": False}, 200),
    ],
)
def test_a_condition_that_does_not_hold_ends_a_run_that_nobody_relies_on(
    stage: Stage,
    admin: Client,
    settings: Config,
    trigger: str,
    options: Json,
    status: int,
) -> None:
    state = "rejected" if status == 422 else "done"
    steps = [
        step("check", "condition", {"filter": NEVER}, resolve="next"),
        step("next", "log", {"message": 1}),
    ]
    flow = make_flow(admin, trigger, options, steps)
    inner = make_flow(admin, "operation", {}, steps)
    outer = make_flow(admin, trigger, options, [step("inner", "trigger", {"flow": inner})])
    pages = table(admin, field("title", "string"))
    for identifier in (flow, outer):
        answer = admin.post(f"/flows/trigger/{identifier}", {"collection": pages.name})
        assert answer.status == status
        if status == 200:
            assert answer.data is None
        work(stage, settings)
        (run,) = runs(admin, identifier)
        assert run["state"] == state
        assert run["steps"][0]["status"] == "reject" or identifier == outer
    assert runs(admin, inner)[0]["state"] == state


def test_a_condition_in_an_action_flow_ends_it_and_in_a_filter_flow_refuses_the_write(
    stage: Stage, admin: Client, settings: Config
) -> None:
    pages = table(admin, field("title", "string"))
    steps = [step("check", "condition", {"filter": NEVER})]
    event = {"scope": ["items.create"], "collections": [pages.name]}
    action = make_flow(admin, "event", {**event, "type": "action"}, steps)
    assert pages.add({"title": "a"})
    work(stage, settings)
    assert [run["state"] for run in runs(admin, action)] == ["done"]
    make_flow(admin, "event", {**event, "type": "filter"}, steps)
    assert admin.post(pages.path, {"title": "b"}).status == 422


def test_a_flow_of_partly_known_events_waits_for_those(
    stage: Stage, admin: Client, settings: Config
) -> None:
    pages = table(admin, field("title", "string"))
    scope = ["items.create", "items.read", "auth.jwt", "server.start"]
    options = {"type": "action", "scope": scope, "collections": [pages.name]}
    flow = make_flow(admin, "event", options, [])
    assert admin.get(f"/flows/{flow}").data["options"] == options
    (page,) = pages.add({"title": "a"})
    assert admin.get(f"{pages.path}/{page['id']}").status == 200
    work(stage, settings)
    assert [run["data"]["event"] for run in runs(admin, flow)] == ["items.create"]
    unknown = {"name": "A", "trigger": "event", "options": {**options, "scope": scope[1:]}}
    assert admin.post("/flows", unknown).status == 422


def test_a_notification_counts_whose_rights_it_names(stage: Stage, admin: Client) -> None:
    recipient = admin.get("/users/me").data["id"]
    options = {"recipient": recipient, "subject": "Hello"}
    caller = member(stage, {"collection": "system_flows", "action": "read", "fields": ["*"]})
    for permissions, status in (("$trigger", 422), ("$public", 422), ("$full", 200), (None, 200)):
        steps = [step("tell", "notification", {**options, "permissions": permissions})]
        flow = make_flow(admin, "webhook", {"method": "POST"}, steps)
        assert caller.post(f"/flows/trigger/{flow}", {}).status == status, permissions


def test_mails_take_names_and_bodies_of_json(stage: Stage, admin: Client) -> None:
    options = {
        "to": '"Lovelace, Ada" <ada@example.com>, Bob <bob@example.com>',
        "cc": ["Eve\r\nBcc: all@example.com <eve@example.com>"],
        "subject": "News",
        "body": {"got": "{{$trigger.body}}"},
    }
    assert answer_of(admin, "mail", options, {"n": 1}) is None
    queued = "SELECT args -> 'payload' ->> {} FROM procrastinate_jobs ORDER BY id DESC LIMIT 1"
    assert stage.value(queued.format("'body'")) == '{"got":{"n":1}}'
    assert stage.value(queued.format("'to'")) == '["ada@example.com", "bob@example.com"]'
    names = {"ada@example.com": "Lovelace, Ada", "bob@example.com": "Bob"}
    assert json.loads(stage.value(queued.format("'names'"))).items() >= names.items()
