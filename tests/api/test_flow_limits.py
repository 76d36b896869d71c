"""What a run may take: time while somebody waits, runs of other flows, and room in its log."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from cms.config import Config
from cms.flows.run import MAX_INNER_RUNS
from cms.flows.run_log import MAX_LOG_BYTES
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage, field

LATE = "The flow takes longer than 0.5 seconds."
LATE_WRITE = "The filter flows of the write take longer than 0.5 seconds."


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(settings, flows_sync_timeout=timedelta(milliseconds=500))


@pytest.mark.clock
def test_a_call_does_not_wait_for_a_long_sleep(stage: Stage, admin: Client) -> None:
    steps = [step("wait", "sleep", {"milliseconds": 60_000})]
    flow = make_flow(admin, "webhook", {}, steps)
    start = time.monotonic()
    answer = admin.get(f"/flows/trigger/{flow}")
    assert time.monotonic() - start < 5
    assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    assert (answer.errors[0]["message"], answer.errors[0]["operation"]) == (LATE, "wait")
    (run,) = runs(admin, flow)
    assert (run["state"], run["reason"]) == ("rejected", LATE)


def test_all_operations_of_a_call_share_its_time(admin: Client) -> None:
    inner_steps = [step("wait", "sleep", {"milliseconds": 200})]
    inner = make_flow(admin, "operation", {}, inner_steps)
    again = {"flow": inner, "payload": [1, 2, 3, 4, 5]}
    flow = make_flow(admin, "webhook", {}, [step("again", "trigger", again)])
    answer = admin.get(f"/flows/trigger/{flow}")
    assert (answer.status, answer.errors[0]["message"]) == (422, LATE)
    assert [run["state"] for run in runs(admin, inner)] == ["done", "done", "rejected"]


def test_a_filter_flow_does_not_hold_its_transaction_for_long(stage: Stage, admin: Client) -> None:
    pages = stage.empty_table(field("title", "string"))
    steps = [step("wait", "sleep", {"milliseconds": 60_000})]
    options = {"type": "filter", "scope": ["items.create"], "collections": [pages.name]}
    make_flow(admin, "event", options, steps)
    answer = admin.post(pages.path, {"title": "a"})
    assert (answer.status, answer.errors[0]["message"]) == (422, LATE_WRITE)


@pytest.mark.clock
def test_all_items_of_a_write_share_the_time_of_its_filter_flows(
    stage: Stage, admin: Client
) -> None:
    pages = stage.empty_table(field("name", "string"))
    options = {"type": "filter", "scope": ["items.create"], "collections": [pages.name]}
    make_flow(admin, "event", options, [step("wait", "sleep", {"milliseconds": 20})])
    assert admin.post(pages.path, {"name": "a"}).status == 200
    start = time.monotonic()
    answer = admin.post(pages.path, [{"name": "b"}] * 100)
    assert time.monotonic() - start < 5
    assert (answer.status, answer.errors[0]["message"]) == (422, LATE_WRITE)
    assert [page["name"] for page in admin.get(pages.path).data] == ["a"]


def test_what_filter_flows_write_shares_their_time(stage: Stage, admin: Client) -> None:
    pages = stage.empty_table(field("heading", "string"))
    notes = stage.empty_table(field("text", "string"))
    options = {"type": "filter", "scope": ["items.create"]}
    wait = step("wait", "sleep", {"milliseconds": 300})
    make_flow(admin, "event", {**options, "collections": [notes.name]}, [wait])
    note = {"collection": notes.name, "payload": {"text": "a"}}
    steps = [{**wait, "resolve": "note"}, step("note", "item-create", note)]
    make_flow(admin, "event", {**options, "collections": [pages.name]}, steps)
    answer = admin.post(pages.path, {"heading": "a"})
    assert answer.status == 422
    assert admin.get(notes.path).data == []


def test_a_run_in_the_background_takes_its_time(
    stage: Stage, admin: Client, settings: Config
) -> None:
    steps = [step("wait", "sleep", {"milliseconds": 600})]
    flow = make_flow(admin, "webhook", {"async": True}, steps)
    admin.get(f"/flows/trigger/{flow}")
    work(stage, replace(settings, flows_sync_timeout=timedelta(milliseconds=500)))
    assert [run["state"] for run in runs(admin, flow)] == ["done"]


def test_a_run_runs_other_flows_a_thousand_times_at_most(admin: Client) -> None:
    inner = make_flow(admin, "operation", {}, [], accountability=None)
    each = {"flow": inner, "payload": "{{$trigger.body.list}}"}
    steps = [step("each", "trigger", each)]
    flow = make_flow(admin, "webhook", {"method": "POST", "return": "$last"}, steps)
    body = {"list": [1] * (MAX_INNER_RUNS + 1)}
    assert admin.post(f"/flows/trigger/{flow}", body).status == 422
    (run,) = runs(admin, flow)
    assert run["result"]["message"] == (
        "A run runs other flows 1000 times at most;"
        " this list would take 1001 of 1000 that are left."
    )


def test_runs_within_each_other_count_together(admin: Client) -> None:
    last = make_flow(admin, "operation", {}, [], accountability=None)
    each = {"flow": last, "payload": list(range(40))}
    middle_steps = [step("each", "trigger", each)]
    middle = make_flow(admin, "operation", {}, middle_steps, accountability=None)
    outer = {"flow": middle, "payload": list(range(25))}
    flow = make_flow(admin, "webhook", {}, [step("each", "trigger", outer)])
    assert admin.get(f"/flows/trigger/{flow}").status == 422
    assert "1000 times at most" in json.dumps(runs(admin, flow)[0]["result"])


def test_the_log_of_a_run_is_cut_where_it_is_too_large(
    stage: Stage, admin: Client, settings: Config
) -> None:
    many = ["a text of some length"] * 20_000
    steps = [
        step("first", "transform", {"json": "{{$trigger.body.many}}"}, resolve="second"),
        step("second", "transform", {"json": "{{first}}"}, resolve="third"),
        step("third", "transform", {"json": {"n": 1}}),
    ]
    flow = make_flow(admin, "webhook", {"method": "POST", "async": True}, steps)
    assert admin.post(f"/flows/trigger/{flow}", {"many": many}).status == 204
    work(stage, settings)
    (run,) = runs(admin, flow)
    assert [entry["key"] for entry in run["steps"]] == ["first", "second", "third"]
    options = json.dumps({"json": many}, separators=(",", ":"))
    assert run["steps"][0]["options"].endswith(f'" … cut: {len(options)} bytes')
    assert run["steps"][1]["result"].startswith(" … cut:")
    assert run["steps"][2]["result"] == {"n": 1}
    assert run["data"].startswith('{"many":["a text')
    assert run["result"] == {"n": 1}
    size = f"SELECT length(steps::text) FROM system_flow_runs WHERE id = '{run['id']}'"
    assert stage.value(size) < 2 * MAX_LOG_BYTES
