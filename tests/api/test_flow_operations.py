"""Operations in flows: scripts beside other requests, and webhooks that are tried again."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest

from cms.config import Config
from cms.flows.operations import request as requests
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.files.sources import Source, raw_source
from tests.members import member
from tests.things import Stage, Table

pytestmark = pytest.mark.usefixtures("flows_of_the_test")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(
        settings,
        import_ip_allow_list=(ip_network("127.0.0.1/32"),),
        flows_run_script_timeout=timedelta(seconds=2),
    )


def script(admin: Client, code: str) -> str:
    steps = [step("script", "exec", {"code": code})]
    return make_flow(admin, "webhook", {"method": "POST"}, steps)


def test_a_script_answers_a_webhook_and_its_console_is_in_the_log(admin: Client) -> None:
    code = "module.exports = (data) => { console.log('n', data.$trigger.body.n); return [1] }"
    flow = script(admin, code)
    assert admin.post(f"/flows/trigger/{flow}", {"n": 5}).data == [1]
    (run,) = runs(admin, flow)
    assert run["steps"][0]["log"] == ["n 5"]


@pytest.mark.release
@pytest.mark.parametrize(
    "statement",
    ["while (true) {}", "const a = []; while (true) a.push(new Uint8Array(1e7).fill(1))"],
)
def test_other_requests_go_on_beside_a_script_without_a_bound(
    admin: Client, pages: Table, statement: str
) -> None:
    flow = script(admin, f"module.exports = () => {{ {statement} }}")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(admin.post, f"/flows/trigger/{flow}", {})
        answered = 0
        while not running.done():
            assert pages.get().status == 200
            answered += 1
        answer = running.result()
    assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    # One that had to wait for the script would be the only one.
    assert answered > 5


DEEP = json.loads("[" * 300 + "]" * 300)
DEEP_STEPS: dict[str, Any] = {
    "log": {"message": "{{$trigger.body}}"},
    "exec": {"code": "module.exports = () => 1"},
    "condition": {"filter": {"$trigger": {"body": {"_eq": "{{$trigger.body}}"}}}},
    "request": {"url": "http://127.0.0.1:1/", "body": "{{$trigger.body}}"},
    "transform": {"json": {"a": "{{$trigger.body}}"}},
    "item-create": {"collection": "system_users", "payload": {"tags": "{{$trigger.body}}"}},
    "item-read": {"collection": "system_users", "query": {"filter": {"_and": "{{$trigger.body}}"}}},
}


@pytest.mark.parametrize("kind", DEEP_STEPS)
def test_a_body_that_is_nested_too_deeply_is_no_unexpected_error(admin: Client, kind: str) -> None:
    for options in ({"method": "POST"}, {"method": "POST", "async": True}):
        flow = make_flow(admin, "webhook", options, [step("x", kind, DEEP_STEPS[kind])])
        assert admin.post(f"/flows/trigger/{flow}", DEEP).status < 500


@pytest.mark.release
@pytest.mark.parametrize("levels", [200, 300, 900])
def test_a_result_that_is_nested_too_deeply_is_no_unexpected_error(
    admin: Client, levels: int
) -> None:
    nest = f"let a = []; for (let i = 0; i < {levels}; i++) a = [a]; return a"
    code = f"module.exports = () => {{ {nest} }}"
    steps = [step("x", "exec", {"code": code}, resolve="y")]
    steps.append(step("y", "exec", {"code": "module.exports = (data) => data.x.length"}))
    flow = make_flow(admin, "webhook", {"method": "POST", "return": "x"}, steps)
    answer = admin.post(f"/flows/trigger/{flow}", {})
    assert answer.status == (200 if levels == 200 else 422), answer.text


def test_without_the_extra_no_script_can_be_saved(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.flows.definition.options.SCRIPT_ENGINE", "no_such_engine")
    operation = {"key": "x", "type": "exec", "options": {"code": "module.exports = () => 1"}}
    answer = admin.post("/flows", {"name": "x", "trigger": "webhook", "operations": [operation]})
    assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"])
    assert answer.errors[0]["path"] == ["operations", 0, "options", "code"]
    assert "headless-cms[script]" in answer.errors[0]["reason"]


def test_a_signed_request_is_tried_again_under_the_same_id(
    stage: Stage, stage_settings: Config, admin: Client, other_server: Source, pages: Table
) -> None:
    url = other_server.page("/hook", b"", 503)
    options = {"url": url, "method": "POST", "body": {}, "sign": True, "secret": SECRET}
    scope = {"type": "action", "scope": ["items.create"], "collections": [pages.name]}
    flow = make_flow(admin, "event", scope, [step("send", "request", options)])
    pages.add({"title": "One"})
    work(stage, stage_settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("queued", 1)
    other_server.page("/hook", b"", 200)
    with stage.side_door.connection() as connection:
        connection.execute("UPDATE procrastinate_jobs SET scheduled_at = NULL")
    work(stage, stage_settings)
    (run,) = runs(admin, flow)
    assert (run["state"], run["attempt"]) == ("done", 2)
    first, second = admin.get(f"/flows/{flow}/deliveries", sort="id").data
    assert (first["status"], second["status"]) == (503, 200)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["message"] == second["message"]
    assert first["run"] == run["id"]
    # Neither the secret nor the signature is in the log of the run.
    assert SECRET not in str(run)


@pytest.mark.clock
@pytest.mark.release
def test_other_runs_go_on_beside_a_server_that_drips(
    stage: Stage, stage_settings: Config, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_SECONDS", 2)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    with raw_source(head, *[b"x"] * 1000, pause=0.1) as url:
        options = {"method": "POST", "async": True}
        slow = make_flow(admin, "webhook", options, [step("ask", "request", {"url": url})])
        fast = make_flow(admin, "webhook", options, [step("tell", "transform", {"json": 1})])
        for flow in (slow, *[fast] * 10):
            assert admin.post(f"/flows/trigger/{flow}", {}).status == 204
        start = time.monotonic()
        work(stage, stage_settings)
        assert time.monotonic() - start < 8
    (run,) = runs(admin, slow)
    assert (run["state"], run["attempt"]) == ("queued", 1)
    started = datetime.fromisoformat(run["date_started"])
    ends = [datetime.fromisoformat(other["date_finished"]) for other in runs(admin, fast)]
    assert len(ends) == 10
    assert max(ends) - started < timedelta(seconds=1.5)


def test_deliveries_are_for_those_who_may_read_them(
    stage: Stage, admin: Client, other_server: Source
) -> None:
    url = other_server.page("/hook", b"", 200)
    options = {"url": url, "sign": True, "secret": SECRET}
    flow = make_flow(admin, "webhook", {"method": "POST"}, [step("send", "request", options)])
    assert admin.post(f"/flows/trigger/{flow}", {}).status == 200
    (delivery,) = admin.get(f"/flows/{flow}/deliveries").data
    assert admin.get(f"/flows/deliveries/{delivery['id']}").data == delivery
    for path in ("/flows/deliveries", f"/flows/{flow}/deliveries"):
        assert member(stage).get(path).status == 403
        assert admin.post(path, {}).status == 405
    assert admin.get("/items/system_flow_deliveries").status == 403


def test_deliveries_come_in_pages_and_are_filtered(admin: Client, other_server: Source) -> None:
    options = {"url": other_server.page("/hook", b"", 200), "sign": True, "secret": SECRET}
    flows = [
        make_flow(admin, "webhook", {"method": "POST"}, [step("send", "request", options)])
        for _ in range(2)
    ]
    for flow in [flows[0]] * 3 + [flows[1]]:
        assert admin.post(f"/flows/trigger/{flow}", {}).status == 200
    path = f"/flows/{flows[0]}/deliveries"
    keys = [delivery["id"] for delivery in admin.get(path, sort="-id").data]
    assert len(keys) == 3
    page = admin.get(path, sort="-id", limit=2, page=2, meta="filter_count", fields="id")
    assert (page.data, page.body["meta"]) == ([{"id": keys[2]}], {"filter_count": 3})
    assert admin.get(path, **{"filter[status][_neq]": 200}).data == []
    assert len(admin.get("/flows/deliveries").data) == 4


def test_a_signed_request_of_a_filter_flow_is_logged_with_the_write(
    admin: Client, other_server: Source, pages: Table
) -> None:
    url = other_server.page("/hook", b"", 200)
    options = {"url": url, "sign": True, "secret": SECRET}
    scope = {"type": "filter", "scope": ["items.create"], "collections": [pages.name]}
    flow = make_flow(admin, "event", scope, [step("send", "request", options)])
    pages.add({"title": "One"})
    assert admin.post(pages.path, {"id": 1}).status == 400
    assert len(admin.get(f"/flows/{flow}/deliveries").data) == 1
