"""Flows that a call runs: with their answers, and only for those who may read the flow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cms.cli.worker import tasks_of
from cms.config import Config
from cms.jobs.job_worker import drain
from tests.active_flows import Json, make_flow, runs, step, work
from tests.client import Client
from tests.members import may, member, new_role
from tests.things import Stage, field

UNKNOWN = "00000000-0000-4000-8000-000000000000"
ECHO = step("echo", "transform", {"json": {"got": "{{$trigger.body.word}}"}})


def test_a_webhook_answers_with_what_its_last_operation_leaves(admin: Client) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST"}, [ECHO])
    answer = admin.post(f"/flows/trigger/{flow}", {"word": 5})
    assert (answer.status, answer.data) == (200, {"got": 5})


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_a_webhook_has_one_method(admin: Client, method: str) -> None:
    flow = make_flow(admin, "webhook", {"method": method}, [])
    for sent in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"):
        answer = admin.send(sent, f"/flows/trigger/{flow}")
        assert answer.status == (200 if sent == method else 405), answer.text
        assert answer.headers.get("allow") == (None if sent == method else method)


def test_a_path_that_leads_nowhere_is_null_for_operations_that_take_every_value(
    admin: Client,
) -> None:
    steps = [
        step("log", "log", {"message": "{{$trigger.body.missing}}"}, resolve="null"),
        step("null", "transform", {"json": "{{$trigger.body.missing}}"}),
    ]
    flow = make_flow(admin, "webhook", {"method": "POST"}, steps)
    answer = admin.post(f"/flows/trigger/{flow}", {})
    assert (answer.status, answer.data) == (200, None)
    # In the options themselves null is nothing, as in all others.
    for kind, name in (("log", "message"), ("transform", "json")):
        operation = {"flow": flow, "key": name, "type": kind, "options": {name: None}}
        assert admin.post("/operations", operation).status == 422


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        (None, 2),
        ("$last", 2),
        ("one", 1),
        ("{{one}} and {{two}}", "1 and 2"),
        ({"sum": ["{{one}}", "{{two}}"]}, {"sum": [1, 2]}),
        ("just so", "just so"),
    ],
)
def test_what_a_webhook_returns(admin: Client, returns: object, expected: object) -> None:
    steps = [
        step("one", "transform", {"json": 1}, resolve="two"),
        step("two", "transform", {"json": 2}),
    ]
    flow = make_flow(admin, "webhook", {"return": returns}, steps)
    assert admin.get(f"/flows/trigger/{flow}").data == expected


def test_what_a_webhook_sees_of_its_request(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST", "return": "$all"}, [ECHO])
    body = {"word": "w", "data": {"x": [1]}, "path": "mine"}
    headers = {"X-Custom": "yes", "Cookie": "a=b"}
    seen = admin.send("POST", f"/flows/trigger/{flow}?a=1&b=2", body, **headers).data
    trigger = seen["$trigger"]
    assert trigger["path"] == f"/flows/trigger/{flow}"
    assert (trigger["method"], trigger["query"]) == ("POST", {"a": "1", "b": "2"})
    assert trigger["headers"]["x-custom"] == "yes"
    assert not {"authorization", "cookie"} & trigger["headers"].keys()
    assert (trigger["body"], trigger["data"]) == (body, {"x": [1]})
    assert seen["$accountability"]["user"] is not None
    assert seen["$flow"] == {"id": flow, "attempt": 1}
    assert "$env" not in seen


def test_a_rejected_webhook_names_the_operation_and_nothing_more(admin: Client) -> None:
    steps = [step("check", "condition", {"filter": {"$trigger": {"x": {"_eq": "secret"}}}})]
    flow = make_flow(admin, "webhook", {"method": "POST"}, steps)
    answer = admin.post(f"/flows/trigger/{flow}", {"x": 1})
    assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    assert answer.errors[0].keys() == {"message", "operation", "code"}
    assert answer.errors[0]["operation"] == "check"
    assert "secret" not in answer.text


def test_a_thrown_error_is_answered_with_its_own_code_and_status(admin: Client) -> None:
    thrown = {"code": "TEAPOT", "status": 418, "message": "{{$trigger.query.why}}"}
    flow = make_flow(admin, "webhook", {}, [step("stop", "throw-error", thrown)])
    answer = admin.get(f"/flows/trigger/{flow}", why="short and stout")
    assert (answer.status, answer.codes) == (418, ["TEAPOT"])
    assert "short and stout" in answer.text


def test_an_asynchronous_webhook_answers_at_once_and_runs_later(
    stage: Stage, admin: Client, settings: Config
) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST", "async": True}, [ECHO])
    answer = admin.post(f"/flows/trigger/{flow}", {"word": "w"})
    assert (answer.status, answer.text) == (204, "")
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("queued", 0)
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"], run["result"]) == ("done", 1, {"got": "w"})
    (logged,) = run["steps"]
    assert (logged["key"], logged["status"], logged["options"]) == (
        "echo",
        "resolve",
        {"json": {"got": "w"}},
    )


def test_a_webhook_needs_the_right_to_read_its_flow(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [])
    assert stage.anonymous.get(f"/flows/trigger/{flow}").status == 403
    assert member(stage, may("pages")).get(f"/flows/trigger/{flow}").status == 403
    other = member(stage, may("system_flows", permissions={"name": {"_eq": "Another"}}))
    assert other.get(f"/flows/trigger/{flow}").status == 404
    mine = member(stage, may("system_flows", "id", permissions={"id": {"_eq": flow}}))
    assert mine.get(f"/flows/trigger/{flow}").status == 200


def test_flows_that_no_call_runs_look_as_if_they_were_missing(admin: Client) -> None:
    inactive = make_flow(admin, "webhook", {}, [], status="inactive")
    inner = make_flow(admin, "operation", {}, [])
    for key in (inactive, inner, "00000000-0000-0000-0000-000000000000", "no-uuid"):
        answer = admin.get(f"/flows/trigger/{key}")
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), answer


def test_a_changed_flow_is_in_force_with_the_next_call(admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [step("one", "transform", {"json": 1})])
    assert admin.get(f"/flows/trigger/{flow}").data == 1
    operation = admin.get(f"/flows/{flow}", fields="operation").data["operation"]
    assert admin.patch(f"/operations/{operation}", {"options": {"json": 2}}).status == 200
    assert admin.get(f"/flows/trigger/{flow}").data == 2
    assert admin.patch(f"/flows/{flow}", {"status": "inactive"}).status == 200
    assert admin.get(f"/flows/trigger/{flow}").status == 404


def test_a_cached_answer_is_served_without_a_run_to_the_same_caller(
    stage: Stage, admin: Client
) -> None:
    flow = make_flow(admin, "webhook", {"cacheEnabled": True, "return": "$trigger.query"}, [])
    for query in ("1", "1", "2"):
        assert admin.get(f"/flows/trigger/{flow}", n=query).status == 200
    assert len(runs(admin, flow)) == 2
    caller = member(stage, may("system_flows"))
    assert caller.get(f"/flows/trigger/{flow}", n="1").status == 200
    assert len(runs(admin, flow)) == 3


def test_the_log_of_a_run_holds_no_secret(admin: Client) -> None:
    steps = [step("tell", "transform", {"json": "it is {{$trigger.body.password}}"})]
    flow = make_flow(admin, "webhook", {"method": "POST"}, steps)
    body = {"password": "hunter22", "deep": [{"api_token": "t-o-k-e-n"}]}
    answer = admin.send("POST", f"/flows/trigger/{flow}", body, Cookie="c=crumble")
    assert answer.data == "it is hunter22"
    text = admin.get(f"/flows/{flow}/runs").text
    for secret in ("hunter22", "t-o-k-e-n", "crumble", "Bearer "):
        assert secret not in text
    assert "it is **********" in text


@pytest.mark.parametrize(("accountability", "count"), [("all", 1), ("activity", 1), (None, 0)])
def test_what_a_run_leaves(admin: Client, accountability: str | None, count: int) -> None:
    flow = make_flow(admin, "webhook", {}, [ECHO], accountability=accountability)
    assert admin.get(f"/flows/trigger/{flow}").status == 200
    assert len(runs(admin, flow)) == count
    activity = admin.get("/activity", **{"filter[item][_eq]": flow, "filter[action][_eq]": "run"})
    assert len(activity.data) == count
    if count:
        assert (runs(admin, flow)[0]["steps"] is None) == (accountability == "activity")


def test_runs_are_read_by_administrators(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [ECHO])
    admin.get(f"/flows/trigger/{flow}")
    (run,) = runs(admin, flow)
    assert admin.get(f"/flows/runs/{run['id']}", fields="state,flow").data == {
        "state": "done",
        "flow": flow,
    }
    assert admin.get(f"/flows/{flow}/runs", **{"filter[state][_neq]": "done"}).data == []
    assert "input" not in run
    assert admin.get(f"/flows/runs/{UNKNOWN}").status == 404
    assert admin.get("/flows/no-uuid/runs").status == 404
    assert admin.get(f"/flows/{UNKNOWN}/runs").data == []  # as of a flow that is gone
    caller = member(stage, may("system_flows"))
    for path in (f"/flows/{flow}/runs", f"/flows/runs/{run['id']}", "/flows/runs"):
        assert caller.get(path).status == 403


def test_runs_are_read_page_by_page(admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [])
    for number in range(5):
        admin.get(f"/flows/trigger/{flow}", n=number)
    pages = [
        admin.get(f"/flows/{flow}/runs", sort="-date_created", limit=2, page=page, meta="*")
        for page in (1, 2, 3)
    ]
    numbers = [run["data"]["query"]["n"] for page in pages for run in page.data]
    assert numbers == ["4", "3", "2", "1", "0"]
    assert pages[0].body["meta"]["filter_count"] == 5


def test_runs_of_a_flow_are_read_by_who_may_read_them(stage: Stage, admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [])
    admin.get(f"/flows/trigger/{flow}")
    rule = {"flow": {"_eq": flow}}
    reader = member(stage, may("system_flow_runs", "id", "flow", "state", permissions=rule))
    (run,) = reader.get(f"/flows/{flow}/runs").data
    assert run.keys() == {"id", "flow", "state"}
    assert reader.get(f"/flows/runs/{run['id']}").data["state"] == "done"
    assert len(reader.get("/flows/runs").data) == 1


def test_a_rejected_run_is_tried_again_by_hand(
    stage: Stage, admin: Client, settings: Config
) -> None:
    steps = [step("check", "condition", {"filter": {"$flow": {"attempt": {"_gt": 1}}}})]
    flow = make_flow(admin, "webhook", {"async": True}, steps)
    admin.get(f"/flows/trigger/{flow}")
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["reason"]) == (
        "rejected",
        'The operation "check" was rejected.',
    )
    retry = f"/flows/runs/{run['id']}/retry"
    assert member(stage, may("system_flow_runs")).post(retry).status == 403
    assert admin.post(retry).status == 204
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("done", 2)
    assert admin.post(retry).status == 422
    assert admin.post("/flows/runs/00000000-0000-0000-0000-000000000000/retry").status == 404


def test_an_operation_with_a_role_has_its_rights_wherever_the_caller_is(
    stage: Stage, admin: Client
) -> None:
    pages = stage.empty_table(field("title", "string"))
    role = new_role(
        stage,
        may(pages.name, "title", action="create"),
        ip_access='["10.9.8.7"]',
        enforce_tfa=True,
    )
    create = {"collection": pages.name, "permissions": role, "payload": {"title": "a"}}
    flow = make_flow(admin, "webhook", {}, [step("create", "item-create", create)])
    assert admin.get(f"/flows/trigger/{flow}").status == 200
    assert [item["title"] for item in admin.get(pages.path).data] == ["a"]
    create["payload"] = {"id": 9}
    flow = make_flow(admin, "webhook", {}, [step("create", "item-create", create)])
    assert admin.get(f"/flows/trigger/{flow}").status == 422


# Flows that run flows


def inner_flow(admin: Client) -> str:
    return make_flow(
        admin,
        "operation",
        {},
        [step("twice", "transform", {"json": ["{{$trigger}}", "{{$trigger}}"]})],
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"payload": 1}, [1, 1]),
        ({"payload": [1, 2]}, [[1, 1], [2, 2]]),
        (
            {"payload": [1, 2, 3], "iterationMode": "batch", "batchSize": 2},
            [[1, 1], [2, 2], [3, 3]],
        ),
        ({"payload": [], "iterationMode": "serial"}, []),
    ],
)
def test_a_flow_runs_another_one(admin: Client, options: Json, expected: object) -> None:
    inner = inner_flow(admin)
    outer = make_flow(admin, "webhook", {}, [step("inner", "trigger", {"flow": inner, **options})])
    assert admin.get(f"/flows/trigger/{outer}").data == expected
    assert {run["trigger"] for run in runs(admin, inner)} <= {"operation"}


def test_flows_that_run_each_other_end_with_a_reason(admin: Client) -> None:
    flow = make_flow(admin, "operation", {}, [])
    again = {"flow": flow, "key": "again", "type": "trigger", "options": {"flow": flow}}
    assert admin.post("/operations", again).status == 200
    outer = make_flow(admin, "webhook", {}, [step("start", "trigger", {"flow": flow})])
    assert admin.get(f"/flows/trigger/{outer}").status == 422
    (run,) = runs(admin, outer)
    assert "10 runs in a row" in run["steps"][0]["result"]["message"]


def test_only_a_flow_for_operations_is_run_by_one(admin: Client) -> None:
    other = make_flow(admin, "webhook", {}, [])
    outer = make_flow(admin, "webhook", {}, [step("start", "trigger", {"flow": other})])
    assert admin.get(f"/flows/trigger/{outer}").status == 422


def test_a_changed_inner_flow_is_in_force_with_the_next_run(
    stage: Stage, admin: Client, settings: Config
) -> None:
    inner = make_flow(admin, "operation", {}, [step("tell", "transform", {"json": 1})])
    steps = [step("inner", "trigger", {"flow": inner})]
    outer = make_flow(admin, "webhook", {"async": True}, steps)
    # A worker with a replica: nothing else makes it look at the primary's flows.
    ours = replace(settings, database_url=stage.dsn, database_read_url=stage.dsn)
    database = admin.app.store.database
    tasks = tasks_of(ours, database)
    for value in (1, 2):
        operation = admin.get(f"/flows/{inner}", fields="operation").data["operation"]
        assert admin.patch(f"/operations/{operation}", {"options": {"json": value}}).status == 200
        assert admin.get(f"/flows/trigger/{outer}").status == 204
        drain(ours, database, tasks)
    assert [run["result"] for run in runs(admin, outer)] == [1, 2]


def test_a_secret_of_a_run_is_one_in_the_logs_of_all_runs_within_it(admin: Client) -> None:
    steps = [step("tell", "transform", {"json": "it is {{$trigger}}"})]
    inner = make_flow(admin, "operation", {}, steps)
    options = {"flow": inner, "payload": "{{$trigger.body.password}}"}
    outer = make_flow(admin, "webhook", {"method": "POST"}, [step("inner", "trigger", options)])
    answer = admin.post(f"/flows/trigger/{outer}", {"password": "hunter22"})
    assert answer.data == "it is hunter22"
    for flow in (inner, outer):
        text = admin.get(f"/flows/{flow}/runs").text
        assert "it is **********" in text
        assert "hunter22" not in text


def test_a_secret_of_an_inner_run_is_one_in_the_log_of_the_outer_one(admin: Client) -> None:
    inner_steps = [step("tell", "transform", {"json": {"token": "abc-hunter"}})]
    inner = make_flow(admin, "operation", {"return": "{{tell.token}}"}, inner_steps)
    options = {"flow": inner, "payload": 1}
    outer = make_flow(admin, "webhook", {}, [step("inner", "trigger", options)])
    assert admin.get(f"/flows/trigger/{outer}").data == "abc-hunter"
    assert "abc-hunter" not in admin.get(f"/flows/{outer}/runs").text


# Flows that users start by hand


def test_a_user_runs_a_flow_on_items_that_it_may_read(stage: Stage, admin: Client) -> None:
    pages = stage.empty_table(field("title", "string"))
    keys = [item["id"] for item in pages.add({"title": "a"}, {"title": "b"})]
    options = {"collections": [pages.name], "return": "{{$trigger.body.keys}}"}
    flow = make_flow(admin, "manual", options, [])
    call = {"collection": pages.name, "keys": keys}
    assert admin.post(f"/flows/trigger/{flow}", call).data == keys
    rule = {"title": {"_eq": "a"}}
    caller = member(stage, may("system_flows"), may(pages.name, permissions=rule))
    hidden = caller.post(f"/flows/trigger/{flow}", call)
    assert (hidden.status, hidden.codes) == (404, ["NOT_FOUND"])
    for missing in (keys[-1] + 1, -1, "a", None):
        for client in (caller, admin):
            answer = client.post(f"/flows/trigger/{flow}", {**call, "keys": [missing]})
            assert (answer.status, answer.text) == (404, hidden.text)
    assert caller.post(f"/flows/trigger/{flow}", {**call, "keys": keys[:1]}).data == keys[:1]
    blind = member(stage, may("system_flows"))
    assert blind.post(f"/flows/trigger/{flow}", call).status == 403
    for wrong in ({}, {**call, "keys": []}, {**call, "keys": 5}, {"collection": "system_users"}):
        assert admin.post(f"/flows/trigger/{flow}", wrong).status == 400
    other = {"collection": "elsewhere", "keys": keys}
    assert admin.post(f"/flows/trigger/{flow}", other).status == 403
    assert admin.get(f"/flows/trigger/{flow}").status == 405
